import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from foveate.data import BadFiles, BadImage, DataError, class_folder, flat_folder, read_image

RED = (255, 0, 0)


def photo(path: Path, color: tuple[int, int, int] = RED, size: tuple[int, int] = (40, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path, quality=95)
    return path


def noise(path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def truncated(path: Path) -> None:
    whole = noise(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def corrupt(path: Path) -> None:
    """The pixels are broken, but both ends of the file are right: only decoding tells."""
    whole = bytearray(noise(path.with_suffix(".png")).read_bytes())
    whole[200:400] = bytes(200)
    path.write_bytes(whole)


def bomb(path: Path) -> None:
    """A PNG of a hundred bytes that says it has 2.5 billion pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b""))


LEFT_OUT: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty.jpg": (lambda path: path.touch(), "zero bytes"),
    "notes.txt": (lambda path: path.write_text("not an image"), "not an image"),
    "text.jpg": (lambda path: path.write_text("not an image either"), "not an image"),
    "cut.jpg": (truncated, "truncated"),
    "cut.png": (truncated, "truncated"),
    "bomb.png": (bomb, "huge"),
    "wide.png": (lambda path: Image.new("1", (12_000, 8_000)).save(path), "12000 x 8000"),
    "dangling.jpg": (lambda path: path.symlink_to("nowhere.jpg"), "cannot be"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_bad_file_is_left_out_and_named(tmp_path: Path, name: str) -> None:
    photo(tmp_path / "cat" / "good.jpg")
    photo(tmp_path / "dog" / "good.jpg")
    write, reason = LEFT_OUT[name]
    write(tmp_path / "cat" / name)
    with pytest.warns(BadFiles, match=f"(?s)1 bad file left out, 2 images are used.*cat/{name}.*{reason}"):
        images = class_folder(tmp_path)
    assert list(images.problems) == [f"cat/{name}"]
    assert [images[i].name for i in range(len(images))] == ["cat/good.jpg", "dog/good.jpg"]
    with pytest.raises(BadImage, match=reason):
        read_image(tmp_path / "cat" / name)


def gradient() -> np.ndarray:
    return np.linspace(0, 65535, 64 * 48).reshape(48, 64).astype(np.uint16)


def rotated(path: Path) -> None:
    """Stored lying on its side, left half red; EXIF says to turn it."""
    image = Image.new("RGB", (40, 20), RED)
    image.paste((0, 0, 255), (20, 0, 40, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise: what is at the left comes to the top
    image.save(path, exif=exif, quality=95)


def see_through(path: Path) -> None:
    image = Image.new("RGBA", (8, 8), (*RED, 255))
    image.paste((0, 0, 0, 0), (4, 0, 8, 8))
    image.save(path)


def palette_with_hole(path: Path) -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, *RED])
    image.paste(0, (4, 0, 8, 8))
    image.save(path, transparency=0)


# name: how it is written, the size expected, then points (row, column) and the colours expected there
CONVERTED: dict[str, tuple[Callable[[Path], object], tuple[int, int], dict[tuple[int, int], tuple[int, int, int]]]] = {
    "grey.png": (lambda p: Image.new("L", (6, 4), 90).save(p), (4, 6), {(1, 1): (90, 90, 90)}),
    "bilevel.png": (lambda p: Image.new("1", (6, 4), 1).save(p), (4, 6), {(1, 1): (255, 255, 255)}),
    "palette.gif": (lambda p: Image.new("RGB", (6, 4), RED).quantize(8).save(p), (4, 6), {(1, 1): RED}),
    "hole.png": (palette_with_hole, (8, 8), {(2, 1): RED, (2, 6): (255, 255, 255)}),
    "alpha.png": (see_through, (8, 8), {(2, 1): RED, (2, 6): (255, 255, 255)}),
    "alpha.webp": (see_through, (8, 8), {(2, 6): (255, 255, 255)}),
    "ink.jpg": (lambda p: Image.new("CMYK", (6, 4), (0, 255, 255, 0)).save(p), (4, 6), {(1, 1): RED}),
    "deep.png": (lambda p: Image.fromarray(gradient()).save(p), (48, 64), {(0, 0): (0, 0, 0), (47, 63): (255,) * 3}),
    "turned.jpg": (rotated, (40, 20), {(5, 10): RED, (35, 10): (0, 0, 255)}),
    "photo.unusual": (lambda p: Image.new("RGB", (6, 4), RED).save(p, "PNG"), (4, 6), {(1, 1): RED}),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_an_unusual_file_becomes_what_a_person_sees(tmp_path: Path, name: str) -> None:
    write, size, colors = CONVERTED[name]
    write(tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = flat_folder(tmp_path)
        image = images[0].image
    assert image.dtype == torch.uint8
    assert image.shape == (3, *size)
    for (row, column), color in colors.items():
        assert (image[:, row, column].int() - torch.tensor(color)).abs().max() <= 4


def test_sixteen_bits_keep_their_shades(tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "deep.png")
    assert np.array_equal(read_image(tmp_path / "deep.png")[0].numpy(), gradient() // 256)


def test_bytes_behind_a_whole_image_do_no_harm(tmp_path: Path) -> None:
    path = photo(tmp_path / "a.jpg")
    path.write_bytes(path.read_bytes() + bytes(500))
    assert not flat_folder(tmp_path).problems


def test_a_file_that_turns_bad_is_replaced_by_one_of_its_class_and_named_once(tmp_path: Path) -> None:
    for name in ("a", "c", "d"):
        photo(tmp_path / "cat" / f"{name}.png")
    corrupt(tmp_path / "cat" / "b.png")
    photo(tmp_path / "dog" / "a.png", (0, 0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = class_folder(tmp_path)  # the header is right, so nothing is known yet
    (tmp_path / "cat" / "c.png").unlink()
    with pytest.warns(BadFiles) as said:
        items = [images[1], images[1]]
    assert [(item.name, item.label) for item in items] == [("cat/d.png", 0)] * 2
    assert [str(w.message).split()[0] for w in said] == ["cat/b.png", "cat/c.png"]
    assert set(images.problems) == {"cat/b.png", "cat/c.png"}


def test_a_run_over_a_folder_with_bad_files_goes_to_its_end(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(3):
            photo(tmp_path / name / f"{i}.png")
        corrupt(tmp_path / name / "bad.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadFiles)
        batches = list(DataLoader(class_folder(tmp_path), batch_size=4, num_workers=2))
    assert torch.cat([batch.label for batch in batches]).tolist() == [0] * 4 + [1] * 4


def test_a_class_without_a_readable_image_left_says_so(tmp_path: Path) -> None:
    photo(tmp_path / "cat" / "a.png")
    photo(tmp_path / "dog" / "a.png")
    images = class_folder(tmp_path)
    (tmp_path / "cat" / "a.png").unlink()
    with pytest.warns(BadFiles), pytest.raises(DataError, match="no readable image of class 'cat' is left"):
        images[0]


def test_classes_are_sub_folders_at_any_depth_and_hidden_files_are_nothing(tmp_path: Path) -> None:
    photo(tmp_path / "dog" / "deep" / "down" / "a.jpg")
    photo(tmp_path / "cat" / "b.jpg")
    photo(tmp_path / "cat" / ".hidden.jpg")
    (tmp_path / "cat" / "Thumbs.db").write_text("")
    (tmp_path / ".git").mkdir()
    images = class_folder(tmp_path)
    assert images.classes == ("cat", "dog")
    assert [(images[i].name, images[i].label) for i in range(2)] == [("cat/b.jpg", 0), ("dog/deep/down/a.jpg", 1)]
    assert images.problems == {}


def test_given_classes_give_the_labels(tmp_path: Path) -> None:
    photo(tmp_path / "dog" / "a.jpg")
    photo(tmp_path / "cat" / "a.jpg")
    assert class_folder(tmp_path, ["dog", "cow", "cat"]).labels == [0, 2]
    with pytest.raises(DataError, match="classes that training does not have: cat"):
        class_folder(tmp_path, ["dog", "cow"])


def test_flat_folders_and_files_have_no_labels(tmp_path: Path) -> None:
    first, second = photo(tmp_path / "a" / "1.jpg"), photo(tmp_path / "2.jpg")
    assert sorted(flat_folder(tmp_path)[i].name for i in range(2)) == ["2.jpg", "a/1.jpg"]
    images = flat_folder([second, first.parent])
    assert [images[i].name for i in range(2)] == [str(second), str(first)]
    assert images.labels == [-1, -1]
    assert images.classes == ()


def test_a_folder_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        class_folder(tmp_path / "none")
    with pytest.raises(DataError, match="is empty"):
        class_folder(tmp_path)
    with pytest.raises(DataError, match="no readable image in"):
        flat_folder(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        flat_folder([tmp_path / "none.jpg"])
    photo(tmp_path / "a.jpg")
    with pytest.raises(DataError, match="no sub-folders; expected one for each class"):
        class_folder(tmp_path)
    with pytest.raises(DataError, match="is a file"):
        class_folder(tmp_path / "a.jpg")
    photo(tmp_path / "cat" / "a.jpg")
    with pytest.raises(DataError, match="one class only, 'cat'"):
        class_folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="no readable image in the sub-folder 'dog'"):
        class_folder(tmp_path)
