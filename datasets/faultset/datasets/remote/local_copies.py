"""Datasets behind URLs as local folders: labels and contexts alone, or a whole version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.scratch import scratch
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, table_file
from faultset.datasets.format.manifests import VERSIONS, Manifest
from faultset.datasets.format.versions import list_versions, read_manifest
from faultset.datasets.remote.file_systems import (
    fetch,
    fetch_present,
    is_url,
    local_path,
    remote_manifest,
    remote_versions,
)

LABEL_FILE = table_file("label")


@contextmanager
def opened_labels(location: str, version: str | None = None) -> Iterator[Dataset]:
    """Open a dataset version whose labels and contexts are asked for; of a URL nothing else is copied.

    Parameters
    ----------
    location
        Folder, or any URL that fsspec knows: `s3://`, `gs://`, `az://`, `http://`, `memory://`.
    version
        The newest by default; it must be named where a server cannot list a folder.

    Raises
    ------
    DataError
        There is no such dataset or version, or it is damaged.
    PlatformError
        The URL cannot be read.
    """
    if not is_url(location):
        yield open_dataset(local_path(location), version)
        return
    url = location.rstrip("/")
    manifest, text = remote_manifest(url, version)
    with scratch("labels") as folder:
        dataset = _mirror(Path(folder), manifest, text)
        copy_files(url, dataset, list(dataset.episodes), [CONTEXT_FILE, LABEL_FILE], dataset.root)
        yield dataset


@contextmanager
def local_folder(location: str, version: str | None = None, progress: Progress | None = None) -> Iterator[Path]:
    """Yield a folder with a version of a dataset; of a URL all files that are there are copied, unchecked.

    Parameters
    ----------
    location, version
        As in `opened_labels`.
    progress
        Told how many episodes are copied, and of how many.
    """
    if not is_url(location):
        yield local_path(location)
        return
    url = location.rstrip("/")
    manifest, text = remote_manifest(url, version)
    with scratch("copy") as folder:
        dataset = _mirror(Path(folder), manifest, text)
        steps = StepCounter(len(dataset.episodes), progress)
        for episode, files in dataset.files.items():
            for name, data in fetch_present(f"{url}/{EPISODES}/{episode}", list(files)).items():
                _write(dataset.path(episode) / name, data)
            steps.add()
        yield dataset.root


def manifests(location: str) -> list[Manifest]:
    """Return what the version files of a dataset say, oldest first."""
    if is_url(location):
        url = location.rstrip("/")
        return [remote_manifest(url, version)[0] for version in remote_versions(url)]
    root = local_path(location)
    return [read_manifest(root, version) for version in list_versions(root)]


def copy_files(url: str, dataset: Dataset, episodes: list[str], names: list[str], mirror: Path) -> None:
    """Copy some files of some episodes into a local folder of the same layout, and check them."""
    checksums = {
        f"{episode}/{name}": record.sha256
        for episode in episodes
        for name, record in dataset.files[episode].items()
        if name in names
    }
    for name, data in fetch(f"{url}/{EPISODES}", list(checksums), checksums).items():
        _write(mirror / EPISODES / name, data)


def _mirror(folder: Path, manifest: Manifest, text: bytes) -> Dataset:
    root = folder / "dataset"
    _write(root / VERSIONS / f"{manifest.version}.json", text)
    return Dataset(root, manifest)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
