"""File systems of fsspec: which one a URL means, reading many files at once, and the versions of a dataset there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, PlatformError
from faultset.core.suggestions import suggest
from faultset.datasets.format.manifests import VERSIONS, Manifest
from faultset.datasets.format.versions import sorted_versions
from faultset.datasets.shipped import dataset_folder


def is_url(location: str) -> bool:
    """Whether a dataset is named by a URL that is no local file."""
    scheme, found, _ = location.partition("://")
    return bool(found) and scheme not in ("file", "local")


def local_path(location: str) -> Path:
    """Return the folder that a location names: a path, a URL of this machine, or a dataset of the project."""
    return dataset_folder(location.removeprefix("file://").removeprefix("local://"))


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it; say what is missing where there is none."""
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
    """Read files below a URL, several at once, and compare them with their checksums.

    Raises
    ------
    DataError
        A file differs from its checksum.
    PlatformError
        A file cannot be read.
    """
    content = _read(url, names, on_error="raise")
    wrong = [name for name, data in content.items() if hashlib.sha256(data).hexdigest() != checksums[name]]
    if wrong:
        raise DataError(
            f"{len(wrong)} of {len(names)} files below {url} differ from their checksum (first: {min(wrong)}); "
            "restore them, or open another version"
        )
    return content


def fetch_present(url: str, names: Sequence[str]) -> dict[str, bytes]:
    """Read those files below a URL that are there, several at once, as they are."""
    return {name: data for name, data in _read(url, names, on_error="return").items() if isinstance(data, bytes)}


def remote_versions(url: str) -> list[str]:
    """Return the versions of a dataset behind a URL, oldest first.

    Raises
    ------
    DataError
        There are none.
    PlatformError
        The place cannot be listed.
    """
    found = listed_versions(url)
    if not found:
        raise DataError(f"{url} has no versions: it is not a dataset, or the server cannot list it; try --version")
    return found


def listed_versions(url: str) -> list[str]:
    """Return the versions whose files are listed at a URL, oldest first; raise PlatformError where none can be."""
    system, root = filesystem(url)
    try:
        system.invalidate_cache()
        names = [str(entry).rpartition("/")[2] for entry in system.ls(f"{root}/{VERSIONS}", detail=False)]
    except FileNotFoundError:
        return []
    except Exception as error:
        # each file system raises what its library raises
        raise PlatformError(
            f"{url} cannot be listed ({_reason(error)}); check the address and who may read it, or name the version "
            "with --version"
        ) from error
    return sorted_versions(name.removesuffix(".json") for name in names if name.endswith(".json"))


def remote_manifest(url: str, version: str | None) -> tuple[Manifest, bytes]:
    """Return a version file behind a URL, and its text; the newest by default, where the server can list a folder."""
    chosen = version or remote_versions(url)[-1]
    text = version_file(url, chosen)
    if text is None:
        raise DataError(f'dataset {url} has no version "{chosen}"; {suggest(chosen, remote_versions(url))}')
    return Manifest.from_json(text, origin=f"{url}/{VERSIONS}/{chosen}.json"), text


def version_file(url: str, version: str) -> bytes | None:
    """Return the text of a version file behind a URL; None where there is none."""
    system, root = filesystem(url)
    try:
        return system.cat_file(f"{root}/{VERSIONS}/{version}.json")
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _unreadable(url, error) from error


def _read(url: str, names: Sequence[str], on_error: str) -> dict[str, Any]:
    system, root = filesystem(url)
    paths = {f"{root}/{name}": name for name in names}
    try:
        found = system.cat(list(paths), on_error=on_error)
    except Exception as error:
        raise _unreadable(url, error) from error
    for problem in found.values():
        if isinstance(problem, Exception) and not isinstance(problem, FileNotFoundError):
            raise _unreadable(url, problem) from problem
    # file systems differ in whether they give a leading slash or the scheme back
    return {_matching(path, paths): data for path, data in found.items()}


def _matching(path: str, paths: Mapping[str, str]) -> str:
    if path in paths:
        return paths[path]
    return next(name for known, name in paths.items() if path.endswith(known.lstrip("/")))


def _unreadable(url: str, error: Exception) -> PlatformError:
    return PlatformError(f"{url} cannot be read ({_reason(error)}); check the address and who may read it")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
