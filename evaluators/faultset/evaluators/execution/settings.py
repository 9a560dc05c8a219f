"""What an evaluation does, on which episodes, and what methods learn from."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import pyarrow as pa

from faultset.core.errors import DataError, UsageError
from faultset.core.suggestions import unknown_name
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.training.folds import CROSS, Fold, folds_of_split
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.runners.messages import RunLimits
from faultset.evaluators.results.rows import PROTOCOLS, TASKS
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.thresholds import ThresholdPolicy, chosen_policies

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec
    from faultset.datasets.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A dataset that methods learn from, while another one is tested."""

    source: DatasetSource
    fold: Fold
    left_out: tuple[str, ...]
    """Training episodes that are not learned from, because their (application, fault, target) is tested."""

    @property
    def name(self) -> str:
        """What rows and reports call it in place of a split."""
        return f"train on {self.source.name} {self.source.version}"

    @property
    def record(self) -> dict[str, object]:
        """What settings and reports say about it."""
        return {
            "source": self.source.url or str(self.source.folder),
            "name": self.source.name,
            "version": self.source.version,
            "digest": self.source.digest,
            "episodes": len(self.fold.healthy_train) + len(self.fold.faulty_train),
            "left_out": len(self.left_out),
        }


def training_data(train: DatasetSource, test: DatasetSource) -> TrainingData:
    """Make the one fold of an evaluation that learns from one dataset and is tested on another.

    No episode is in both, and fault episodes whose cluster (application, fault, target) is tested are not learned from.

    Raises
    ------
    DataError
        An episode is in both datasets, under one name or two.
    UsageError
        Nothing is left to learn from.
    """
    _check_apart(train, test)
    tested = {problem for truth in test.truths for problem in truth.problems}
    kept = [truth for truth in train.truths if tested.isdisjoint(truth.problems)]
    if not kept:
        raise UsageError(
            f"every (application, fault, target) of {train.name} is also in {test.name}, so nothing is left to learn "
            "from; train on other faults, targets or applications, or use --split"
        )
    fold = Fold(
        number=0,
        healthy_train=tuple(truth.episode for truth in kept if not truth.faulty),
        faulty_train=tuple(truth.episode for truth in kept if truth.faulty),
        test=tuple(truth.episode for truth in sorted(test.truths, key=lambda truth: not truth.faulty)),
    )
    left_out = tuple(truth.episode for truth in train.truths if not tested.isdisjoint(truth.problems))
    return TrainingData(source=train, fold=fold, left_out=left_out)


def _check_apart(train: DatasetSource, test: DatasetSource) -> None:
    names = {truth.episode for truth in test.truths}
    both = [(truth.episode, truth.episode) for truth in train.truths if truth.episode in names]
    by_time: dict[Hashable, list[Truth]] = defaultdict(list)
    for truth in test.truths:
        by_time[_times(truth)].append(truth)
    for truth in train.truths:
        both += [
            (truth.episode, other.episode)
            for other in by_time[_times(truth)]
            if truth.episode != other.episode and _same_content(train, truth.episode, test, other.episode)
        ]
    if both:
        mine, theirs = both[0]
        raise DataError(
            f"{len(both)} episodes of {train.name} are also in {test.name} (first: {mine}"
            f"{'' if mine == theirs else f', there called {theirs}'}), so methods would be tested on what they learned "
            "from; train on a dataset that shares none"
        )


def _times(truth: Truth) -> Hashable:
    return truth.app, truth.view_start_ns, truth.reference_end_ns


def _same_content(train: DatasetSource, mine: str, test: DatasetSource, theirs: str) -> bool:
    """Compare telemetry; what is behind a URL is taken for the same when it has the same times."""
    if train.url is not None or test.url is not None:
        return True
    return _content(train, mine) == _content(test, theirs)


def _content(source: DatasetSource, episode: str) -> str:
    """Digest of the metric samples, spans and log lines of an episode, without its name."""
    view = EpisodeView(source.folder / EPISODES / episode)
    digest = hashlib.sha256()
    for name, columns in (
        ("metrics", ["time", "service", "metric", "value"]),
        ("spans", ["time", "span_id"]),
        ("logs", ["time", "message"]),
    ):
        table = view.table(name, columns)
        plain = pa.schema(
            [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
        )
        for batch in table.cast(plain).combine_chunks().to_batches():
            for row in zip(*(column.to_pylist() for column in _numbers(batch)), strict=True):
                digest.update(repr(row).encode())
    return digest.hexdigest()


def _numbers(batch: pa.RecordBatch) -> list[pa.Array]:
    """Columns of a batch, times as integers: they are finer than what Python's own times hold."""
    return [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]


ALARM_DETECTOR = "trace-errors"
"""Chosen by `benchmarks/alarm_sources.py`: of the detectors that alarm in fewer than 5 % of the healthy
episodes it finds the most faults."""
ALARM_DETECTOR_WITHOUT_SPANS = "spot"
"""Reads metrics, which every dataset has."""
DELAYS_S = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""The grid "auto": doubling, because the first seconds matter most."""
LARGEST_SEED = 2**30
"""Libraries of methods take seeds of 31 bits, and methods that draw are run with several from the first one on."""


class EvaluationOptions(TypedDict, total=False):
    """What `evaluate` may be asked for beside the dataset and the methods; everything has a default."""

    version: str | None
    """Version of the dataset; the newest by default."""
    tasks: Sequence[str]
    """Tasks to score: detection, localization, rca; all by default."""
    protocol: Literal["detected", "oracle", "both"]
    """What localizers and diagnosers are given: the alarm of a detector ("detected"), the true onset ("oracle")."""
    alarm: str | None
    """The detector whose alarm that is; by default `trace-errors`, and `spot` in episodes without spans."""
    split: str | None
    """Published split; or a scheme that scores every episode by what learned from others: "cross", the default, for two
    halves, "cross-5", "cross-5x3", "leave-one-fault-out", "leave-one-target-out", "leave-one-app-out"."""
    train: str | Path | Dataset | None
    """Another dataset (folder, URL, or opened) that methods learn from; all of the first one is then tested. No episode
    may be in both, and fault episodes whose (application, fault, target) is tested are not learned from."""
    delays: Literal["auto"] | Sequence[float]
    """Seconds after the onset at which localizers are also given an alarm, or "auto"."""
    evidence: Literal["auto"] | Sequence[float]
    """Seconds after the onset, and after the alarm, at which the views of methods also end, or "auto"."""
    thresholds: Sequence[str]
    """Threshold policies beside `reference`; `train-quantile(0.995)` by default."""
    workers: int | None
    """Methods that run at once; the number of cores by default."""
    scheduler: str | None
    """Address of a dask scheduler to use instead, for instance `tcp://host:8786`."""
    seed: int
    """For methods that draw random numbers and for the bootstrap."""
    timeout_s: float
    """Longest time for one answer."""
    memory_limit_bytes: int
    """Most memory for one answer."""
    fresh: bool
    """Run and fit everything again, also what an earlier evaluation into the same folder has finished."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What an evaluation does: the options, checked and in one form."""

    tasks: tuple[str, ...] = TASKS
    protocols: tuple[str, ...] = PROTOCOLS
    split: str | None = None
    """Published split or scheme, see `folds_of_split`; None scores every episode in two folds."""
    train: str = ""
    """Name, version and digest of another dataset that methods learn from; empty without one."""
    seed: int = 0
    limits: RunLimits = field(default_factory=RunLimits)
    alarm_detector: str = ALARM_DETECTOR_WITHOUT_SPANS
    alarm_without_spans: str = ""
    """The detector in episodes without spans, where it is another one."""
    delays: tuple[float, ...] = ()
    """Seconds after the onset at which localizers are also given an alarm."""
    evidence: tuple[float, ...] = ()
    """Seconds after the onset, or the alarm, at which the views of methods also end."""
    policies: tuple[ThresholdPolicy, ...] = ()
    """Threshold policies beside `reference`."""
    calibrate: bool = False
    """Run detectors on training episodes too, from which threshold policies other than `reference` are made."""
    fresh: bool = False
    """Fit and run everything anew."""

    @classmethod
    def of(cls, options: EvaluationOptions) -> EvaluationSettings:
        """Check options; the detector that gives alarms is chosen by `open_scope` unless it is named.

        Raises
        ------
        UsageError
            An option does not exist, or has a value that does not exist or makes no sense.
        """
        for name in options:
            if name not in EvaluationOptions.__annotations__:
                raise unknown_name("option", name, EvaluationOptions.__annotations__)
        tasks, protocol = options.get("tasks", TASKS), options.get("protocol", "both")
        seed, timeout_s = options.get("seed", 0), options.get("timeout_s", RunLimits.timeout_s)
        for task in tasks:
            if task not in TASKS:
                raise unknown_name("task", task, TASKS)
        if protocol not in (*PROTOCOLS, "both"):
            raise unknown_name("protocol", protocol, (*PROTOCOLS, "both"))
        if not 0 <= seed <= LARGEST_SEED:
            raise UsageError(f"a seed must be from 0 to {LARGEST_SEED}; give a smaller number")
        if timeout_s <= 0:
            raise UsageError("with a timeout of 0 s no method can answer; give for instance 60 s")
        evidence = _seconds(options.get("evidence", ()), DELAYS_S[1:])
        if evidence and not evidence[0] > 0:
            raise UsageError(f"a budget of {evidence[0]:g} s of evidence leaves nothing to see; give seconds above 0")
        policies = tuple(chosen_policies(list(options.get("thresholds", ()))))
        return cls(
            tasks=tuple(task for task in TASKS if task in tasks),
            protocols=PROTOCOLS if protocol == "both" else (protocol,),
            split=options.get("split"),
            seed=seed,
            limits=RunLimits(
                timeout_s=timeout_s, memory_bytes=options.get("memory_limit_bytes", RunLimits.memory_bytes)
            ),
            alarm_detector=_named_detector(options.get("alarm")),
            delays=_seconds(options.get("delays", ()), DELAYS_S),
            evidence=evidence,
            policies=policies,
            calibrate=any(policy.needs_training for policy in policies),
            fresh=options.get("fresh", False),
        )

    def for_rows(self) -> dict[str, object]:
        """Return what an answer can depend on, as it enters the settings hash."""
        return {
            "alarm_detector": self.alarm_detector,
            "timeout_s": self.limits.timeout_s,
            "memory_bytes": self.limits.memory_bytes,
            "split": self.split or CROSS,
            "calibration": "out of fold",
            **({"alarm_without_spans": self.alarm_without_spans} if self.alarm_without_spans else {}),
            **({"train": self.train} if self.train else {}),
        }

    @property
    def alarm_detectors(self) -> tuple[str, ...]:
        """All detectors whose alarms localizers are given."""
        return (self.alarm_detector, *([self.alarm_without_spans] if self.alarm_without_spans else []))

    def with_default_alarm(self, source: DatasetSource) -> EvaluationSettings:
        """Choose the detectors whose alarms localizers are given, by what each episode has."""
        if len(source.without_spans) == len(source.truths):
            return replace(self, alarm_detector=ALARM_DETECTOR_WITHOUT_SPANS)
        other = ALARM_DETECTOR_WITHOUT_SPANS if source.without_spans else ""
        return replace(self, alarm_detector=ALARM_DETECTOR, alarm_without_spans=other)


@dataclass(frozen=True, kw_only=True)
class EvaluationScope:
    """What is evaluated: the tested episodes, what methods learn from, and the settings."""

    source: DatasetSource
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)
    training: TrainingData | None = None
    """Another dataset that methods learn from; all of `source` is then tested."""

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """Which episodes are tested by what learned from which others."""
        if self.training is not None:
            return (self.training.fold,)
        return tuple(folds_of_split(self.settings.split, self.source.splits, self.source.truths))

    @cached_property
    def truths(self) -> Mapping[str, Truth]:
        """Truth of every episode, of those that are only learned from too."""
        return {truth.episode: truth for source in self.sources for truth in source.truths}

    @property
    def sources(self) -> tuple[DatasetSource, ...]:
        """The tested dataset, then the one that is learned from if it is another one."""
        return (self.source,) if self.training is None else (self.source, self.training.source)

    @property
    def split(self) -> str:
        """What rows call the split."""
        return self.training.name if self.training is not None else self.settings.split or CROSS

    @property
    def alarm_words(self) -> str:
        """What reports say about the detectors whose alarms localizers are given."""
        other, count = self.settings.alarm_without_spans, len(self.source.without_spans)
        why = f", and by {other} in {count} of {len(self.source.truths)} episodes, which have no spans" if other else ""
        return f"{self.settings.alarm_detector}{why}"

    def alarm_of(self, episode: str) -> str:
        """Return the detector whose alarm localizers are given in an episode."""
        without_spans = episode in self.source.without_spans
        return (without_spans and self.settings.alarm_without_spans) or self.settings.alarm_detector

    def check_single_tests(self, what: str) -> None:
        """Raise UsageError if the split tests an episode more than once, which what has one answer cannot serve."""
        tested = [episode for fold in self.folds for episode in fold.test]
        if len({*tested}) < len(tested):
            raise UsageError(
                f'split "{self.settings.split}" tests episodes more than once, and {what} one answer; choose a split '
                "that tests each once"
            )

    def choose_answerable(self, specs: Sequence[BaselineSpec]) -> list[BaselineSpec]:
        """Leave out methods of tasks that were not chosen or that this dataset cannot pose.

        Raises
        ------
        UsageError
            No method is for any of the chosen tasks.
        DataError
            The dataset poses none of the tasks that are left.
        """
        source, tasks = self.source, self.settings.tasks
        chosen = [spec for spec in specs if spec.task in tasks]
        if not chosen:
            raise UsageError(f'none of the chosen baselines is for {" or ".join(tasks)}; see "faultset list baselines"')
        faulty = [truth for truth in source.truths if truth.faulty]
        impossible: dict[str, str] = {}
        if not faulty:
            impossible = dict.fromkeys(("localization", "rca"), "has no fault episodes")
        else:
            if not any(truth.causes for truth in faulty):
                impossible["localization"] = "names no candidate as root cause"
            if not any(truth.diagnoses for truth in faulty):
                impossible["rca"] = "does not say of which level and type its faults are"
        possible = [spec for spec in chosen if spec.task not in impossible]
        if not possible:
            task = chosen[0].task
            raise DataError(
                f"{source.url or source.folder} version {source.version} {impossible[task]}, so there is nothing to "
                f"{'localize' if task == 'localization' else 'diagnose'}; use --tasks detection, or other data"
            )
        return possible


def default_detector(episode: str, source: DatasetSource) -> str:
    """Return the detector whose alarm localizers are given in an episode unless another one is chosen."""
    return ALARM_DETECTOR_WITHOUT_SPANS if episode in source.without_spans else ALARM_DETECTOR


def _named_detector(name: str | None) -> str:
    from faultset.baselines.api.registry import get_baseline

    if name is None:
        return ""
    task = get_baseline(name).task
    if task != "detection":
        raise UsageError(f'"{name}" is for {task} and raises no alarm; name a detector, see "faultset list baselines"')
    return name


def _seconds(values: Literal["auto"] | Sequence[float], automatic: tuple[float, ...]) -> tuple[float, ...]:
    return automatic if values == "auto" else tuple(sorted({float(value) for value in values}))
