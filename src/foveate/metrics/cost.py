"""What an attention costs: times as ratios of two things that run by turns, so that a busy machine slows both alike."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios of neighbouring runs, its quartiles, and the median seconds of both."""

    value: float
    low: float
    high: float
    seconds: float
    reference_seconds: float
    pairs: int


def ratio(run: Callable[[], object], reference: Callable[[], object], seconds: float, at_least: int = 7) -> Ratio:
    """The time of `run` over that of `reference`: pairs for `seconds`, every other one the other way round.

    >>> ratio(lambda: None, lambda: None, seconds=0.0).pairs
    7
    """
    for warm_up in (run, reference, run, reference):
        warm_up()
    ours: list[float] = []
    theirs: list[float] = []
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while len(ours) < at_least or time.perf_counter() < end:
            if len(ours) % 2:
                ours.append(_time(run))
                theirs.append(_time(reference))
            else:
                theirs.append(_time(reference))
                ours.append(_time(run))
    finally:
        gc.enable()
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Ratio(middle, low, high, statistics.median(ours), statistics.median(theirs), len(ratios))


def _time(run: Callable[[], object]) -> float:
    # one thread: processor time, which other processes do not inflate; more: wall time, for threads wait for each other
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - start


def machine() -> str:
    """What times depend on, in words."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    threads = torch.get_num_threads()
    clock = "1 thread, processor time" if threads == 1 else f"{threads} threads, wall time"
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), {clock}, {versions}"
