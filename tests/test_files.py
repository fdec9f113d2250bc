import pytest

from foveate.files import writing


def test_a_file_is_there_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), writing(path) as beside:  # noqa: PT012
        beside.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    with writing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
