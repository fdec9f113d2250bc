"""Independent pieces of work, several at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(work: Callable[[T], object], pieces: Sequence[T], jobs: int) -> Iterator[T]:
    """Do `work` on each piece, at most `jobs` at a time, and give back each piece when it is done.

    The processes share the cores evenly. Ctrl-C stops them all at once: what they do must bear being cut off, as a run
    that keeps its checkpoints does. The first failure is raised here, after those that run have been stopped.

    Args:
        work: a function that another process can import.
        pieces: its arguments, one for each call.
        jobs: how many processes.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    settings = (threads, multiprocessing.get_start_method())
    pool = ProcessPoolExecutor(min(jobs, max(1, len(pieces))), multiprocessing.get_context("spawn"), _prepare, settings)
    before = set(multiprocessing.active_children())
    try:
        futures = {pool.submit(work, piece): piece for piece in pieces}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BaseException:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(threads: int, method: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends its children
    multiprocessing.set_start_method(method, force=True)  # of the children's own children, who load images
    torch.set_num_threads(threads)
