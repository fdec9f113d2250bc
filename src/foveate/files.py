"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to that takes the place of `path` when the block ends well, and is gone when it does not.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "new" / "words.txt"
    >>> with writing(path) as beside:
    ...     _ = beside.write_text("whole")
    >>> path.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
