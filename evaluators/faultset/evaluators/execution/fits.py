"""Batches of fits for dask workers: several baselines, each fitted on the same training episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from faultset.evaluators.execution.baseline_runs import (
    BaselineRun,
    FittedModel,
    ModelKey,
    RunContext,
    hiding_dataset,
    method_process,
    needs_of,
)
from faultset.evaluators.execution.batches import refuse_damage
from faultset.evaluators.execution.cut_episodes import healthy_references
from faultset.evaluators.execution.fit_cache import FitCache
from faultset.evaluators.execution.progress import report_progress
from faultset.evaluators.execution.remote_episodes import EpisodeLocation, local_folders
from faultset.evaluators.execution.runners.messages import EMPTY_BLOB, Blob, FitRequest, TrainingLabel
from faultset.evaluators.execution.runners.runner_pool import machine_pool
from faultset.evaluators.execution.runners.runner_process import next_number


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
