import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from idx import write_idx
from PIL import Image

from foveate.data import NAMES, DataError, MissingData, Scenes, data_root, open_dataset, open_split


def class_folders(root: Path, count: int = 5, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    for name in classes:
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (8, 8), (i, 0, 0)).save(root / name / f"{i}.png")
    return root


def pets(root: Path, lists: dict[str, list[int]]) -> Path:
    """Two breeds in the layout of torchvision: each list has the numbers of its images."""
    base = root / "oxford-iiit-pet"
    (base / "annotations" / "trimaps").mkdir(parents=True)
    (base / "images").mkdir()
    for name, numbers in lists.items():
        rows = []
        for label, breed in enumerate(["Abyssinian", "shiba_inu"], start=1):
            for number in numbers:
                Image.new("RGB", (6, 4), (number, 0, 0)).save(base / "images" / f"{breed}_{number}.jpg")
                trimap = np.full((4, 6), 2, dtype=np.uint8)
                trimap[1, 1:4] = (3, 1, 3)
                Image.fromarray(trimap).save(base / "annotations" / "trimaps" / f"{breed}_{number}.png")
                rows.append(f"{breed}_{number} {label} 1 1")
        (base / "annotations" / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return root


def names(items: object) -> list[str]:
    return [items[i].name for i in range(len(items))]  # type: ignore[index, arg-type]


def test_scenes_have_parts_that_share_nothing() -> None:
    train, test = open_dataset("scenes", count=20, size=16), open_dataset("scenes", "test", count=10, size=16)
    assert isinstance(train, Scenes)
    assert not set(names(train)) & set(names(test))
    assert len(open_dataset("scenes", "all", count=10)) == 20
    other = open_dataset("scenes", count=20, size=16, seed=1)
    assert not set(names(other)) & set(names(train) + names(test))


def test_a_folder_with_a_split_of_its_own(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", 5)
    class_folders(tmp_path / "val", 2, ("dog",))
    train, test = open_split(tmp_path)
    assert train.classes == test.classes == ("cat", "dog")
    assert (len(train), test.labels) == (10, [1, 1])
    assert len(open_dataset(str(tmp_path), "all")) == 12


def test_a_folder_without_a_split_is_split_by_class(tmp_path: Path) -> None:
    class_folders(tmp_path, 10)
    train, test = open_split(tmp_path)
    assert (train.labels, test.labels) == ([0] * 8 + [1] * 8, [0] * 2 + [1] * 2)
    assert set(names(train)) | set(names(test)) == set(names(open_dataset(tmp_path, "all")))
    train, test = open_split(tmp_path, 0.6, seed=4)
    assert (len(train), len(test)) == (12, 8)
    assert not set(names(train)) & set(names(test))


def test_a_folder_for_training_alone_is_an_error(tmp_path: Path) -> None:
    class_folders(tmp_path / "train")
    with pytest.raises(DataError, match="none for testing; expected one of test, val"):
        open_dataset(tmp_path, "test")


def test_pets_with_one_list_are_split_by_ratio(tmp_path: Path) -> None:
    pets(tmp_path, {"trainval": list(range(10))})
    train, test = open_split("oxford-iiit-pet", root=tmp_path)
    assert (len(train), len(test)) == (16, 4)
    assert train.classes == ("Abyssinian", "shiba inu")
    assert not set(names(train)) & set(names(test))
    assert len(open_dataset("oxford-iiit-pet", "all", root=tmp_path)) == 20


def test_pets_with_both_lists_are_split_by_them(tmp_path: Path) -> None:
    pets(tmp_path, {"trainval": [1, 2, 3], "test": [4]})
    test = open_dataset("oxford-iiit-pet", "test", root=tmp_path)
    assert names(test) == ["Abyssinian_4.jpg", "shiba_inu_4.jpg"]
    assert len(open_dataset("oxford-iiit-pet", "train", root=tmp_path)) == 6
    assert len(open_dataset("oxford-iiit-pet", "all", root=tmp_path)) == 8


def test_trimaps_become_masks_only_when_asked_and_their_border_is_animal_unless_told(tmp_path: Path) -> None:
    pets(tmp_path, {"trainval": [1, 2]})
    assert "mask" not in open_dataset("oxford-iiit-pet", root=tmp_path)[0]
    for border, count in ((True, 3), (False, 1)):
        mask = open_dataset("oxford-iiit-pet", root=tmp_path, masks=True, border=border)[0].mask
        assert (mask.shape, mask.dtype, int(mask.sum())) == ((1, 4, 6), torch.bool, count)
        assert mask[0, 1, 2]


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_grey_sets_of_torchvision_become_coloured_items(tmp_path: Path, name: str, folder: str) -> None:
    for part, count in (("train", 4), ("t10k", 2)):
        pixels = np.arange(count, dtype=np.uint8)[:, None, None] * np.full((1, 28, 28), 10, dtype=np.uint8)
        write_idx(tmp_path / folder / "raw" / f"{part}-images-idx3-ubyte", pixels)
        write_idx(tmp_path / folder / "raw" / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8))
    train, test = open_split(name, root=tmp_path)
    assert (len(train), len(test), len(train.classes)) == (4, 2, 10)
    item = train[3]
    assert (item.image.shape, item.image.dtype, item.label) == ((3, 28, 28), torch.uint8, 3)
    assert (item.image == 30).all()
    assert open_dataset(name, "all", root=tmp_path).labels == [0, 1, 2, 3, 0, 1]


def test_svhn_has_the_digits_as_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    pixels = np.zeros((32, 32, 3, 3), dtype=np.uint8)
    pixels[0, 1, 2, 1] = 200
    scipy_io.savemat(tmp_path / "test_32x32.mat", {"X": pixels, "y": np.array([[1], [10], [5]])})
    monkeypatch.setattr("torchvision.datasets.svhn.check_integrity", lambda *_: True)  # it is not the real file
    test = open_dataset("svhn", "test", root=tmp_path)
    assert (test.labels, test.classes) == ([1, 0, 5], tuple("0123456789"))
    assert test[1].image[:, 0, 1].tolist() == [0, 0, 200]


def test_cifar_is_found_as_class_folders(tmp_path: Path) -> None:
    class_folders(tmp_path / "cifar10" / "train", 3)
    class_folders(tmp_path / "cifar10" / "test", 2)
    train, test = open_split("cifar10", root=tmp_path)
    assert (len(train), len(test), train.classes) == (6, 4, ("cat", "dog"))


def test_cifar_keeps_a_fifth_of_each_class_for_validation(tmp_path: Path) -> None:
    class_folders(tmp_path / "cifar10" / "train", 5)
    class_folders(tmp_path / "cifar10" / "test", 2)
    train, val = open_split("cifar10-40k", root=tmp_path)
    assert (train.labels, val.labels) == ([0] * 4 + [1] * 4, [0, 1])
    assert set(names(train)) | set(names(val)) == set(names(open_dataset("cifar10", root=tmp_path)))
    assert len(open_dataset("cifar10-40k", "test", root=tmp_path)) == 4
    assert len(open_dataset("cifar10-40k", "all", root=tmp_path)) == 14


def test_pcam_is_read_from_its_files(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "pcam").mkdir()
    for part, count in (("train", 3), ("valid", 2), ("test", 1)):
        pixels = np.zeros((count, 96, 96, 3), dtype=np.uint8)
        pixels[-1, 5, 7] = (1, 2, 3)
        for kind, values in (("x", pixels), ("y", np.arange(count).reshape(-1, 1, 1, 1) % 2)):
            with h5py.File(tmp_path / "pcam" / f"camelyonpatch_level_2_split_{part}_{kind}.h5", "w") as file:
                file[kind] = values
    train, val = open_split("pcam", root=tmp_path)
    assert (train.labels, val.labels, open_dataset("pcam", "test", root=tmp_path).labels) == ([0, 1, 0], [0, 1], [0])
    assert (train[2].image.shape, train[2].image[:, 5, 7].tolist()) == ((3, 96, 96), [1, 2, 3])
    assert int(train[0].image.sum()) == 0
    again = pickle.loads(pickle.dumps(train))  # as workers are sent it, an open file notwithstanding
    assert torch.equal(again[2].image, train[2].image)


def test_only_some_have_a_validation_part() -> None:
    with pytest.raises(DataError, match=r"only rot-mnist, .* have a validation part"):
        open_dataset("scenes", "val")


def test_the_root_is_the_argument_or_the_environment_or_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root("elsewhere") == Path("elsewhere")
    pets(tmp_path, {"trainval": [1, 2]})
    assert len(open_dataset("oxford-iiit-pet", "all")) == 4
    monkeypatch.delenv("FOVEATE_DATA")
    assert data_root() == Path.home() / ".cache" / "foveate"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("scenes", "cub-200-2011")])
def test_a_missing_data_set_says_how_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        MissingData, match=f"(?s){name.removesuffix('-40k')} is not in .*download=True.*FOVEATE_DATA.*put there: .*"
    ):
        open_dataset(name, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.OxfordIIITPet.__init__", fail)
    with pytest.raises(MissingData, match="could not be downloaded: no route to host"):
        open_dataset("oxford-iiit-pet", root=tmp_path, download=True)


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        open_dataset("cifar_10")
    with pytest.raises(DataError, match="split must be"):
        open_dataset("scenes", "validate")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="mnist has no option 'size'"):
        open_dataset("mnist", size=3)


@pytest.mark.slow
def test_the_real_pets() -> None:
    try:
        whole = open_dataset("oxford-iiit-pet", "all", masks=True)
    except MissingData as missing:
        pytest.skip(str(missing))
    assert len(whole.classes) == 37
    shares = [whole[i].mask.float().mean().item() for i in range(0, len(whole), 100)]
    assert 0.3 < np.mean(shares) < 0.6
