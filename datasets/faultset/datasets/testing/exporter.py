"""Check an exporter, given only its name."""

from __future__ import annotations

import tempfile
from pathlib import Path

from faultset.core.errors import DataError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import ExportOptions, export_dataset, load_layout, write_episodes
from faultset.datasets.format.file_records import hashes_below


def check_exporter(name: str, dataset: Path | str | None = None) -> None:
    """Check an exporter that is installed under `name`.

    - Every episode is written or left out with a reason.
    - The same data gives the same files.
    - A folder that is not empty is refused and not changed.
    - Nothing is written outside the folder.

    Parameters
    ----------
    name
        Name in the entry-point group `faultset.exporters`.
    dataset
        Dataset with at least one episode that the layout can hold; by default a synthetic one.

    Raises
    ------
    AssertionError
        A check fails; the message describes it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if dataset is None:
            dataset = folder / "dataset"
            write_example_dataset(dataset, episodes=4)
        dataset = Path(dataset)
        _check_result(name, dataset, folder)
        _check_full_folder(name, dataset, folder)
        _check_location(name, dataset, folder)


def _check_result(name: str, dataset: Path, folder: Path) -> None:
    first, second = folder / "first", folder / "second"
    result = export_dataset(name, dataset, first)
    export_dataset(name, dataset, second)
    expected = len(open_dataset(dataset).episodes)
    assert result.episodes + len(result.left_out) == expected, (
        f"{name} must write or leave out each of {expected} episodes, but writes {result.episodes} and leaves out "
        f"{len(result.left_out)}"
    )
    assert all(result.left_out.values()), f"{name} leaves out episodes without a reason"
    files = hashes_below(first)
    assert files, f"{name} writes no files"
    assert files == hashes_below(second), f"{name} writes different files the second time"


def _check_full_folder(name: str, dataset: Path, folder: Path) -> None:
    full = folder / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    try:
        export_dataset(name, dataset, full)
    except DataError:
        assert [path.name for path in full.iterdir()] == ["mine.txt"], (
            f"{name} changes a folder although it refuses to write into it"
        )
        return
    raise AssertionError(f"{name} writes into a folder that is not empty")


def _check_location(name: str, dataset: Path, folder: Path) -> None:
    content, parent = open_dataset(dataset), folder / "parent"
    out = parent / "out"
    out.mkdir(parents=True)
    layout = load_layout(name)(content, ExportOptions(), out)
    before = _list_outside(parent, out)
    write_episodes(layout, [episode for episode in content.episodes if layout.unavailable_reason(episode) is None])
    assert before == _list_outside(parent, out), f"{name} writes outside its folder"


def _list_outside(folder: Path, out: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if out not in path.parents}
