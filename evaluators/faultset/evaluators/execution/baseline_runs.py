"""Which baseline runs with which seed, and which answers are expected of it for one episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from faultset.core.times import SECOND_NS
from faultset.evaluators.execution.runners.confinement import dataset_places
from faultset.evaluators.execution.runners.messages import EMPTY_BLOB, Action, Blob, MethodProcess
from faultset.evaluators.execution.settings import EvaluationSettings
from faultset.evaluators.results.rows import Protocol, Status, amount_of
from faultset.evaluators.results.truth import Truth

LEFT_AFTER_DELAY_S = 30
"""A delayed alarm leaves at least this much of the view to look at."""
ACTIONS: Mapping[str, Action] = {"detection": "detect", "localization": "localize", "rca": "diagnose"}


class ModelKey(NamedTuple):
    """Which fitted baseline."""

    baseline: str
    seed: int
    fold: int
    inner: int | None = None
    """Inner fold that it was fitted on; None for the model that is tested."""


class ExpectedAnswer(NamedTuple):
    """An answer that a baseline gives for an episode."""

    protocol: Protocol
    delay_s: float | None = None
    """In the protocol "delayed": seconds from the onset to the given alarm."""
    evidence_s: float | None = None
    """Seconds of the view after the onset that are left, in "detected_evidence" after the given alarm."""

    @property
    def amount(self) -> float:
        """What tells the rows of one protocol apart, as in the key of a row."""
        return amount_of(self.delay_s, self.evidence_s)


@dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """A baseline with a seed: fitted once per fold, then run on every episode."""

    name: str
    kind: str
    task: str
    needs: tuple[str, ...]
    seed: int
    spec: Blob
    settings: str
    """Hash of the settings that answers can depend on."""
    code: str
    """Distribution, version and hash of the baseline's code."""
    built_in: bool
    """Whether it comes with faultset."""
    tables: tuple[str, ...]
    """Tables that it may read."""
    places: tuple[str, ...] = ()
    """Files and folders that its code lies in, where it does not come with faultset."""
    trigger: str | None = None
    """Detector whose alarm this localizer was made for."""
    learns: bool = True
    """Whether it looks at training episodes when it is fitted."""
    learns_from_references: bool = False
    """Whether it is also fitted on the healthy references of training episodes with a fault."""
    own_threshold: bool = True
    """Of a detector: whether it sets its threshold itself."""
    fit_code: str = ""
    """Hash of the code and the parameters that a fit can depend on; empty where fits are not kept."""

    def model(self, fold: int, inner: int | None = None) -> ModelKey:
        """Key of the model that was fitted on a fold."""
        return ModelKey(self.name, self.seed, fold, inner)


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """A fitted baseline as bytes, or why there is none."""

    status: Status
    blob: Blob = EMPTY_BLOB
    reason: str = ""
    seconds: float = 0.0
    used_again: bool = False
    """Whether an earlier evaluation has made it."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all batches of an evaluation share; sent to each worker once."""

    dataset: str
    version: str
    split: str
    code: str
    libraries: str
    settings: EvaluationSettings
    runs: tuple[BaselineRun, ...]
    """All runs, also of detectors that only raise the alarm for others."""
    hidden: tuple[str, ...] = ()
    """Files that no method may read: earlier results, which hold the truth."""
    fits_bytes: int = 0
    """What fits that are kept for later evaluations may take; 0 where none are kept."""
    majority_labels: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Fold -> system level and fault type that its training labels most often have."""


def needs_of(runs: Iterable[BaselineRun]) -> frozenset[str]:
    """Return what any of some runs is given beyond telemetry."""
    return frozenset(need for run in runs for need in run.needs)


def method_process(
    run: BaselineRun, episodes: Sequence[str], shared: Sequence[str], context: RunContext
) -> MethodProcess:
    """Describe the process that a run is carried out in.

    Parameters
    ----------
    episodes
        Folders of the episodes that the run is given.
    shared
        Folders of the episodes that the process may be given, where methods share one.
    """
    if run.built_in:
        return MethodProcess(
            key="\n".join(shared), built_in=True, episodes=tuple(shared), tables=None, hidden=context.hidden
        )
    return MethodProcess(
        key="\n".join((run.name, str(run.seed), *episodes)),
        built_in=False,
        episodes=tuple(episodes),
        tables=run.tables,
        code=run.places,
        hidden=context.hidden,
    )


def hiding_dataset(process: MethodProcess, episodes: Sequence[str]) -> MethodProcess:
    """Keep a process that is given copies of episodes from the datasets that these come from."""
    whole = [path for folder in episodes for path in dataset_places(Path(folder))]
    return replace(process, hidden=(*process.hidden, *dict.fromkeys(whole)))


def expected_answers(run: BaselineRun, truth: Truth, context: RunContext) -> list[ExpectedAnswer]:
    """List the answers that are expected of a run for a scored episode.

    Without a fault there is no root cause: localizers are then only given alarms that are false. An onset that the
    truth does not know cannot be given.
    """
    budgets = budgets_of(truth, context.settings.evidence)
    if run.task == "detection":
        return [ExpectedAnswer("detected"), *(ExpectedAnswer("evidence", None, one) for one in budgets)]
    expected: list[ExpectedAnswer] = []
    if "detected" in context.settings.protocols:
        expected.append(ExpectedAnswer("detected"))
    if not truth.faulty:
        return expected
    if "detected" in context.settings.protocols:
        if run.trigger is not None:
            expected.append(ExpectedAnswer("own"))
        expected += [ExpectedAnswer("detected_evidence", None, one) for one in budgets]
    if truth.onset_ns is not None:
        if "oracle" in context.settings.protocols:
            expected.append(ExpectedAnswer("oracle"))
            expected += [ExpectedAnswer("evidence", None, one) for one in budgets]
        if run.task == "localization":
            expected += [ExpectedAnswer("delayed", delay) for delay in delays_of(truth, context.settings.delays)]
    return expected


def budgets_of(truth: Truth, budgets: Sequence[float]) -> list[float]:
    """Choose the budgets of evidence that an episode's view has after the onset of its fault."""
    if not truth.faulty or truth.onset_ns is None:
        return []
    return [one for one in budgets if one <= (truth.view_end_ns - truth.onset_ns) / SECOND_NS]


def delays_of(truth: Truth, delays: Sequence[float]) -> list[float]:
    """Choose the delays of a grid that leave enough of an episode's view."""
    if truth.onset_ns is None:
        return []
    longest = (truth.view_end_ns - truth.onset_ns) / SECOND_NS - LEFT_AFTER_DELAY_S
    return [delay for delay in delays if delay <= longest]
