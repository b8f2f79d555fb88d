"""A Llama-shaped teacher that writes many conversations at once: static memory, no Python between tokens.

Every row reads a script: tokens to be taken as they are, and marks where the model writes itself. All bookkeeping is done
by tensor operations, so a step is one CUDA graph and only whole rounds come back to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from assets.training.teacher.attention import attend, attend_fast

WRITE, NEW = -1, -2  # marks in a script: the model writes until it ends; a new conversation begins
TAKEN, WRITTEN, FIRST = 0, 1, 2  # what a token of the result is
_SHORTLIST, _NUCLEUS = 40, 0.95
_CHUNK = 128  # the shortlist lies in the chunks with the largest maxima, so only these are searched


@dataclass(frozen=True)
class TeacherShape:
    """Sizes as the file states them."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    theta: float
    eps: float

    @property
    def head_width(self) -> int:
        return self.hidden // self.heads

    @staticmethod
    def of(fields: dict[str, Any]) -> TeacherShape:
        name = fields["general.architecture"]
        return TeacherShape(
            fields[f"{name}.block_count"], fields[f"{name}.embedding_length"], fields[f"{name}.attention.head_count"],
            fields[f"{name}.attention.head_count_kv"], fields[f"{name}.rope.freq_base"],
            fields[f"{name}.attention.layer_norm_rms_epsilon"],
        )  # fmt: skip


class _Layer(NamedTuple):
    entry_norm: Tensor
    qkv: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Teacher:
    """Weights and one step for all rows."""

    def __init__(self, shape: TeacherShape, tensors: dict[str, Tensor], device: str) -> None:
        self.shape, self.device = shape, torch.device(device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.attend = attend_fast if self.device.type == "cuda" else attend
        own = {name: value.to(self.device, self.dtype) for name, value in tensors.items()}
        self.embedding, self.norm = own["token_embd.weight"], own["output_norm.weight"]
        self.head = own.get("output.weight", self.embedding)
        self.layers = []
        for i in range(shape.layers):
            part = {k: own[f"blk.{i}.{k}.weight"] for k in (
                "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
            )}  # fmt: skip
            qkv = torch.cat([part["attn_q"], part["attn_k"], part["attn_v"]])
            gate_up = torch.cat([part["ffn_gate"], part["ffn_up"]])
            self.layers.append(
                _Layer(part["attn_norm"], qkv, part["attn_output"], part["ffn_norm"], gate_up, part["ffn_down"])
            )
        half = torch.arange(shape.head_width // 2, device=self.device)
        self.speed = shape.theta ** (-half.float() / len(half))

    def step(self, tokens: Tensor, position: Tensor, start: Tensor, cache: tuple[Tensor, Tensor]) -> Tensor:
        """tokens [B] at slot `position` (0-d); row b sees slots start[b] .. position. Writes the cache
        [layers, B, kv heads, T, width]; returns logits [B, V]."""
        norm = lambda x, weight: F.rms_norm(x, weight.shape, weight, self.shape.eps)  # noqa: E731
        x = self.embedding[tokens]
        for layer, keys, values in zip(self.layers, *cache, strict=True):
            qkv = F.linear(norm(x, layer.entry_norm), layer.qkv)
            x = x + F.linear(self.attend(qkv, keys, values, position, start, self.speed), layer.output)
            gate, up = F.linear(norm(x, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(norm(x, self.norm), self.head)


def _shortlist(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The best 40 of each row, float32, with their ids, in falling order."""
    count, vocab = _SHORTLIST, logits.shape[-1]
    if vocab % _CHUNK or vocab // _CHUNK <= count:
        best, ids = torch.topk(logits, min(count, vocab), -1)
        return best.float(), ids
    chunks = logits.unflatten(-1, (-1, _CHUNK))
    chosen = torch.topk(chunks.amax(-1), count, -1).indices  # [B, 40]
    among = chunks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, _CHUNK)).flatten(1)
    best, at = torch.topk(among, count, -1)
    return best.float(), chosen.gather(1, at // _CHUNK) * _CHUNK + at % _CHUNK


def draw(logits: Tensor, temperature: Tensor) -> Tensor:
    """One token per row: the best 40, of these 95 % of the mass, by the exponential race. Temperature 0 is greedy."""
    best, ids = _shortlist(logits)
    p = torch.softmax(best / temperature.clamp_min(1e-3).unsqueeze(1), -1)
    p = p * ((p.cumsum(-1) - p) < _NUCLEUS)
    race = p / torch.empty_like(p).exponential_().clamp_min(1e-20)
    choice = torch.where(temperature > 0, race.argmax(-1), 0)
    return ids.gather(1, choice.unsqueeze(1)).squeeze(1)


class Scribe:
    """Runs scripts in rounds of `length` slots."""

    def __init__(self, teacher: Teacher, rows: int, length: int, end: int, most_written: int) -> None:
        shape, device = teacher.shape, teacher.device
        self.teacher, self.rows, self.length, self.end, self.most = teacher, rows, length, end, most_written
        size = (shape.layers, rows, shape.kv_heads, length, shape.head_width)
        self.cache = (
            torch.zeros(size, device=device, dtype=teacher.dtype),
            torch.zeros(size, device=device, dtype=teacher.dtype),
        )
        whole = {"device": device, "dtype": torch.long}
        self.script = torch.zeros(rows, 1, **whole)
        self.place, self.written, self.start, self.tokens = (torch.zeros(rows, **whole) for _ in range(4))
        self.writing = torch.zeros(rows, device=device, dtype=torch.bool)
        self.temperature = torch.zeros(rows, device=device)
        self.position = torch.zeros((), **whole)
        self.result, self.kind = torch.zeros(rows, length, **whole), torch.zeros(rows, length, **whole)
        self._graph: torch.cuda.CUDAGraph | None = None

    def _next_token(self, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """(token, kind) that follows, and all state moved on; `sampled` counts where a row is writing."""
        last = self.script.shape[1] - 1
        at = lambda offset: self.script.gather(1, (self.place + offset).clamp_max(last).unsqueeze(1)).squeeze(1)  # noqa: E731
        mark = at(0)
        begins = ~self.writing & (mark == NEW)
        starts_writing = ~self.writing & (mark == WRITE)
        writes = self.writing | starts_writing
        ends = writes & ((sampled == self.end) | (self.written >= self.most))
        token = torch.where(writes, torch.where(ends, self.end, sampled), torch.where(begins, at(1), mark))
        kind = torch.where(writes, WRITTEN, torch.where(begins, FIRST, TAKEN))
        # A cut answer is marked like a taken token, so that it can be told from a finished one.
        kind = torch.where(ends & (sampled != self.end), TAKEN, kind)
        self.place += torch.where(self.writing, 0, torch.where(begins, 2, 1))
        self.written.copy_(torch.where(writes & ~ends, self.written + 1, 0))
        self.start.copy_(torch.where(begins, self.position + 1, self.start))
        self.writing.copy_(writes & ~ends)
        return token, kind

    def _step(self) -> None:
        """The token that follows slot `position` goes to slot position + 1 of the result."""
        logits = self.teacher.step(self.tokens, self.position, self.start, self.cache)
        token, kind = self._next_token(draw(logits, self.temperature))
        following = (self.position + 1).clamp_max(self.length - 1).view(1)
        self.result.index_copy_(1, following, token.unsqueeze(1))
        self.kind.index_copy_(1, following, kind.unsqueeze(1))
        self.tokens.copy_(token)
        self.position += 1

    def _capture(self) -> torch.cuda.CUDAGraph:
        """The step as a graph; what running it for that changed is put back."""
        saved = [t.clone() for t in self._state()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        for own, old in zip(self._state(), saved, strict=True):
            own.copy_(old)
        return graph

    def _state(self) -> list[Tensor]:
        return [self.place, self.written, self.start, self.tokens, self.writing, self.position, self.result, self.kind]

    @torch.inference_mode()
    def round(self, scripts: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        """scripts int64 [rows, S], each beginning with NEW -> tokens and kinds [rows, length] on the CPU.

        Scripts are repeated marks and tokens; they must be longer than a round can use.
        """
        if self.script.shape != scripts.shape:
            assert self._graph is None, "the script's size is part of the graph"
            self.script = torch.zeros_like(scripts, device=self.teacher.device)
        self.script.copy_(scripts)
        self.temperature.copy_(temperature)
        for t in (self.place, self.written, self.start, self.position, self.kind):
            t.zero_()
        self.writing.zero_()
        self.tokens.copy_(self.script[:, 1])
        self.place.fill_(2)
        self.result[:, 0], self.kind[:, 0] = self.tokens, FIRST
        if self.teacher.device.type == "cuda" and self._graph is None:
            self._graph = self._capture()
        advance = self._step if self._graph is None else self._graph.replay
        for _ in range(self.length - 1):
            advance()
        return self.result.cpu(), self.kind.cpu()
