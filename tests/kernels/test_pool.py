"""The thread pool of the C kernels: every part once, whoever calls, with helpers or without."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable

import pytest
import torch

from kernels import native
from kernels.choose import can_run, use
from kernels.linear import linear, reference

pytestmark = pytest.mark.skipif(not can_run("linear", "cpu"), reason="no C compiler")
PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def pool_run(work: Callable[[int], None], parts: int, threads: int) -> None:
    code = native.library(native._POOL)
    code.pool_run.argtypes = [PART, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    code.pool_run.restype = None
    code.pool_run(PART(lambda task, part: work(part)), None, parts, threads)


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_every_part_runs_once(threads: int):
    for parts in (0, 1, 2, 3, 7, 64, 1001):
        counts = [0] * parts

        def work(part: int, counts: list[int] = counts) -> None:
            counts[part] += 1  # only this part's

        pool_run(work, parts, threads)
        assert counts == [1] * parts


def test_a_part_may_run_a_task_of_its_own():
    seen: list[int] = []
    pool_run(lambda part: pool_run(seen.append, 5, 3), 4, 3)
    assert sorted(seen) == sorted(list(range(5)) * 4)


def test_other_threads_help():
    workers = set()
    both = threading.Barrier(2, timeout=20)

    def work(part: int) -> None:
        workers.add(threading.get_ident())
        if part < 2:
            both.wait()  # passes only if two threads hold a part at once

    for _ in range(3):
        time.sleep(0.4)  # longer than the pool stays alone after help that came late
        pool_run(work, 2, 2)
    assert len(workers) >= 2


def test_many_callers_at_once():
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1, 300, generator=random), torch.randn(900, 300, generator=random)
    with use("linear", "cpu"):
        expected, wrong = linear(x, weight), []
        assert (expected - reference.linear(x, weight)).norm() < 1e-5 * expected.norm()

        def call() -> None:
            for _ in range(200):
                if not torch.equal(linear(x, weight), expected):
                    wrong.append(1)

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_its_own_work():
    pool_run(lambda part: None, 8, 3)  # threads exist before
    child = os.fork()
    if child == 0:
        counts: list[int] = []
        pool_run(counts.append, 100, 3)
        os._exit(0 if sorted(counts) == list(range(100)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
