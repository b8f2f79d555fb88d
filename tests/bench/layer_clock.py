"""Where the time of a forward pass goes: per layer on the device and on the host, per kernel, and in waiting."""

from __future__ import annotations

import cProfile
import pstats
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.model.batch import Batch
from engine.model.transformer import DecoderLayer, Transformer

_CYCLES_PER_SECOND = 1_980_000_000  # of an H200; a slower clock only holds the device longer


def wait(device: torch.device) -> None:
    """Until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class LayerClock:
    """Stands in for a transformer's layers while it is entered, and notes how long every call takes.

    hold_s: the device is kept busy that long before each call, so that the host has issued the whole layer before the
    device begins with it; the device's times then hold no waiting for the host, unless the layer itself waits.
    """

    def __init__(self, transformer: Transformer, device: torch.device, hold_s: float = 0.0) -> None:
        self._transformer, self._device, self._hold_s = transformer, device, hold_s
        self._calls: list[tuple[int, Any, Any, float]] = []

    def __enter__(self) -> LayerClock:
        self._layers = self._transformer.layers
        self._transformer.layers = [_Clocked(layer, self) for layer in self._layers]  # type: ignore[misc]
        return self

    def __exit__(self, *_: object) -> None:
        self._transformer.layers = self._layers

    def mark(self, hold: bool = False) -> Any:
        """A point in the device's time."""
        if self._device.type != "cuda":
            return time.perf_counter()
        if hold and self._hold_s:
            torch.cuda._sleep(int(self._hold_s * _CYCLES_PER_SECOND))
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, begin: Any, end: Any) -> float:
        """Between two marks; the device must have passed them."""
        return 1e3 * (end - begin) if self._device.type != "cuda" else begin.elapsed_time(end)

    def note(self, number: int, begin: Any, end: Any, host_s: float) -> None:
        self._calls.append((number, begin, end, host_s))

    def device_ms(self) -> dict[int, float]:
        """Per layer, of all calls together."""
        wait(self._device)
        total: defaultdict[int, float] = defaultdict(float)
        for number, begin, end, _ in self._calls:
            total[number] += self.between_ms(begin, end)
        return dict(total)

    def host_ms(self) -> dict[int, float]:
        """Per layer, of all calls together, until the call returned."""
        total: defaultdict[int, float] = defaultdict(float)
        for number, _, _, host_s in self._calls:
            total[number] += 1e3 * host_s
        return dict(total)

    def longest_call_s(self) -> float:
        """Of the host, the usual longest: calls that compiled something are left out."""
        per_layer = defaultdict(list)
        for number, _, _, host_s in self._calls:
            per_layer[number].append(host_s)
        return max(statistics.median(calls) for calls in per_layer.values())


class _Clocked:
    def __init__(self, layer: DecoderLayer, clock: LayerClock) -> None:
        self.number, self._layer, self._clock = layer.number, layer, clock

    def __call__(self, streams: Tensor, batch: Batch) -> Tensor:
        begin, start = self._clock.mark(hold=True), time.perf_counter()
        streams = self._layer(streams, batch)
        host_s = time.perf_counter() - start
        self._clock.note(self.number, begin, self._clock.mark(), host_s)
        return streams


def profile_device(action: Callable[[], object], times: int) -> dict[str, Any]:
    """Per call of `action`: milliseconds in which the device did something, kernels, copies, waits of the host, top kernels."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(times):
            action()
        torch.cuda.synchronize()
    spans, by_name, copies, calls = [], Counter[str](), 0, Counter[str]()
    for event in recorded.events():
        if event.device_type != DeviceType.CUDA:
            calls[event.name] += 1
        elif not getattr(event, "is_user_annotation", False):
            spans.append((event.time_range.start, event.time_range.end))
            copies += event.name.startswith(("Memcpy", "Memset"))
            by_name[event.name] += event.time_range.end - event.time_range.start
    return {
        "busy_ms": round(_union(spans) / 1e3 / times, 3),
        "kernels": round((len(spans) - copies) / times, 1),
        "copies": round(copies / times, 1),
        "waits": round(sum(n for name, n in calls.items() if "Synchronize" in name) / times, 1),
        "host_calls": {name: round(n / times, 1) for name, n in calls.most_common() if name.startswith(("cuda", "cu"))},
        "top_us": {name[:60]: round(us / times, 1) for name, us in by_name.most_common(10)},
    }


def _union(spans: list[tuple[float, float]]) -> float:
    """Length of what the intervals cover together."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def profile_host(action: Callable[[], object], times: int) -> dict[str, float]:
    """Milliseconds per call of `action` in the functions that take most time themselves; Python's profiler slows all of it."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(times):
        action()
    profiler.disable()
    rows = pstats.Stats(profiler).stats.items()  # type: ignore[attr-defined]
    top = sorted(((own, place) for place, (_, _, own, _, _) in rows), reverse=True)[:14]
    return {
        f"{file.rsplit('/', 2)[-1]}:{line} {name}"[-70:]: round(1e3 * own / times, 3) for own, (file, line, name) in top
    }
