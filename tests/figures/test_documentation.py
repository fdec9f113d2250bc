import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"


def test_the_snippets_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec("\n".join(snippets), {})
    written = set(re.findall(r'"([\w.]+\.(?:png|svg|html))"', "".join(snippets)))
    assert {path.name for path in tmp_path.iterdir()} == written
    assert len(written) == 11
