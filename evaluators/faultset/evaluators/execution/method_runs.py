"""Run methods on the tested episodes of a scope, and collect their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.core.errors import DataError
from faultset.core.output import Progress, StepCounter
from faultset.evaluators.execution.checkpoint import Checkpoint
from faultset.evaluators.execution.plan import EvaluationPlan, identify_codes, make_plan
from faultset.evaluators.execution.scheduling import MethodEngine, describe_isolation, find_dashboard, run_plan
from faultset.evaluators.execution.settings import EvaluationScope
from faultset.evaluators.results.output_folder import FILES, RECORDING_FILES, RESULTS_FILE, writing
from faultset.evaluators.results.provenance import code_version, find_changed_codes
from faultset.evaluators.results.rows import ResultRow

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec


@dataclass(frozen=True, kw_only=True)
class EvaluationStart:
    """The plan of an evaluation, reported before the first method starts."""

    baselines: tuple[str, ...]
    """Names of the baselines."""
    episodes: int
    """Number of tested episodes."""
    faulty: int
    """Number of tested episodes with a fault."""
    answers: int
    """Number of answers to compute."""
    workers: int
    """Number of methods that run at a time."""
    expected_s: float
    """Estimated duration."""
    expected_bytes: int
    """Estimated size of the results."""
    reused: int
    """Number of answers taken from an interrupted evaluation."""
    recordings: int = 0
    """Number of tested recordings; the episodes are then views of them."""
    changed: tuple[str, ...] = ()
    """Conditions that differ from the last evaluation into the same folder."""
    dashboard: str | None
    """URL of dask's dashboard; None if bokeh is not installed."""


@dataclass(frozen=True, kw_only=True)
class MethodRunContext:
    """How the methods of one evaluation are run."""

    engine: MethodEngine
    """A running engine."""
    folder: Path | None = None
    """Folder for the results and their checkpoint; if None, nothing is stored."""
    started: Callable[[EvaluationStart], None] | None = None
    """Called before the first method starts."""
    progress: Progress | None = None
    """Called with the number of finished steps and the total."""


@dataclass(frozen=True, kw_only=True)
class MethodAnswers:
    """The answers of methods, and how they were run."""

    rows: list[ResultRow]
    specs: tuple[BaselineSpec, ...]
    """The methods that were run."""
    damage: Mapping[str, DataError]
    """Damaged episode -> the error."""
    isolation: str
    """How methods were isolated."""
    reused_fits: str
    """Number of fits from the cache, in total and by method; empty if there are none."""
    steps: StepCounter
    """Progress; one step remains for the leaderboards."""


def open_checkpoint(
    folder: Path,
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    file_codes: Mapping[str, str],
    *,
    results: str = RESULTS_FILE,
) -> Checkpoint:
    """Return the checkpoint of an evaluation into a folder.

    Parameters
    ----------
    file_codes
        Prediction file -> identity of its content.
    results
        See `Checkpoint`.
    """
    settings = scope.settings
    conditions = {"digest": scope.source.digest, "code": code_version(), "split": settings.split or ""}
    conditions |= {"train": settings.train} if settings.train else {}
    codes = identify_codes(specs, settings) | dict(file_codes)
    return Checkpoint(folder, conditions, codes, results=results)


def run_methods(
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    engine: MethodEngine,
    *,
    checkpoint: Checkpoint | None = None,
    started: Callable[[EvaluationStart], None] | None = None,
    progress: Progress | None = None,
) -> MethodAnswers:
    """Run methods on the tested episodes.

    Parameters
    ----------
    checkpoint
        Stores answers as they arrive, so that an interrupted evaluation can resume.
    """
    reusable, changed, hidden = [], (), []
    if checkpoint is not None:
        with writing(checkpoint.folder):
            reusable = checkpoint.begin(scope.truths, fresh=scope.settings.fresh)
        changed = checkpoint.changed or find_changed_codes(checkpoint.results, checkpoint.codes)
        hidden = [checkpoint.path, *(checkpoint.folder / name for name in (*FILES, *RECORDING_FILES))]
    client = engine.connect(scope.source)
    plan = make_plan(scope, specs, engine.workers, reusable=reusable, hidden=hidden)
    if started is not None:
        started(_describe_start(plan, engine.workers, changed, find_dashboard(client)))

    def keep(rows: list[ResultRow]) -> None:
        if checkpoint is not None:
            with writing(checkpoint.folder):
                checkpoint.add(rows)

    def leave_out(episode: str, error: DataError) -> None:
        damage.setdefault(episode, error)

    damage: dict[str, DataError] = {}
    fits: list[tuple[str, bool]] = []
    steps = StepCounter(plan.steps + 1, progress)
    isolation = describe_isolation(client)
    rows = run_plan(plan, client, steps.add, keep, leave_out, fits.extend)
    return MethodAnswers(
        rows=rows,
        specs=plan.specs,
        damage=damage,
        isolation=isolation,
        reused_fits=_describe_fits(fits),
        steps=steps,
    )


def _describe_start(
    plan: EvaluationPlan, workers: int, changed: tuple[str, ...], dashboard: str | None
) -> EvaluationStart:
    truths = plan.scope.source.truths
    return EvaluationStart(
        baselines=tuple(spec.name for spec in plan.specs),
        episodes=len(truths),
        faulty=sum(truth.faulty for truth in truths),
        answers=plan.answers,
        workers=workers,
        expected_s=plan.expected_s(workers),
        expected_bytes=plan.expected_bytes,
        reused=len(plan.reused),
        changed=changed,
        dashboard=dashboard,
    )


def _describe_fits(fits: Sequence[tuple[str, bool]]) -> str:
    """Count the fits from the cache, in total and by method; empty if there are none."""
    cached = Counter(name for name, is_cached in fits if is_cached)
    by_method = ", ".join(f"{name} {count}" for name, count in sorted(cached.items()))
    return f"{cached.total()} of {len(fits)} ({by_method})" if cached else ""
