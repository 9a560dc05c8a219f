"""Settings and scope of an evaluation: options, tested episodes, training data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from faultset.baselines.registry import BaselineSpec
from faultset.core.errors import DataError, UsageError, unknown_name
from faultset.core.printable import count_text
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.training.folds import CROSS, Fold, cross_folds, folds_of_split
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.runners.messages import RunLimits, TrainingLabel
from faultset.evaluators.results.rows import PROTOCOLS, TASKS
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.diagnosis import best_constant
from faultset.evaluators.scoring.thresholds import ThresholdPolicy, choose_policies

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A separate dataset that methods are trained on."""

    source: DatasetSource
    fold: Fold
    left_out: tuple[str, ...]
    """Episodes left out because their (application, fault, target) is tested."""

    @property
    def name(self) -> str:
        """Return the name that rows and reports use in place of a split."""
        return f"train on {self.source.name} {self.source.version}"

    @property
    def record(self) -> dict[str, object]:
        """Return the description stored with the settings and shown in reports."""
        return {
            "source": self.source.url or str(self.source.folder),
            "name": self.source.name,
            "version": self.source.version,
            "digest": self.source.digest,
            "episodes": len(self.fold.healthy_train) + len(self.fold.faulty_train),
            "left_out": len(self.left_out),
        }


def build_training_data(train: DatasetSource, test: DatasetSource) -> TrainingData:
    """Build the single fold of an evaluation that trains on one dataset and tests on another.

    Training episodes whose (application, fault, target) is tested are left out.
    """
    _check_disjoint(train, test)
    tested = {problem for truth in test.truths for problem in truth.problems}
    training = [truth for truth in train.truths if tested.isdisjoint(truth.problems)]
    if not training:
        raise UsageError(
            f"every (application, fault, target) of {train.name} is also in {test.name}, so no training episode "
            "remains; train on other faults, targets or applications, or use --split"
        )
    fold = Fold(
        number=0,
        healthy_train=tuple(truth.episode for truth in training if not truth.faulty),
        faulty_train=tuple(truth.episode for truth in training if truth.faulty),
        test=tuple(truth.episode for truth in sorted(test.truths, key=lambda truth: not truth.faulty)),
    )
    left_out = tuple(truth.episode for truth in train.truths if not tested.isdisjoint(truth.problems))
    return TrainingData(source=train, fold=fold, left_out=left_out)


def _check_disjoint(train: DatasetSource, test: DatasetSource) -> None:
    names = {truth.episode for truth in test.truths}
    shared = [(truth.episode, truth.episode) for truth in train.truths if truth.episode in names]
    get_times = attrgetter("app", "view_start_ns", "reference_end_ns")
    by_time: dict[tuple[Any, ...], list[Truth]] = defaultdict(list)
    for truth in test.truths:
        by_time[get_times(truth)].append(truth)
    for truth in train.truths:
        shared += [
            (truth.episode, other.episode)
            for other in by_time[get_times(truth)]
            if truth.episode != other.episode and _have_same_content(train, truth.episode, test, other.episode)
        ]
    if shared:
        first, second = shared[0]
        raise DataError(
            f"{train.name} and {test.name} share {count_text(len(shared), 'episode')} (first: {first}"
            f"{'' if first == second else f', there called {second}'}), so methods would be tested on their training "
            "data; train on a dataset that shares no episode"
        )


def _have_same_content(train: DatasetSource, train_episode: str, test: DatasetSource, test_episode: str) -> bool:
    """Return whether two episodes have the same telemetry; at a URL, equal times are enough."""
    if train.url is not None or test.url is not None:
        return True
    return _hash_content(train, train_episode) == _hash_content(test, test_episode)


def _hash_content(source: DatasetSource, episode: str) -> bytes:
    """Return a hash of each metric sample, span and log line of an episode."""
    import pandas as pd

    view = EpisodeView(source.folder / EPISODES / episode)
    columns = {
        "metrics": ["time", "service", "metric", "value"],
        "spans": ["time", "span_id"],
        "logs": ["time", "message"],
    }
    frames = (view.table(name, names).to_pandas() for name, names in columns.items())
    return b"".join(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes() for frame in frames)


ALARM_DETECTOR = "trace-errors"
"""Default detector.

It finds the most faults among detectors with fewer than 5 % false positives; see `benchmarks/alarm_sources.py`.
"""
ALARM_DETECTOR_WITHOUT_SPANS = "spot"
"""Default detector for datasets without spans; it reads only metrics, which every dataset has."""
DELAYS_S = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""Values of "auto"; from 5 s on, each is twice the previous one, because the first seconds matter most."""
LARGEST_SEED = 2**30
"""Stochastic methods use several consecutive seeds from the given seed on, and libraries accept only 31-bit seeds."""


class EvaluationOptions(TypedDict, total=False):
    """Options of `evaluate`; each has a default."""

    version: str | None
    """Version of the dataset; the newest by default."""
    tasks: Sequence[str]
    """Tasks to score: detection, localization, rca; all by default."""
    protocol: Literal["detected", "oracle", "both"]
    """Alarm passed to localizers and diagnosers: a detector's alarm ("detected") or the true onset ("oracle")."""
    alarm: str | None
    """Detector for "detected"; by default `trace-errors`, and `spot` in episodes without spans."""
    split: str | None
    """Published split or cross-validation scheme: "cross" (two folds, the default), "cross-5", "cross-5x3",
    "leave-one-fault-out", "leave-one-target-out", "leave-one-app-out"."""
    train: str | Path | Dataset | None
    """Separate training dataset (folder, URL, or opened). The whole first dataset is then tested. The datasets must
    share no episode; training episodes whose (application, fault, target) is tested are left out."""
    delays: Literal["auto"] | Sequence[float]
    """Seconds after the onset at which localizers also get an alarm, or "auto"."""
    evidence: Literal["auto"] | Sequence[float]
    """Evidence budgets: seconds after the onset, and after the alarm, at which views also end, or "auto"."""
    thresholds: Sequence[str]
    """Threshold policies in addition to `reference`; `train-quantile(0.995)` by default."""
    workers: int | None
    """Number of methods that run at a time; the number of cores by default."""
    scheduler: str | None
    """Address of a dask scheduler, for example `tcp://host:8786`."""
    seed: int
    """Seed of stochastic methods and of the bootstrap."""
    timeout_s: float
    """Time limit per answer."""
    memory_limit_bytes: int
    """Memory limit per answer."""
    fresh: bool
    """Run and fit everything again, even if it was finished by an earlier evaluation into the same folder."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """The validated options of an evaluation."""

    tasks: tuple[str, ...] = TASKS
    protocols: tuple[str, ...] = PROTOCOLS
    split: str | None = None
    """Published split or scheme, see `folds_of_split`; None for two folds."""
    train: str = ""
    """Name, version and digest of a separate training dataset; empty if there is none."""
    seed: int = 0
    limits: RunLimits = field(default_factory=RunLimits)
    alarm_detector: str = ALARM_DETECTOR_WITHOUT_SPANS
    alarm_without_spans: str = ""
    """The detector in episodes without spans, if different."""
    delays: tuple[float, ...] = ()
    """Seconds after the onset at which localizers also get an alarm."""
    evidence: tuple[float, ...] = ()
    """Evidence budgets: seconds after the onset or the alarm at which views also end."""
    policies: tuple[ThresholdPolicy, ...] = ()
    """Threshold policies in addition to `reference`."""
    calibrate: bool = False
    """Whether detectors also run on training episodes, as threshold policies other than `reference` require."""
    fresh: bool = False
    """Whether everything is fitted and run again."""

    @classmethod
    def of(cls, options: EvaluationOptions) -> EvaluationSettings:
        """Validate options; without `alarm`, the detector is chosen later by `define_scope`."""
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
            raise UsageError(f"the seed must be from 0 to {LARGEST_SEED}, got {seed}; choose another number")
        if timeout_s <= 0:
            raise UsageError(f"the timeout must be above 0 s, got {timeout_s:g} s; 60 s is the default")
        evidence = _parse_seconds(options.get("evidence", ()), DELAYS_S[1:])
        if evidence and not evidence[0] > 0:
            raise UsageError(f"an evidence budget must be above 0 s, got {evidence[0]:g} s; give more seconds")
        policies = tuple(choose_policies(list(options.get("thresholds", ()))))
        return cls(
            tasks=tuple(task for task in TASKS if task in tasks),
            protocols=PROTOCOLS if protocol == "both" else (protocol,),
            split=options.get("split"),
            seed=seed,
            limits=RunLimits(
                timeout_s=timeout_s, memory_bytes=options.get("memory_limit_bytes", RunLimits.memory_bytes)
            ),
            alarm_detector=_find_detector(options.get("alarm")),
            delays=_parse_seconds(options.get("delays", ()), DELAYS_S),
            evidence=evidence,
            policies=policies,
            calibrate=any(policy.needs_training for policy in policies),
            fresh=options.get("fresh", False),
        )

    def for_rows(self) -> dict[str, object]:
        """Return the settings that affect answers, for the settings hash."""
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
        """Return all detectors whose alarms are passed to localizers."""
        return (self.alarm_detector, *([self.alarm_without_spans] if self.alarm_without_spans else []))

    def with_default_alarm(self, source: DatasetSource) -> EvaluationSettings:
        """Choose the detectors that raise alarms, depending on which episodes have spans."""
        if len(source.without_spans) == len(source.truths):
            return replace(self, alarm_detector=ALARM_DETECTOR_WITHOUT_SPANS)
        other = ALARM_DETECTOR_WITHOUT_SPANS if source.without_spans else ""
        return replace(self, alarm_detector=ALARM_DETECTOR, alarm_without_spans=other)


@dataclass(frozen=True, kw_only=True)
class EvaluationScope:
    """Everything an evaluation depends on: tested episodes, training data, settings."""

    source: DatasetSource
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)
    training: TrainingData | None = None
    """Separate training dataset; all of `source` is then tested."""
    chosen_folds: tuple[Fold, ...] = ()
    """The folds, if they do not follow from `settings`."""
    online_alarms: Mapping[str, int | None] = field(default_factory=dict)
    """Episode extracted from a recording -> time of the detector's online alarm; None without an alarm."""

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """Return the folds: test episodes with the training episodes of their models."""
        if self.chosen_folds:
            return self.chosen_folds
        if self.training is not None:
            return (self.training.fold,)
        return tuple(folds_of_split(self.settings.split, self.source.splits, self.source.truths))

    @cached_property
    def truths(self) -> Mapping[str, Truth]:
        """Return the truth of each episode, including training episodes."""
        return {truth.episode: truth for source in self.sources for truth in source.truths}

    @property
    def sources(self) -> tuple[DatasetSource, ...]:
        """Return the tested dataset, and the training dataset if separate."""
        return (self.source,) if self.training is None else (self.source, self.training.source)

    @property
    def split(self) -> str:
        """Return the name of the split in result rows."""
        return self.training.name if self.training is not None else self.settings.split or CROSS

    @property
    def alarm_description(self) -> str:
        """Return which detectors raise the alarms, for reports."""
        first, other = self.settings.alarm_detector, self.settings.alarm_without_spans
        counts = f"{len(self.source.without_spans)} of {count_text(len(self.source.truths), 'episode')}"
        return f"{first}; {other} in the {counts} without spans" if other else first

    def choose_alarm_detector(self, episode: str) -> str:
        without_spans = episode in self.source.without_spans
        return (without_spans and self.settings.alarm_without_spans) or self.settings.alarm_detector

    def check_single_tests(self, subject: str) -> None:
        """Raise UsageError if the split tests an episode more than once.

        `subject`: start of the clause "... one answer per episode", such as "a prediction file has".
        """
        tested = [episode for fold in self.folds for episode in fold.test]
        if len({*tested}) < len(tested):
            raise UsageError(
                f'split "{self.settings.split}" tests episodes more than once, but {subject} one answer per episode; '
                "choose a split that tests each episode once"
            )

    def choose_answerable(self, specs: Sequence[BaselineSpec]) -> list[BaselineSpec]:
        """Return the methods for chosen tasks that this dataset can score."""
        source, tasks = self.source, self.settings.tasks
        chosen = [spec for spec in specs if spec.task in tasks]
        if not chosen:
            raise UsageError(
                f'no chosen baseline performs {" or ".join(tasks)}; choose others, see "faultset list baselines"'
            )
        faulty = [truth for truth in source.truths if truth.faulty]
        impossible: dict[str, str] = {}
        if not faulty:
            impossible = dict.fromkeys(("localization", "rca"), "has no fault episodes")
        else:
            if not any(truth.causes for truth in faulty):
                impossible["localization"] = "names no candidate as root cause"
            if not any(truth.diagnoses for truth in faulty):
                impossible["rca"] = "gives no system level and fault type of its faults"
        possible = [spec for spec in chosen if spec.task not in impossible]
        if not possible:
            task = chosen[0].task
            raise DataError(
                f"{source.url or source.folder} version {source.version} {impossible[task]}, so there is nothing to "
                f"{'localize' if task == 'localization' else 'diagnose'}; use --tasks detection, or other data"
            )
        return possible


def default_detector(episode: str, source: DatasetSource) -> str:
    """Return the default detector that raises the alarm in an episode."""
    return ALARM_DETECTOR_WITHOUT_SPANS if episode in source.without_spans else ALARM_DETECTOR


def _find_detector(name: str | None) -> str:
    from faultset.baselines.registry import get_baseline

    if name is None:
        return ""
    task = get_baseline(name).task
    if task != "detection":
        raise UsageError(
            f'"{name}" performs {task} and raises no alarm; choose a detector, see "faultset list baselines"'
        )
    return name


def _parse_seconds(values: Literal["auto"] | Sequence[float], automatic: tuple[float, ...]) -> tuple[float, ...]:
    return automatic if values == "auto" else tuple(sorted({float(value) for value in values}))


MAX_INNER_FOLDS = 5
"""Each fold costs one fit of every detector that learns."""


def inner_folds(fold: Fold, truths: Mapping[str, Truth]) -> list[Fold]:
    """Divide the training episodes of a fold, so that each episode without a fault is tested once.

    Clusters are kept together as in the outer folds. With fewer than two training episodes without a fault there are no
    inner folds.

    `truths`: truth of every training episode, by its id.
    """
    training = [truths[episode] for episode in (*fold.healthy_train, *fold.faulty_train)]
    count = min(MAX_INNER_FOLDS, len(fold.healthy_train))
    if count < 2:
        return []
    healthy = set(fold.healthy_train)
    return [
        replace(inner, number=fold.number, inner=number, test=tuple(e for e in inner.test if e in healthy))
        for number, inner in enumerate(cross_folds(training, count))
        if inner.healthy_train and healthy.intersection(inner.test)
    ]


def list_training_labels(truth: Truth) -> tuple[TrainingLabel, ...]:
    """Return one label per fault of a training episode, for baselines that need labels."""
    causes = tuple(names[0] for names in truth.causes)
    if not truth.faults:
        first = next(iter(causes), None)
        return (TrainingLabel(first, truth.system_level, truth.fault_type, causes, truth.onset_ns),)
    labels = []
    for fault in truth.faults:
        first = next((names[0] for names in truth.causes if fault.target in names), None)
        ordered = tuple(sorted(causes, key=lambda name, first=first: name != first))
        labels.append(TrainingLabel(first, fault.system_level, fault.fault_type, ordered, truth.onset_ns))
    return tuple(labels)


def majority_labels(scope: EvaluationScope) -> dict[int, tuple[str, str]]:
    """Return the most frequent pair (system level, fault type) of each fold's training labels."""
    labels = {number: find_majority_label(truths) for number, truths in _training_truths(scope).items()}
    return {number: label for number, label in labels.items() if label is not None}


def training_diagnoses(scope: EvaluationScope) -> dict[int, frozenset[tuple[str, str]]]:
    """Return all pairs (system level, fault type) among each fold's training labels."""
    return {
        number: frozenset[tuple[str, str]]().union(*(truth.diagnoses for truth in truths))
        for number, truths in _training_truths(scope).items()
    }


def _training_truths(scope: EvaluationScope) -> dict[int, list[Truth]]:
    return {
        fold.number: [scope.truths[episode] for episode in (*fold.faulty_train, *fold.healthy_train)]
        for fold in scope.folds
    }


def find_majority_label(truths: Sequence[Truth]) -> tuple[str, str] | None:
    """Return the most frequent pair (system level, fault type); every fault of an episode counts."""
    labels = [label for truth in truths for label in list_training_labels(truth)]
    return best_constant(
        [(label.system_level, label.fault_type) for label in labels if label.system_level and label.fault_type]
    )
