"""What the Triton kernels of all operators share: whether they can run here, and facts of the device they run on."""

from __future__ import annotations

from functools import cache

import torch
import triton

from kernels.choose import Case, Unsuitable


def interpreted() -> bool:
    """Whether Triton runs kernels in its Python interpreter (tests on machines without a GPU)."""
    return bool(triton.knobs.runtime.interpret)


def require_gpu(case: Case | None) -> None:
    """Raise Unsuitable unless the case's tensors lie on a CUDA device of compute capability 9.0 or later."""
    if not torch.cuda.is_available():
        raise Unsuitable("there is no CUDA device")
    if case is not None and case.device != "cuda":
        raise Unsuitable(f"it runs on a GPU, not on {case.device}")
    if torch.cuda.get_device_capability() < (9, 0):
        raise Unsuitable("the GPU is older than compute capability 9.0")


@cache
def multiprocessors(device: torch.device) -> int:
    """Number of streaming multiprocessors; 4 stand in for them in the interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
