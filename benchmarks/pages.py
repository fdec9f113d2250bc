"""What every benchmark with a page of results does: rows with bounds, a Markdown table, and the command below it."""

import datetime
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from foveate.files import writing
from foveate.metrics.cost import Ratio, machine


class Row(Protocol):
    """A line of a table, which may have a bound."""

    @property
    def what(self) -> str: ...

    @property
    def value(self) -> float: ...

    @property
    def holds(self) -> bool: ...

    @property
    def cells(self) -> Sequence[str]:
        """What stands in the columns."""
        ...


@dataclass(frozen=True)
class RatioRow:
    """A ratio of two times, and what it may be at most."""

    what: str
    measured: Ratio
    bound: float | None = None

    @property
    def value(self) -> float:
        return self.measured.value

    @property
    def holds(self) -> bool:
        return self.bound is None or self.value <= self.bound

    @property
    def cells(self) -> Sequence[str]:
        r = self.measured
        bound = ("–", "–") if self.bound is None else (f"{self.bound}", "yes" if self.holds else "no")
        times = f"{1e3 * r.seconds:.3f}", f"{1e3 * r.reference_seconds:.3f}"
        return [self.what, f"{r.value:.3f}", f"{r.low:.3f} to {r.high:.3f}", *bound, *times, f"{r.pairs}"]


def ratio_columns(first: str, second: str) -> dict[str, str]:
    """The columns of `RatioRow`, and how each is aligned; the names of the two things whose times they are."""
    numbers = {"ratio": "---:", "quartiles": "---:", "at most": "---:", "holds": "---"}
    return {"what": "---", **numbers, f"{first} (ms)": "---:", f"{second} (ms)": "---:", "pairs": "---:"}


def write_page(
    heading: Sequence[str], columns: dict[str, str], rows: Iterable[Row], command: Sequence[str], out: Path | None
) -> int:
    """Measure the rows, say each as it comes, print the page and write it where asked; 1 where a bound is broken."""
    measured = []
    for row in rows:
        print(f"{row.what}: {row.value:.3g}", file=sys.stderr, flush=True)
        measured.append(row)
    table = [columns, columns.values(), *(row.cells for row in measured)]
    lines = [f"|{'|'.join(cells)}|" if cells is table[1] else f"| {' | '.join(cells)} |" for cells in table]
    made = f"{datetime.date.today().isoformat()}, {machine()}: `{' '.join(['python', *command])}`"
    text = "\n".join([*heading, "", *lines, "", made, ""])
    print(text)
    if out:
        with writing(out) as beside:
            beside.write_text(text)
    return 0 if all(row.holds for row in measured) else 1
