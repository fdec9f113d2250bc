"""Progress over something long: a bar on a terminal, nothing anywhere else."""

from collections.abc import Iterable
from typing import TypeVar, cast

from foveate.extras import require

T = TypeVar("T")


def counted(things: Iterable[T], words: str, total: int | None = None) -> Iterable[T]:
    """The same things, with a bar on standard error while they are taken; `total` where they have no length.

    >>> list(counted([1, 2], "Counting"))
    [1, 2]
    """
    console = require("rich.console").Console(stderr=True)
    if not console.is_terminal:
        return things
    track = require("rich.progress").track
    return cast(Iterable[T], track(things, words, total=total, console=console, transient=True))
