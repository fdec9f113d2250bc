"""Independent pieces of work, several at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing.context import SpawnContext
from multiprocessing.queues import Queue
from typing import TypeVar

import torch

from foveate.progress import Change, Drawn, Relayed, bars, drawing_on

T = TypeVar("T")
_EVERYTHING = ExitStack()  # what holds as long as the process does


def side_by_side(work: Callable[[T], object], pieces: Sequence[T], jobs: int) -> Iterator[T]:
    """Do `work` on each piece, at most `jobs` at a time, and give back each piece when it is done.

    The processes share the cores evenly, and their progress bars are drawn here. Ctrl-C stops them all at once: what
    they do must bear being cut off, as a run that keeps its checkpoints does. The first failure is raised here, after
    those that run have been stopped.

    Args:
        work: a function that another process can import.
        pieces: its arguments, one for each call.
        jobs: how many processes.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")
    with _heard(context) as changes:
        settings = (threads, multiprocessing.get_start_method(), changes)
        pool = ProcessPoolExecutor(min(jobs, max(1, len(pieces))), context, _prepare, settings)
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


@contextmanager
def _heard(context: SpawnContext) -> Iterator[Queue[Change]]:
    """A queue for the changes of other processes' progress bars, which are drawn on those of this one."""
    changes: Queue[Change] = context.Queue()
    over = threading.Event()

    def listen(draw: Drawn) -> None:
        while not over.is_set():
            try:
                draw(changes.get(timeout=0.1))
            except queue.Empty:
                continue

    with bars() as shown:
        # a daemon: a process that is stopped in the middle of a message leaves its reader waiting for the rest
        listener = threading.Thread(target=listen, args=[Drawn(shown)], daemon=True)
        listener.start()
        try:
            yield changes
        finally:
            over.set()
            listener.join(timeout=1)


def _prepare(threads: int, method: str, changes: Queue[Change]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends its children
    multiprocessing.set_start_method(method, force=True)  # of the children's own children, who load images
    torch.set_num_threads(threads)
    changes.cancel_join_thread()  # nobody may be listening any more when this process ends
    _EVERYTHING.enter_context(drawing_on(Relayed(changes.put)))
