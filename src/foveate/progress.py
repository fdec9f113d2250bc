"""Progress over something long: bars on a terminal, nothing anywhere else."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from foveate.extras import require

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
Change = tuple[str, int, dict[str, Any]]  # what happens to a bar: "add", "update" or "remove", its number, the details
PAUSE = 0.1  # seconds between two messages about one bar


class Bars(Protocol):
    """What can show how far several things are."""

    def add_task(self, description: str, *, total: float | None, note: str) -> Any:
        """A new bar with a note behind it, and the number that it goes by; nobody may know the total."""
        ...

    def update(self, task_id: Any, **changes: Any) -> None:
        """Change a bar: its `total`, what is `completed`, an `advance` on that, its `note`."""
        ...

    def remove_task(self, task_id: Any) -> None:
        """Take a bar away."""
        ...


_OPEN: list[Bars] = []  # the bars that this process draws on: a terminal has room for one set of them


@cache
def console() -> Console:
    """Where bars are drawn, and what stays is printed above them: standard error."""
    made: Console = require("rich.console").Console(stderr=True)
    if not made.is_terminal:
        made.width = 160  # a file is as wide as a table needs
    return made


@contextmanager
def bars() -> Iterator[Bars]:
    """The bars that are there already, or new ones that are gone when the block ends.

    >>> with bars() as outer, bars() as inner:
    ...     print(inner is outer)
    True
    """
    if _OPEN:
        yield _OPEN[-1]
        return
    rich = require("rich.progress")
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}"),
    )
    shown = rich.Progress(
        *columns,
        console=console(),
        transient=True,
        disable=not console().is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # a pipe gets its lines, whatever is drawn on the terminal
    )
    with shown, drawing_on(shown):
        yield shown


@contextmanager
def drawing_on(these: Bars) -> Iterator[None]:
    """Let everything in the block draw on these bars."""
    _OPEN.append(these)
    try:
        yield
    finally:
        _OPEN.remove(these)


def counted(things: Iterable[T], words: str, total: int | None = None) -> Iterator[T]:
    """The same things, with a bar while they are taken; `total` where they have no length.

    >>> list(counted([1, 2], "Counting"))
    [1, 2]
    """
    with bars() as shown:
        if total is None and isinstance(things, Sized):
            total = len(things)
        task = shown.add_task(words, total=total, note="")
        try:
            for thing in things:
                yield thing
                shown.update(task, advance=1)
        finally:
            shown.remove_task(task)


@contextmanager
def doing(words: str) -> Iterator[None]:
    """A bar that moves as long as the block lasts, for what cannot be counted."""
    with bars() as shown:
        task = shown.add_task(words, total=None, note="")
        try:
            yield
        finally:
            shown.remove_task(task)


class Relayed:
    """Bars that another process draws: every change is sent to it, and of many in a short time their sum.

    >>> sent = []
    >>> with drawing_on(Relayed(sent.append)):
    ...     done = list(counted(range(1000), "Counting"))
    >>> [what for what, _, _ in sent if what != "update"]
    ['add', 'remove']
    """

    def __init__(self, send: Callable[[Change], object], pause: float = PAUSE) -> None:
        self.send = send
        self.pause = pause
        self.numbers = itertools.count()
        self.waiting: dict[int, dict[str, Any]] = {}
        self.last: dict[int, float] = {}

    def add_task(self, description: str, *, total: float | None, note: str) -> int:
        """Have a bar added; processes do not share numbers."""
        number = os.getpid() * 2**20 + next(self.numbers)
        self.send(("add", number, {"description": description, "total": total, "note": note}))
        self.waiting[number], self.last[number] = {}, time.monotonic()
        return number

    def update(self, task_id: int, **changes: Any) -> None:
        """Have a bar changed, now or with the next changes."""
        waiting = self.waiting[task_id]
        steps = waiting.get("advance", 0) + changes.get("advance", 0)
        waiting.update(changes, **({"advance": steps} if steps else {}))
        if time.monotonic() - self.last[task_id] >= self.pause:
            self.send(("update", task_id, waiting))
            self.waiting[task_id], self.last[task_id] = {}, time.monotonic()

    def remove_task(self, task_id: int) -> None:
        """Have a bar taken away."""
        del self.waiting[task_id], self.last[task_id]
        self.send(("remove", task_id, {}))


class Drawn:
    """The other end of `Relayed`: draws what it is told of bars in other processes."""

    def __init__(self, shown: Bars) -> None:
        self.shown = shown
        self.tasks: dict[int, Any] = {}

    def __call__(self, change: Change) -> None:
        """Make one change."""
        what, number, details = change
        if what == "add":
            self.tasks[number] = self.shown.add_task(**details)
        elif what == "update":
            self.shown.update(self.tasks[number], **details)
        else:
            self.shown.remove_task(self.tasks.pop(number))
