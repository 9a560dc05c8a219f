"""Fits that earlier evaluations have made, kept as bytes that nobody but the method's own process opens."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from faultset.core.code.identity import own_digest
from faultset.core.errors import DataError, UsageError
from faultset.core.files import replacing
from faultset.core.reading.documents import checked, parse_json
from faultset.core.reading.regular_files import read_regular
from faultset.evaluators.execution.baseline_runs import FittedModel
from faultset.evaluators.execution.runners.messages import Blob
from faultset.evaluators.execution.runners.replies import MODEL_BYTES
from faultset.evaluators.results.provenance import library_versions

FOLDER_VARIABLE, BYTES_VARIABLE = "FAULTSET_FITS", "FAULTSET_FITS_BYTES"
_LIMIT_BYTES = 2 << 30
_LAYOUT = 1
_HEADER_BYTES = 1 << 12
_SUFFIX = ".fit"


@dataclass(frozen=True)
class _Header:
    """The first line of a kept fit."""

    layout: int
    sha256: str
    seconds: float


def fits_folder() -> Path:
    """Return where fits are kept: `FAULTSET_FITS`, or `faultset/fits` in the user's folder for caches."""
    named = os.environ.get(FOLDER_VARIABLE)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(caches) / "faultset" / "fits"


def fits_limit() -> int:
    """Return how many bytes kept fits may take, from `FAULTSET_FITS_BYTES`; 0 where none are to be kept.

    Raises
    ------
    UsageError
        The variable is set to something else than a number of bytes.
    """
    text = os.environ.get(BYTES_VARIABLE, str(_LIMIT_BYTES))
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{BYTES_VARIABLE} is {text!r}, wanted is a number of bytes; give 0 to keep no fits")
    return int(text)


class FitCache:
    """The folder of kept fits; whatever is wrong with it or with a file in it means that there is no fit.

    Parameters
    ----------
    limit_bytes
        What all files may take together; those that were not used for longest are removed first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes

    def key(self, content: Mapping[str, Any], *, built_in: bool) -> str:
        """Return the name of a fit: a hash of everything that it can depend on.

        Parameters
        ----------
        content
            The method's code and parameters, its seed, and what it is fitted on, as JSON can hold it. To this come the
            code of faultset and the versions of libraries; for a method of another distribution those of all that is
            installed.
        """
        about = {**self._installed, **content}
        if not built_in:
            about["installed"] = sorted(f"{one.name} {one.version}" for one in metadata.distributions())
        text = json.dumps(about, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _installed(self) -> dict[str, Any]:
        return {"layout": _LAYOUT, "faultset": own_digest(), "libraries": library_versions()}

    def find(self, key: str) -> FittedModel | None:
        """Return the fit of a key as it was made; None where there is none. Its bytes are not looked into."""
        folder = fits_folder()
        path = folder / f"{key}{_SUFFIX}"
        try:
            if not self._limit_bytes or not _is_private(folder):
                return None
            first, found, model = read_regular(path, limit_bytes=MODEL_BYTES + _HEADER_BYTES).partition(b"\n")
            header = checked(parse_json(first, str(path)), _Header, str(path))
        except (DataError, OSError):
            return None
        blob = Blob.of(model)
        if not found or header.layout != _LAYOUT or blob.digest != header.sha256 or header.seconds < 0:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return FittedModel(status="ok", blob=blob, seconds=header.seconds, used_again=True)

    def keep(self, key: str, model: FittedModel) -> None:
        """Keep a fit for later evaluations; one that finds no room is not kept."""
        if model.status != "ok" or len(model.blob.data) + _HEADER_BYTES > self._limit_bytes:
            return
        folder = fits_folder()
        header = {"layout": _LAYOUT, "sha256": model.blob.digest, "seconds": model.seconds}
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(folder):
                return
            with replacing(folder / f"{key}{_SUFFIX}", durable=False) as temporary:
                temporary.write_bytes(json.dumps(header).encode() + b"\n" + model.blob.data)
                temporary.chmod(0o600)
            self._shrink(folder)

    def _shrink(self, folder: Path) -> None:
        kept = [(path.stat(), path) for path in folder.glob(f"*{_SUFFIX}")]
        total = sum(state.st_size for state, _ in kept)
        for state, path in sorted(kept, key=lambda one: (one[0].st_mtime_ns, one[1].name)):
            if total <= self._limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= state.st_size


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user can have put files into a folder."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022
