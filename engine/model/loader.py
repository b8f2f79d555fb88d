"""From a checkpoint to a running model: matches logical parameters with tensors on disk and proves nothing is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType

import torch
from torch import Tensor

from engine.checkpoint.directory import Checkpoint
from engine.checkpoint.stored import StoredTensor, find_stored
from engine.errors import BadCheckpoint
from engine.families.base import Family, fp8_block
from engine.memory.expert_plan import ExpertPlace
from engine.model.expert_groups import ExpertShape, empty_stack, write_expert
from engine.model.expert_store import ExpertStore
from engine.model.experts import (
    DecodedExpert,
    ExpertBank,
    ExpertCache,
    MappedExperts,
    PackedExperts,
    stack_experts,
)
from engine.model.spec import ModelSpec, Moe
from engine.model.spread import SpreadExperts, SpreadMemory
from engine.model.transformer import Transformer
from engine.model.vision import VisionEncoder, vision_encoder
from engine.model.weights import DeclaredWeights, Parameter, expert_shapes
from engine.model.workspace import Fp8Workspace, WorkspaceExperts
from kernels.choose import can_run
from kernels.experts import PackedExpert

_PLACES = re.compile(r"(?<=\.)(\d+)(?=\.)")


@lru_cache(maxsize=4)
def declare(spec: ModelSpec) -> Mapping[str, Parameter]:
    """Every parameter the model needs, by logical name; nothing is loaded.

    Kept, because planning, matching and reporting ask for the same model and a large one has 100,000 parameters.
    """
    weights = DeclaredWeights()
    Transformer(spec, weights)
    vision_encoder(spec, weights)
    return MappingProxyType(weights.declared)


def keeps_bfloat16(dtype: torch.dtype, on_gpu: bool) -> bool:
    """Whether weights stay bfloat16 where that loses nothing, although the model computes in `dtype`: half the bytes are read."""
    return not on_gpu and dtype == torch.float32 and can_run("linear", "cpu")


def narrow_linears(
    found: Mapping[str, StoredTensor], parameters: Mapping[str, Parameter], dtype: torch.dtype, on_gpu: bool
) -> frozenset[str]:
    """Weights of which it is known without reading them that they stay bfloat16."""
    if not keeps_bfloat16(dtype, on_gpu):
        return frozenset()
    return frozenset(n for n, s in found.items() if parameters[n].kind == "linear" and s.exact_in_bfloat16)


@dataclass(frozen=True)
class TensorReport:
    """How the tensors of a checkpoint match a model. `missing` and `wrong` are sentences."""

    found: dict[str, StoredTensor]
    missing: dict[str, str]  # logical name -> name on disk
    wrong: list[str]
    surplus: list[str]
    ignored: list[str]

    def require_complete(self, checkpoint: Checkpoint) -> None:
        """Raise BadCheckpoint naming the first fault and what to do."""
        where = checkpoint.path.name
        if self.wrong:
            raise BadCheckpoint(self.wrong[0])
        if self.missing:
            name = next(iter(self.missing.values()))
            more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
            raise BadCheckpoint(
                f"The checkpoint {where} lacks the tensor {name}{more}; download it again or use its complete version."
            )
        if self.surplus:
            entry = checkpoint.entries[self.surplus[0]]
            more = f" (and {len(self.surplus) - 1} more)" if len(self.surplus) > 1 else ""
            raise BadCheckpoint(
                f"The {entry}{more} is not part of this model, so the files and config.json do not belong together; "
                "download the checkpoint again, or add the name to the family's ignored list if it is known to be unused."
            )


def disk_name(family: Family, logical: str) -> str:
    """Name on disk of a logical parameter, from the family's table."""
    numbers = _PLACES.findall(logical)
    letters = iter("ne")
    template = _PLACES.sub(lambda _: "{" + next(letters) + "}", logical) if numbers else logical
    return family.names[template].format(**dict(zip("ne", numbers, strict=False)))


def match_tensors(checkpoint: Checkpoint, family: Family, spec: ModelSpec) -> TensorReport:
    """Find every declared parameter on disk and account for every tensor that is there."""
    block = fp8_block(checkpoint.config)
    report = TensorReport({}, {}, [], [], [])
    used: set[str] = set()
    resolved: dict[str, StoredTensor] = {}
    for name, parameter in declare(spec).items():
        stored = _find(checkpoint, family, spec, parameter, block, used, resolved)
        if stored is None:
            report.missing[name] = disk_name(family, name)
            continue
        fault = _fault(parameter, stored)
        if fault:
            report.wrong.append(fault)
        report.found[name] = stored
    ignored = family.ignored_patterns(spec)
    for name in checkpoint.entries:
        if name not in used:
            known = any(pattern.search(name) for pattern in ignored)
            (report.ignored if known else report.surplus).append(name)
    return report


def _find(
    checkpoint: Checkpoint,
    family: Family,
    spec: ModelSpec,
    parameter: Parameter,
    block: tuple[int, int] | None,
    used: set[str],
    resolved: dict[str, StoredTensor],
) -> StoredTensor | None:
    found = find_stored(checkpoint.entries, disk_name(family, parameter.name), block)
    if found is not None:
        used.update(found[1])
        return found[0]
    if parameter.kind != "expert" or family.fused_experts is None:
        return None
    layer, expert, part = re.fullmatch(r"layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)", parameter.name).groups()  # type: ignore[union-attr]
    fused = family.fused_experts.down if part == "down" else family.fused_experts.gate_up
    fused = fused.format(n=layer)
    if fused not in resolved:
        found = find_stored(checkpoint.entries, fused, block)
        if found is None:
            return None
        used.update(found[1])
        resolved[fused] = found[0]
    whole = resolved[fused]
    moe = spec.layers[int(layer)].mlp
    assert isinstance(moe, Moe)
    expected = (moe.experts, *((spec.hidden, moe.width) if part == "down" else (2 * moe.width, spec.hidden)))
    if whole.shape != expected:
        raise BadCheckpoint(_wrong_shape(whole, expected))
    rows = None if part == "down" else ((0, moe.width) if part == "gate" else (moe.width, 2 * moe.width))
    return whole.select(int(expert), rows)


def _wrong_shape(stored: StoredTensor, expected: tuple[int, ...]) -> str:
    return (
        f"The {stored.codes} has shape {list(stored.shape)}, but config.json asks for {list(expected)}; "
        "the files and config.json do not belong together."
    )


def _fault(parameter: Parameter, stored: StoredTensor) -> str | None:
    if stored.shape != parameter.shape:
        return _wrong_shape(stored, parameter.shape)
    allowed = {"vector": ("plain",), "table": ("integer",)}.get(parameter.kind, ("plain", "fp8", "mxfp4"))
    if stored.format not in allowed:
        return f"The {stored.codes} has element type {stored.codes.dtype}, but it must be {' or '.join(allowed)}."
    return None


class CheckpointWeights:
    """Decodes parameters from disk as blocks ask for them, and gives the mapped memory back."""

    def __init__(
        self,
        found: dict[str, StoredTensor],
        dtype: torch.dtype,
        device: torch.device,
        experts: ExpertPlace,
        expert_cache: ExpertCache,
        on_bytes: Callable[[int], None],
        prefix: str = "",
        workspace: Fp8Workspace | None = None,
        spread: SpreadMemory | None = None,
    ) -> None:
        """workspace, spread: of experts packed on a GPU, and of spread ones; all layers share them."""
        self._workspace, self._spread = workspace, spread
        self._found, self._dtype, self._device, self._prefix = found, dtype, device, prefix
        self._experts, self._expert_cache, self._on_bytes = experts, expert_cache, on_bytes

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def scope(self, name: str) -> CheckpointWeights:
        return CheckpointWeights(
            self._found, self._dtype, self._device, self._experts, self._expert_cache, self._on_bytes,
            f"{self._prefix}{name}.", self._workspace, self._spread,
        )  # fmt: skip

    def _load(self, name: str, dtype: torch.dtype) -> Tensor:
        stored = self._found[self._prefix + name]
        tensor = stored.decode(dtype, self._device)
        stored.release()
        self._on_bytes(stored.nbytes)
        return tensor

    def vector(self, name: str, *shape: int) -> Tensor:
        return self._load(name, torch.float32)

    def linear(self, name: str, *shape: int) -> Tensor:
        stored = self._found[self._prefix + name]
        narrow = keeps_bfloat16(self._dtype, self._device.type == "cuda") and (
            stored.exact_in_bfloat16 or stored.holds_bfloat16()
        )
        return self._load(name, torch.bfloat16 if narrow else self._dtype)

    def matrix(self, name: str, *shape: int) -> Tensor:
        return self._load(name, self._dtype)

    def table(self, name: str, *shape: int) -> Tensor:
        return self._load(name, torch.int64)

    def experts(self, moe: Moe, hidden: int) -> ExpertBank:
        prefix, dtype, device = self._prefix, self._dtype, self._device

        def decode(e: int) -> DecodedExpert:
            gate, up, down = (self._found[f"{prefix}experts.{e}.{part}"] for part in ("gate", "up", "down"))
            gate_up = torch.cat([gate.decode(dtype, device), up.decode(dtype, device)])
            expert = DecodedExpert(gate_up, down.decode(dtype, device))
            release(e)
            return expert

        def pack(e: int) -> PackedExpert:
            return PackedExpert(
                *(self._found[f"{prefix}experts.{e}.{part}"].packed() for part in ("gate", "up", "down"))
            )

        def release(e: int) -> None:
            for part in expert_shapes(moe, hidden):
                self._found[f"{prefix}experts.{e}.{part}"].release()

        if self._experts == "spread":
            assert self._spread is not None
            return SpreadExperts(moe.experts, pack, release, self._spread, self._on_bytes)
        names = (f"{prefix}experts.{e}.{part}" for e in range(moe.experts) for part in expert_shapes(moe, hidden))
        mxfp4 = self._experts != "decoded" and all(self._found[n].format == "mxfp4" for n in names)
        if self._experts == "packed" and device.type == "cuda":
            return self._on_device(moe, hidden, pack, release)
        if mxfp4 and device.type == "cpu" and can_run("packed_experts", "cpu"):
            bank = PackedExperts(pack)
            if self._experts == "packed":
                bank.read_all(moe.experts, self._on_bytes)
            return bank
        if self._experts == "mapped":
            return MappedExperts(int(prefix.split(".")[1]), decode, self._expert_cache)

        def counted(e: int) -> DecodedExpert:
            expert = decode(e)
            self._on_bytes(
                sum(self._found[f"{prefix}experts.{e}.{part}"].nbytes for part in expert_shapes(moe, hidden))
            )
            return expert

        return stack_experts(moe.experts, counted, dtype)

    def _on_device(
        self, moe: Moe, hidden: int, pack: Callable[[int], PackedExpert], release: Callable[[int], None]
    ) -> WorkspaceExperts:
        """Stack a layer's packed experts on the device, one after another."""
        assert self._workspace is not None
        shape = ExpertShape(moe.width, hidden)
        stack, store = empty_stack(moe.experts, shape, self._device), ExpertStore(0, shape, self._device)
        for e in range(moe.experts):
            expert = pack(e)
            store.copy((0, e), partial(write_expert, expert), (stack, e))
            release(e)
            self._on_bytes(expert.nbytes)
        return WorkspaceExperts(*stack, self._workspace)


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run."""

    transformer: Transformer
    vision: VisionEncoder | None


def load_model(spec: ModelSpec, weights: CheckpointWeights) -> LoadedModel:
    """Build all blocks; their constructors pull the tensors."""
    with torch.inference_mode():
        return LoadedModel(Transformer(spec, weights), vision_encoder(spec, weights))
