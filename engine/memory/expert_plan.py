"""Where routed experts go: all into fast memory if they fit, else shared out between GPU, RAM and disk. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.errors import DoesNotFit
from engine.memory.lines import PlanLine, Tier, gib, gib_allowed, gib_needed
from engine.model.expert_groups import ExpertShape
from engine.model.expert_store import bounce_bytes, slabs_for

ExpertPlace = Literal["none", "packed", "decoded", "mapped", "spread"]
# packed: multiplied from their stored bytes, which are in memory; decoded: all ready to multiply;
# mapped: left in the files and read (or decoded) when a token needs them;
# spread: multiplied from their stored bytes by a GPU that holds some, the others being in RAM and in the files.
_LEAST_GROUP = 8  # experts that many tokens go through at a time if all are on the GPU; fewer are launches without work
_STAGED_GROUP = 16  # as many as hide the launches behind the copies
_SHARE_OF_STAGING = 8  # the buffers for many tokens get at most this part of what the GPU has left for experts


@dataclass(frozen=True)
class OnGpu:
    """Experts whose packed bytes a GPU multiplies, converting them to FP8 for many tokens. All layers' have one shape."""

    shape: ExpertShape
    layers: int  # that have experts
    per_layer: int
    topk: int

    @property
    def count(self) -> int:
        return self.layers * self.per_layer

    @property
    def fp8_bytes(self) -> int:
        """One expert ready for many tokens: the products want its scales as float32 too."""
        return self.shape.fp8_bytes + 3 * self.shape.width * self.shape.hidden // 32

    def staged_bytes(self, group: int) -> int:
        """Two halves of packed experts, and one group in FP8."""
        return group * (2 * self.shape.packed_bytes + self.fp8_bytes)

    @property
    def least_bytes(self) -> int:
        """What the GPU must have if it is to hold nothing longer than a token needs it."""
        return self.staged_bytes(1) + self.topk * self.shape.packed_bytes


@dataclass(frozen=True)
class ExpertFacts:
    """What the plan must know about routed experts, as stored: bytes, and whether a kernel multiplies these directly."""

    packed_bytes: int
    packed_kernel: bool
    on_gpu: OnGpu | None = None  # where that kernel is a GPU's


@dataclass(frozen=True)
class Shares:
    """How many spread experts are where. They are numbered across the layers: first every layer's expert 0, then 1 ...

    RAM keeps the first `in_ram` of these numbers; the GPU begins with the last `slots` and then holds the most used.
    """

    slots: int
    in_ram: int
    group: int  # many tokens go through the staging buffer and the FP8 room in groups of so many
    layers: int
    count: int


@dataclass(frozen=True)
class ExpertPlan:
    """The decision about experts, in the words of the memory plan."""

    place: ExpertPlace
    lines: tuple[PlanLine, ...] = ()
    warnings: tuple[str, ...] = ()
    cache_bytes: int = 0  # for decoded experts
    workspace_group: int | None = (
        None  # of packed experts on a GPU: how many are converted at a time; None: whole layers
    )
    shares: Shares | None = None


def place_experts(facts: ExpertFacts, decoded: list[int], room: int, ram_room: int, tier: Tier) -> ExpertPlan:
    """decoded: bytes of each expert matrix if decoded. room: bytes left on the device; ram_room: in RAM, for a GPU.

    The device has room for `least_bytes` of experts that its GPU multiplies packed. Raises DoesNotFit for want of RAM.
    """
    if not decoded:
        return ExpertPlan("none")
    if facts.packed_kernel and facts.on_gpu is not None:
        return _all_on_gpu(facts.on_gpu, room) or _spread(facts.on_gpu, room, ram_room)
    if facts.packed_kernel and facts.packed_bytes <= room:
        line = PlanLine("experts", tier, facts.packed_bytes, "as stored, multiplied without decoding")
        return ExpertPlan("packed", (line,))
    total, largest = sum(decoded), max(decoded)
    if not facts.packed_kernel and total <= room:
        return ExpertPlan("decoded", (PlanLine("experts", tier, total, "all fit decoded"),))
    on_disk = PlanLine("experts", "disk", facts.packed_bytes, "in the checkpoint files, read when needed")
    if facts.packed_kernel:
        over = gib(facts.packed_bytes - room)
        warning = f"{over} of experts do not fit into RAM and are read from disk again and again."
        return ExpertPlan("mapped", (on_disk,), (warning,))
    cached = max(room - 4 * largest, 0)
    lines = (on_disk, PlanLine("expert cache", tier, cached, "recently used experts, decoded"))
    warning = f"{gib(total - cached)} of decoded experts do not fit and are decoded when needed."
    return ExpertPlan("mapped", lines, (warning,), cache_bytes=cached)


def _all_on_gpu(facts: OnGpu, room: int) -> ExpertPlan | None:
    """Every expert on the GPU, with an FP8 workspace of two whole layers or of a group; None if that is too much."""
    packed = facts.count * facts.shape.packed_bytes
    left = room - packed
    line = PlanLine("experts", "GPU", packed, "as stored, multiplied without decoding")
    whole = facts.per_layer * (2 * facts.shape.fp8_bytes + (facts.fp8_bytes - facts.shape.fp8_bytes))
    if whole <= left:
        workspace = PlanLine("FP8 workspace", "GPU", whole, "a layer's experts for many tokens, and the next layer's")
        return ExpertPlan("packed", (line, workspace))
    group = _power_of_two(left // facts.fp8_bytes)
    if group < min(_LEAST_GROUP, facts.per_layer):
        return None
    group = min(group, facts.per_layer)
    reason = f"{group} experts at a time for many tokens; two whole layers would take {gib(whole)}"
    workspace = PlanLine("FP8 workspace", "GPU", group * facts.fp8_bytes, reason)
    return ExpertPlan("packed", (line, workspace), workspace_group=group)


def _spread(facts: OnGpu, room: int, ram_room: int) -> ExpertPlan:
    """As many experts as fit on the GPU, as many of all as fit in RAM, the rest in the files."""
    assert room >= facts.least_bytes
    packed = facts.shape.packed_bytes
    fitting = room // _SHARE_OF_STAGING // facts.staged_bytes(1)
    group = min(max(_power_of_two(fitting), 1), _STAGED_GROUP, facts.per_layer)
    slots = min((room - facts.staged_bytes(group)) // packed, facts.count)
    slabs, each, slab = slabs_for(facts.count, facts.shape)
    in_ram, on_the_way = facts.count, bounce_bytes(facts.shape)
    if slabs * slab > ram_room:
        if on_the_way > ram_room:
            raise DoesNotFit(
                f"This model needs {gib_needed(on_the_way)} of RAM for experts on their way to the GPU, but only "
                f"{gib_allowed(ram_room)} may be used; close other programs, allow a larger --ram-budget, "
                "or choose a smaller model."
            )
        slabs = (ram_room - on_the_way) // slab
        in_ram = slabs * each
    on_disk = max(facts.count - slots - in_ram, 0)
    lines = [
        PlanLine("experts", "GPU", slots * packed, f"the {slots:,} most used of {facts.count:,}, as stored"),
        PlanLine("expert staging", "GPU", facts.staged_bytes(group), f"many tokens use all experts, {group} at a time"),
    ]
    if in_ram:
        share = "all experts" if in_ram == facts.count else f"{in_ram:,} experts"
        lines.append(PlanLine("experts", "RAM", slabs * slab, f"{share}, copied to the GPU when needed"))
    warnings: tuple[str, ...] = ()
    if in_ram < facts.count:
        lines.append(PlanLine("expert staging", "RAM", on_the_way, "for experts on their way from disk to the GPU"))
    if on_disk:
        lines.append(PlanLine("experts", "disk", on_disk * packed, "in the checkpoint files, read when needed"))
        warnings = (
            f"{gib(on_disk * packed)} of experts fit neither on the GPU nor into RAM and are read from disk again and again.",
        )
    shares = Shares(slots, in_ram, group, facts.layers, facts.count)
    return ExpertPlan("spread", tuple(lines), warnings, shares=shares)


def _power_of_two(number: int) -> int:
    """The largest one that is not larger; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number > 0 else 0
