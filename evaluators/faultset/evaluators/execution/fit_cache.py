"""Fits that earlier evaluations have made, kept as bytes that nobody but the method's own process opens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from faultset.core.code_identity import own_digest
from faultset.core.errors import DataError
from faultset.core.reading.documents import checked, parse_json
from faultset.evaluators.execution.baseline_runs import FittedModel
from faultset.evaluators.execution.runners.messages import Blob
from faultset.evaluators.execution.runners.replies import MODEL_BYTES
from faultset.evaluators.execution.user_cache import UserCache, size_limit_from, user_cache_folder
from faultset.evaluators.results.provenance import library_versions

FOLDER_VARIABLE, BYTES_VARIABLE = "FAULTSET_FITS", "FAULTSET_FITS_BYTES"
_LIMIT_BYTES = 2 << 30
_LAYOUT = 1
_HEADER_BYTES = 1 << 12


@dataclass(frozen=True)
class _Header:
    """The first line of a kept fit."""

    layout: int
    sha256: str
    seconds: float


def fits_folder() -> Path:
    """Return where fits are kept: `FAULTSET_FITS`, or `faultset/fits` in the user's folder for caches."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else user_cache_folder() / "fits"


def fits_limit() -> int:
    """Return how many bytes kept fits may take, from `FAULTSET_FITS_BYTES`; see `size_limit_from`."""
    return size_limit_from(BYTES_VARIABLE, _LIMIT_BYTES)


class FitCache:
    """The folder of kept fits, of which none is believed that is not as it was left.

    Parameters
    ----------
    limit_bytes
        What all files may take together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._files = UserCache(folder=fits_folder(), suffix=".fit", limit_bytes=limit_bytes)

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
        content = self._files.find(key, MODEL_BYTES + _HEADER_BYTES)
        if content is None:
            return None
        first, found, model = content.partition(b"\n")
        try:
            header = checked(parse_json(first, key), _Header, key)
        except DataError:
            return None
        blob = Blob.of(model)
        if not found or header.layout != _LAYOUT or blob.digest != header.sha256 or header.seconds < 0:
            return None
        return FittedModel(status="ok", blob=blob, seconds=header.seconds, used_again=True)

    def keep(self, key: str, model: FittedModel) -> None:
        """Keep a fit for later evaluations; one that finds no room is not kept."""
        if model.status != "ok" or len(model.blob.data) + _HEADER_BYTES > self._files.limit_bytes:
            return
        header = {"layout": _LAYOUT, "sha256": model.blob.digest, "seconds": model.seconds}
        self._files.keep(key, json.dumps(header).encode() + b"\n" + model.blob.data)
