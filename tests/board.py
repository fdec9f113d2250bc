"""Progress bars that remember what was drawn on them."""

from typing import Any


class Board:
    """Bars that remember."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: dict[int, float] = {}
        self.totals: dict[int, Any] = {}

    def add_task(self, description: str, *, total: float | None, note: str) -> int:
        self.said.append(description)
        number = len(self.said)
        self.steps[number], self.totals[number] = 0, total
        return number

    def update(self, task_id: int, **changes: Any) -> None:
        self.steps[task_id] += changes.get("advance", 0)
        self.steps[task_id] = changes.get("completed", self.steps[task_id])

    def remove_task(self, task_id: int) -> None:
        self.totals.pop(task_id)
