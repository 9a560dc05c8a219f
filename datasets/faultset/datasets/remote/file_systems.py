"""Read datasets from the file systems that fsspec supports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, PlatformError, suggest
from faultset.core.output import Progress, StepCounter
from faultset.core.processes import scratch
from faultset.datasets.dataset import Dataset, dataset_folder, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, table_file
from faultset.datasets.format.recordings import CHUNK_FILE, RECORDINGS
from faultset.datasets.format.version_files import VERSIONS, VersionFile
from faultset.datasets.format.versions import list_versions, read_version, sorted_versions


def is_url(location: str) -> bool:
    """Return whether a location is a URL of a remote machine."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme not in ("file", "local")


def local_path(location: str) -> Path:
    """Return the local folder for a path, a local URL, or the name of a dataset in the project."""
    return dataset_folder(location.removeprefix("file://").removeprefix("local://"))


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it; raise PlatformError if there is none."""
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        scheme = url.partition("://")[0]
        raise PlatformError(
            f"{url} cannot be opened ({error}); install the fsspec package for {scheme}://, such as s3fs or gcsfs, "
            "and give its credentials in the environment"
        ) from error
    return system, path.rstrip("/")


def fetch(url: str, names: Sequence[str], checksums: Mapping[str, str]) -> dict[str, bytes]:
    """Read files below a URL concurrently; raise DataError if one differs from its checksum."""
    content = _read(url, names, on_error="raise")
    damaged = [name for name, data in content.items() if hashlib.sha256(data).hexdigest() != checksums[name]]
    if damaged:
        raise DataError(
            f"{len(damaged)} of {len(names)} files below {url} differ from their checksum (first: {min(damaged)}); "
            "restore them, or open another version"
        )
    return content


def fetch_present(url: str, names: Sequence[str]) -> dict[str, bytes]:
    """Read the existing files below a URL concurrently, without verification."""
    return {name: data for name, data in _read(url, names, on_error="return").items() if isinstance(data, bytes)}


def list_remote_versions(url: str) -> list[str]:
    """Return the versions of a dataset at a URL, oldest first; raise DataError if there are none."""
    versions = list_existing_versions(url)
    if not versions:
        raise DataError(f"{url} has no versions: it is not a dataset, or the server cannot list it; try --version")
    return versions


def list_existing_versions(url: str) -> list[str]:
    """Return the versions at a URL, oldest first, or an empty list; raise PlatformError if it cannot be listed."""
    system, root = filesystem(url)
    try:
        system.invalidate_cache()
        names = [str(entry).rpartition("/")[2] for entry in system.ls(f"{root}/{VERSIONS}", detail=False)]
    except FileNotFoundError:
        return []
    except Exception as error:
        # File systems raise the errors of their libraries.
        raise PlatformError(
            f"{url} cannot be listed ({describe_error(error)}); check the address and its permissions, "
            "or name the version with --version"
        ) from error
    return sorted_versions(name.removesuffix(".json") for name in names if name.endswith(".json"))


def read_remote_version(url: str, version: str | None) -> tuple[VersionFile, bytes]:
    """Return a version file at a URL, parsed and as bytes; by default the newest, which requires that the server lists
    folders."""
    name = version or list_remote_versions(url)[-1]
    text = fetch_version_file(url, name)
    if text is None:
        raise DataError(f'dataset {url} has no version "{name}"; {suggest(name, list_remote_versions(url))}')
    return VersionFile.from_json(text, origin=f"{url}/{VERSIONS}/{name}.json"), text


def fetch_version_file(url: str, version: str) -> bytes | None:
    """Return the text of a version file at a URL, or None if it is missing."""
    system, root = filesystem(url)
    try:
        return system.cat_file(f"{root}/{VERSIONS}/{version}.json")
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _build_read_error(url, error) from error


def _read(url: str, names: Sequence[str], on_error: str) -> dict[str, Any]:
    system, root = filesystem(url)
    paths = {f"{root}/{name}": name for name in names}
    try:
        content = system.cat(list(paths), on_error=on_error)
    except Exception as error:
        raise _build_read_error(url, error) from error
    for problem in content.values():
        if isinstance(problem, Exception) and not isinstance(problem, FileNotFoundError):
            raise _build_read_error(url, problem) from problem
    # Some file systems add a leading slash or the scheme to paths.
    return {_find_name(path, paths): data for path, data in content.items()}


def _find_name(path: str, names: Mapping[str, str]) -> str:
    if path in names:
        return names[path]
    return next(name for suffix, name in names.items() if path.endswith(suffix.lstrip("/")))


def _build_read_error(url: str, error: Exception) -> PlatformError:
    return PlatformError(f"{url} cannot be read ({describe_error(error)}); check the address and its permissions")


def describe_error(error: Exception) -> str:
    """Return the class and the start of the text of an error."""
    return f"{type(error).__name__}: {str(error)[:200]}"


LABEL_FILE = table_file("label")
_DESCRIPTIONS = (CONTEXT_FILE, CHUNK_FILE)


@contextmanager
def open_labels(location: str, version: str | None = None) -> Iterator[Dataset]:
    """Open the labels and contexts of a dataset version; from a URL, no other files are copied.

    Parameters
    ----------
    location
        Folder, or any URL that fsspec supports: `s3://`, `gs://`, `az://`, `http://`, `memory://`.
    version
        Name of the version; the newest by default. Required if the server cannot list a folder.

    Raises
    ------
    DataError
        The dataset or version does not exist or is damaged.
    PlatformError
        The URL cannot be read.
    """
    if not is_url(location):
        yield open_dataset(local_path(location), version)
        return
    url = location.rstrip("/")
    version_file, text = read_remote_version(url, version)
    with scratch("labels") as folder:
        dataset = _mirror(Path(folder), version_file, text)
        copy_files(url, dataset, list(dataset.episodes), [CONTEXT_FILE, LABEL_FILE], dataset.root)
        for recording, files in dataset.recording_files.items():
            names = [name for name in files if name.endswith(_DESCRIPTIONS) or "/truth/" in name]
            for name, data in fetch_present(f"{url}/{RECORDINGS}/{recording}", names).items():
                _write(dataset.root / RECORDINGS / recording / name, data)
        yield dataset


@contextmanager
def local_folder(location: str, version: str | None = None, progress: Progress | None = None) -> Iterator[Path]:
    """Yield a folder with a version of a dataset; from a URL, existing files are copied without verification.

    Parameters
    ----------
    location, version
        As in `open_labels`.
    progress
        Called with the number of copied episodes and the total.
    """
    if not is_url(location):
        yield local_path(location)
        return
    with scratch("copy") as folder:
        yield copy_version(location, version, Path(folder), progress)


def copy_version(url: str, version: str | None, folder: Path, progress: Progress | None = None) -> Path:
    """Copy the existing files of a dataset version at a URL below a folder, without verification; return the copy."""
    url = url.rstrip("/")
    version_file, text = read_remote_version(url, version)
    dataset = _mirror(folder, version_file, text, name=url.rpartition("/")[2])
    units = version_file.units()
    steps = StepCounter(len(units), progress)
    for unit, files in units.items():
        for name, data in fetch_present(f"{url}/{unit}", list(files)).items():
            _write(dataset.root / unit / name, data)
        steps.add()
    return dataset.root


def list_version_files(location: str) -> list[VersionFile]:
    """Return the version files of a dataset, oldest first."""
    if is_url(location):
        url = location.rstrip("/")
        return [read_remote_version(url, version)[0] for version in list_remote_versions(url)]
    root = local_path(location)
    return [read_version(root, version) for version in list_versions(root)]


def copy_files(url: str, dataset: Dataset, episodes: list[str], names: list[str], mirror: Path) -> None:
    """Copy files of episodes into a local folder with the same layout and verify them."""
    checksums = {
        f"{episode}/{name}": record.sha256
        for episode in episodes
        for name, record in dataset.files[episode].items()
        if name in names
    }
    for name, data in fetch(f"{url}/{EPISODES}", list(checksums), checksums).items():
        _write(mirror / EPISODES / name, data)


def _mirror(folder: Path, version_file: VersionFile, text: bytes, name: str = "dataset") -> Dataset:
    root = folder / name
    _write(root / VERSIONS / f"{version_file.version}.json", text)
    return Dataset(root, version_file)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
