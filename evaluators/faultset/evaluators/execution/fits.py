"""Fits: several baselines on the same training episodes, and those that earlier evaluations have made."""

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
from faultset.evaluators.execution.batches import (
    BaselineRun,
    FittedModel,
    ModelKey,
    RunContext,
    hiding_dataset,
    method_process,
    needs_of,
    refuse_damage,
    report_progress,
)
from faultset.evaluators.execution.cut_episodes import healthy_references
from faultset.evaluators.execution.dataset_source import EpisodeLocation, local_folders
from faultset.evaluators.execution.file_cache import UserCache, size_limit_from, user_cache_folder
from faultset.evaluators.execution.runners.messages import EMPTY_BLOB, MODEL_BYTES, Blob, FitRequest, TrainingLabel
from faultset.evaluators.execution.runners.runner_process import machine_pool, next_number
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


@dataclass(frozen=True, kw_only=True)
class FitBatch:
    """Baselines to fit on the same training episodes."""

    fold: int
    healthy: tuple[EpisodeLocation, ...]
    """Training episodes without a fault."""
    faulty: tuple[EpisodeLocation, ...]
    """Training episodes with one, for baselines that need labels."""
    labels: tuple[TrainingLabel, ...]
    """What is true of all of them, healthy ones first."""
    runs: tuple[int, ...]
    """Numbers of the baseline runs in the context."""
    inner: int | None = None
    """Inner fold, for models that only set thresholds."""

    def __call__(self, context: RunContext) -> dict[ModelKey, FittedModel]:
        """Fit one after the other in one runner, which so reads the training episodes once."""
        kept = FitCache(context.fits_bytes)
        models: dict[ModelKey, FittedModel] = {}
        wanted: dict[BaselineRun, str] = {}
        for run in (context.runs[number] for number in self.runs):
            key = self._key(run, kept) if context.fits_bytes else ""
            found = kept.find(key) if key and not context.settings.fresh else None
            if found is None:
                wanted[run] = key
            else:
                models[run.model(self.fold, self.inner)] = found
                report_progress(1)
        return models | self._fitted(wanted, kept, context) if wanted else models

    def _fitted(
        self, chosen: Mapping[BaselineRun, str], kept: FitCache, context: RunContext
    ) -> dict[ModelKey, FittedModel]:
        """Fit some of the baselines, and keep those that have a key."""
        read = self.healthy if any(run.learns for run in chosen) else ()
        references = any(run.learns_from_references for run in chosen)
        if references or any("labels" in run.needs for run in chosen):
            read = (*self.healthy, *self.faulty)
        models = {}
        with (
            local_folders(read, needs_of(chosen)) as folders,
            healthy_references(tuple(dict.fromkeys(folders[len(self.healthy) :])) if references else ()) as cut,
            machine_pool().lend(f"fold {self.fold}") as runner,
        ):
            for run, key in chosen.items():
                outcome = runner.run(self._request(run, folders, cut, context), context.settings.limits.for_fit())
                if outcome.status == "error":
                    for folder in folders:
                        refuse_damage(Path(folder))
                model = FittedModel(
                    status=outcome.status,
                    blob=Blob.of(outcome.model) if outcome.status == "ok" else EMPTY_BLOB,
                    reason=outcome.reason,
                    seconds=outcome.seconds,
                )
                if key:
                    kept.keep(key, model)
                models[run.model(self.fold, self.inner)] = model
                report_progress(1)
        return models

    def _key(self, run: BaselineRun, kept: FitCache) -> str:
        """Return the name under which a fit is kept; empty where it is not."""
        labelled = "labels" in run.needs
        read = (*self.healthy, *(self.faulty if labelled or run.learns_from_references else ()))
        if not run.learns or not run.fit_code or not all(location.content for location in read):
            return ""
        episodes = [[Path(location.folder).name, location.content] for location in read]
        about = {
            "method": run.fit_code,
            "seed": run.seed,
            "healthy": episodes[: len(self.healthy)],
            "faulty": episodes[len(self.healthy) :],
            "references": run.learns_from_references,
            "labels": self.labels if labelled else (),
        }
        return kept.key(about, built_in=run.built_in)

    def _request(
        self, run: BaselineRun, folders: tuple[str, ...], references: tuple[str, ...], context: RunContext
    ) -> FitRequest:
        labelled = "labels" in run.needs
        episodes = folders if labelled else folders[: len(self.healthy)] if run.learns else ()
        if run.learns_from_references:
            episodes = (*episodes, *references)
        process = method_process(run, episodes, (*folders, *references), context)
        return FitRequest(
            number=next_number(),
            process=hiding_dataset(process, folders) if run.learns_from_references else process,
            spec=run.spec,
            seed=run.seed,
            episodes=episodes,
            labels=self.labels if labelled else (),
        )


def used_again(models: Mapping[ModelKey, FittedModel]) -> list[tuple[str, bool]]:
    """Return the baseline of each fit, and whether an earlier evaluation has made it."""
    return [(key.baseline, model.used_again) for key, model in models.items()]
