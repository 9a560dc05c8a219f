"""Fit baselines on training episodes, and cache the fits for later evaluations."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from faultset.core.code_identity import own_digest
from faultset.core.documents import check_type, parse_json
from faultset.core.errors import DataError
from faultset.evaluators.execution.batches import (
    BaselineRun,
    FittedModel,
    ModelKey,
    RunContext,
    check_undamaged,
    collect_needs,
    hide_dataset,
    method_process,
    report_progress,
)
from faultset.evaluators.execution.dataset_source import EpisodeLocation, copy_healthy_references, local_folders
from faultset.evaluators.execution.file_cache import UserCache, read_size_limit, user_cache_folder
from faultset.evaluators.execution.runners.answers import MODEL_BYTES
from faultset.evaluators.execution.runners.messages import EMPTY_BLOB, Blob, FitRequest, TrainingLabel
from faultset.evaluators.execution.runners.runner_process import machine_pool, next_number
from faultset.evaluators.results.provenance import library_versions

FOLDER_VARIABLE, BYTES_VARIABLE = "FAULTSET_FITS", "FAULTSET_FITS_BYTES"
_DEFAULT_LIMIT_BYTES = 2 << 30
_LAYOUT = 1
_HEADER_BYTES = 1 << 12


@dataclass(frozen=True)
class _Header:
    """The first line of a cached fit."""

    layout: int
    sha256: str
    seconds: float


def fits_folder() -> Path:
    """Return the cache folder of fits: `FAULTSET_FITS`, or `faultset/fits` in the user's cache folder."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else user_cache_folder() / "fits"


def fits_limit() -> int:
    """Return the size limit of cached fits from `FAULTSET_FITS_BYTES`; see `read_size_limit`."""
    return read_size_limit(BYTES_VARIABLE, _DEFAULT_LIMIT_BYTES)


class FitCache:
    """The cache of fits; each entry is verified by checksum before it is used.

    Parameters
    ----------
    limit_bytes
        Limit for all files together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._files = UserCache(folder=fits_folder(), suffix=".fit", limit_bytes=limit_bytes)

    def key(self, content: Mapping[str, Any], *, built_in: bool) -> str:
        """Return the key of a fit: a hash of everything it depends on.

        `content`: the method's code, parameters, seed and training data, serialisable as JSON. The code of faultset and
        library versions are added; for a third-party method, the versions of all installed distributions.
        """
        inputs = {**self._environment, **content}
        if not built_in:
            inputs["installed"] = sorted(f"{package.name} {package.version}" for package in metadata.distributions())
        text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _environment(self) -> dict[str, Any]:
        return {"layout": _LAYOUT, "faultset": own_digest(), "libraries": library_versions()}

    def find(self, key: str) -> FittedModel | None:
        """Return a cached fit without unpickling it; None if it is missing."""
        content = self._files.find(key, MODEL_BYTES + _HEADER_BYTES)
        if content is None:
            return None
        first, newline, model = content.partition(b"\n")
        try:
            header = check_type(parse_json(first, key), _Header, key)
        except DataError:
            return None
        blob = Blob.of(model)
        if not newline or header.layout != _LAYOUT or blob.digest != header.sha256 or header.seconds < 0:
            return None
        return FittedModel(status="ok", blob=blob, seconds=header.seconds, is_cached=True)

    def store(self, key: str, model: FittedModel) -> None:
        """Store a successful fit unless it is larger than the cache."""
        if model.status != "ok" or len(model.blob.data) + _HEADER_BYTES > self._files.limit_bytes:
            return
        header = {"layout": _LAYOUT, "sha256": model.blob.digest, "seconds": model.seconds}
        self._files.store(key, json.dumps(header).encode() + b"\n" + model.blob.data)


@dataclass(frozen=True, kw_only=True)
class FitBatch:
    """Baselines to fit on the same training episodes."""

    fold: int
    healthy: tuple[EpisodeLocation, ...]
    """Training episodes without a fault."""
    faulty: tuple[EpisodeLocation, ...]
    """Training episodes with a fault, once per fault, for baselines that need labels or learn from references."""
    labels: tuple[TrainingLabel, ...]
    """Labels of `healthy`, then of `faulty`."""
    runs: tuple[int, ...]
    """Indices of the baseline runs in the context."""
    inner: int | None = None
    """Inner fold, for models that only calibrate thresholds."""

    def __call__(self, context: RunContext) -> dict[ModelKey, FittedModel]:
        """Load cached fits, and compute the others in one process, which reads the training episodes once."""
        cache = FitCache(context.fits_bytes)
        models: dict[ModelKey, FittedModel] = {}
        missing: dict[BaselineRun, str] = {}
        for run in (context.runs[number] for number in self.runs):
            key = self._build_key(run, cache) if context.fits_bytes else ""
            model = cache.find(key) if key and not context.settings.fresh else None
            if model is None:
                missing[run] = key
            else:
                models[run.model(self.fold, self.inner)] = model
                report_progress(1)
        return models | self._fit(missing, cache, context) if missing else models

    def _fit(
        self, chosen: Mapping[BaselineRun, str], cache: FitCache, context: RunContext
    ) -> dict[ModelKey, FittedModel]:
        locations = self.healthy if any(run.learns for run in chosen) else ()
        uses_references = any(run.learns_from_references for run in chosen)
        if uses_references or any("labels" in run.needs for run in chosen):
            locations = (*self.healthy, *self.faulty)
        models = {}
        with ExitStack() as stack:
            folders = stack.enter_context(local_folders(locations, collect_needs(chosen)))
            faulty = tuple(dict.fromkeys(folders[len(self.healthy) :])) if uses_references else ()
            references = stack.enter_context(copy_healthy_references(faulty))
            runner = stack.enter_context(machine_pool().lend(f"fold {self.fold}"))
            for run, key in chosen.items():
                request = self._build_request(run, folders, references, context)
                outcome = runner.run(request, context.settings.limits.for_fit())
                if outcome.status == "error":
                    for folder in folders:
                        check_undamaged(Path(folder))
                model = FittedModel(
                    status=outcome.status,
                    blob=Blob.of(outcome.model) if outcome.status == "ok" else EMPTY_BLOB,
                    reason=outcome.reason,
                    seconds=outcome.seconds,
                )
                if key:
                    cache.store(key, model)
                models[run.model(self.fold, self.inner)] = model
                report_progress(1)
        return models

    def _build_key(self, run: BaselineRun, cache: FitCache) -> str:
        """Return the cache key of a fit; empty if it cannot be cached."""
        labelled = "labels" in run.needs
        locations = (*self.healthy, *(self.faulty if labelled or run.learns_from_references else ()))
        if not run.learns or not run.fit_code or not all(location.content for location in locations):
            return ""
        episodes = [[Path(location.folder).name, location.content] for location in locations]
        inputs = {
            "method": run.fit_code,
            "seed": run.seed,
            "healthy": episodes[: len(self.healthy)],
            "faulty": episodes[len(self.healthy) :],
            "references": run.learns_from_references,
            "labels": self.labels if labelled else (),
        }
        return cache.key(inputs, built_in=run.built_in)

    def _build_request(
        self, run: BaselineRun, folders: tuple[str, ...], references: tuple[str, ...], context: RunContext
    ) -> FitRequest:
        labelled = "labels" in run.needs
        episodes = folders if labelled else folders[: len(self.healthy)] if run.learns else ()
        if run.learns_from_references:
            episodes = (*episodes, *references)
        process = method_process(run, episodes, (*folders, *references), context)
        return FitRequest(
            number=next_number(),
            process=hide_dataset(process, folders) if run.learns_from_references else process,
            spec=run.spec,
            seed=run.seed,
            episodes=episodes,
            labels=self.labels if labelled else (),
        )


def list_cache_use(models: Mapping[ModelKey, FittedModel]) -> list[tuple[str, bool]]:
    """Return the baseline of each fit, and whether it came from the cache."""
    return [(key.baseline, model.is_cached) for key, model in models.items()]
