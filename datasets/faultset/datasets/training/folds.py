"""Folds: training and test episodes of a dataset.

Episodes with the same application, fault and targets are a cluster: they repeat a problem. A cluster is never divided
between training and test, because a method that learns from labels would otherwise have seen the answer.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from faultset.core.errors import UsageError, unknown_name
from faultset.datasets.format.labels import UNLABELLED

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset


class FoldMember(Protocol):
    """Facts about an episode that decide its fold; `EpisodeLabel` describes them."""

    @property
    def episode(self) -> str: ...
    @property
    def app(self) -> str: ...
    @property
    def fault(self) -> str | None: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def faulty(self) -> bool: ...
    @property
    def cluster(self) -> tuple[str, ...]: ...
    @property
    def problems(self) -> tuple[tuple[str, ...], ...]: ...


CROSS = "cross"
_CROSS = re.compile(r"cross(?:-(\d{1,4})(?:x(\d{1,3}))?)?")
_LEFT_OUT: Mapping[str, Callable[[FoldMember], tuple[Hashable, ...]]] = {
    "leave-one-fault-out": lambda truth: tuple(sorted(problem[1] for problem in truth.problems)),
    "leave-one-target-out": lambda truth: tuple(sorted((truth.app, target) for target in truth.targets)),
    "leave-one-app-out": lambda truth: (truth.app,),
}
"""Properties of a tested fault that no training episode with a fault may share in the same fold."""
SCHEMES = (CROSS, f"{CROSS}-5", f"{CROSS}-5x3", *_LEFT_OUT)
"""Values of `--split` in addition to the published splits of a dataset."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Training and test episodes."""

    number: int
    """Number of the fold, from 0."""
    healthy_train: tuple[str, ...]
    """Training episodes without a fault, from which methods learn what is normal."""
    faulty_train: tuple[str, ...]
    """Training episodes with a fault, with labels for methods that learn from them."""
    test: tuple[str, ...]
    """Test episodes with and without faults."""
    inner: int | None = None
    """Number of the inner fold, if this fold is one; evaluations set thresholds on inner folds."""


def get_cluster_key(episode: str, app: str, fault: str | None, targets: Sequence[str]) -> tuple[str, ...]:
    """Return the key of an episode's cluster: application, fault, targets.

    Each episode without a fault forms its own cluster.
    """
    return (app, "", episode) if fault is None else (app, fault, *sorted(targets))


def list_problems(app: str, problems: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return the application, fault and target of each fault of an episode; empty if it has none."""
    return tuple((app, *problem) for problem in problems)


def folds_of_split(
    name: str | None, splits: Mapping[str, Mapping[str, Sequence[str]]], truths: Sequence[FoldMember]
) -> list[Fold]:
    """Build the folds of a published split, or of a scheme over the whole dataset; `dataset_folds` describes the
    names.
    """
    if name is not None and name in splits:
        return [_fold_of_split(name, splits[name], truths)]
    if name is not None and name in _LEFT_OUT:
        return _leave_one_out(name, truths)
    match = _CROSS.fullmatch(name or CROSS)
    if match is None:
        raise unknown_name("split", name or "", [*splits, *SCHEMES])
    count, repeats = int(match[1] or 2), int(match[2] or 1)
    if count < 2 or repeats < 1:
        raise UsageError(
            f'split "{name}" must have at least two folds and one repetition, but has {count} and {repeats}'
        )
    return [
        fold for repeat in range(repeats) for fold in cross_folds(truths, count, repeat=repeat if repeats > 1 else None)
    ]


def cross_folds(truths: Sequence[FoldMember], count: int = 2, *, repeat: int | None = None) -> list[Fold]:
    """Divide a dataset into folds; each is scored by models that learned from the others.

    Every episode is scored once, by a model that saw neither the episode nor its cluster. Go through the clusters in
    the order of their first episodes, or shuffled if `repeat` is given. Assign each to the fold with the fewest
    episodes of its application and fault, so that folds are similar.
    """
    order = _build_clusters(truths)
    if repeat is not None:
        random.Random(repeat).shuffle(order)
    test_sets: list[list[FoldMember]] = [[] for _ in range(count)]
    fault_counts: Counter[Hashable] = Counter()
    kind_counts: Counter[Hashable] = Counter()
    for members in order:
        first = members[0]
        number = min(
            range(count),
            key=lambda n: (
                fault_counts[n, first.app, first.fault],
                kind_counts[n, first.app, first.faulty],
                len(test_sets[n]),
                n,
            ),
        )
        test_sets[number] += members
        fault_counts[number, first.app, first.fault] += len(members)
        kind_counts[number, first.app, first.faulty] += len(members)
    return _build_folds(test_sets, first=count * (repeat or 0))


def _build_clusters(truths: Sequence[FoldMember]) -> list[list[FoldMember]]:
    """Group episodes that share a problem; an episode with several faults merges their clusters."""
    clusters: dict[Hashable, list[FoldMember]] = {}
    cluster_names: dict[Hashable, Hashable] = {}
    for truth in truths:
        keys = truth.problems or (truth.cluster,)
        existing = list(dict.fromkeys(cluster_names[key] for key in keys if key in cluster_names))
        name = existing[0] if existing else keys[0]
        members = clusters.setdefault(name, [])
        for other in existing[1:]:
            members += clusters.pop(other)
            cluster_names |= {key: name for key, cluster in cluster_names.items() if cluster == other}
        members.append(truth)
        cluster_names |= dict.fromkeys(keys, name)
    return list(clusters.values())


def _leave_one_out(name: str, truths: Sequence[FoldMember]) -> list[Fold]:
    """Build one fold per fault, set of targets or application.

    Fault-free episodes stay with their application in `leave-one-app-out`; otherwise they are spread evenly.
    """
    value_of = _LEFT_OUT[name]
    by_app = name == "leave-one-app-out"
    values = list(dict.fromkeys(value_of(truth) for truth in truths if truth.faulty or by_app))
    if len(values) < 2:
        kind = name.removeprefix("leave-one-").removesuffix("-out")
        raise UsageError(f"--split {name} needs faults with at least two values of {kind}, but there are {len(values)}")
    test_sets: dict[Hashable, list[FoldMember]] = {value: [] for value in values}
    healthy = [truth for truth in truths if not truth.faulty]
    for truth in truths:
        if truth.faulty or by_app:
            test_sets[value_of(truth)].append(truth)
    if not by_app:
        for position, truth in enumerate(healthy):
            test_sets[values[position % len(values)]].append(truth)
    return _build_folds(list(test_sets.values()), values_of=None if by_app else value_of)


def _build_folds(
    test_sets: Sequence[Sequence[FoldMember]],
    *,
    first: int = 0,
    values_of: Callable[[FoldMember], tuple[Hashable, ...]] | None = None,
) -> list[Fold]:
    """Build one fold per test set; drop training episodes that share a value with a tested fault."""
    folds = []
    for number, test in enumerate(test_sets):
        train = [truth for other, truths in enumerate(test_sets) if other != number for truth in truths]
        if values_of is not None:
            tested = {value for truth in test if truth.faulty for value in values_of(truth)}
            train = [truth for truth in train if not truth.faulty or tested.isdisjoint(values_of(truth))]
        if test:
            folds.append(_build_fold(first + number, train, test))
    return folds


def _build_fold(number: int, train: Sequence[FoldMember], test: Sequence[FoldMember]) -> Fold:
    return Fold(
        number=number,
        healthy_train=tuple(truth.episode for truth in train if not truth.faulty),
        faulty_train=tuple(truth.episode for truth in train if truth.faulty),
        test=tuple(truth.episode for truth in sorted(test, key=lambda truth: not truth.faulty)),
    )


def _fold_of_split(name: str, split: Mapping[str, Sequence[str]], truths: Sequence[FoldMember]) -> Fold:
    members = {truth.episode: truth for truth in truths}
    shared = set(split["train"]) & set(split["test"])
    if shared:
        raise UsageError(
            f'split "{name}" has {len(shared)} episodes in both subsets (first: {min(shared)}); publish it again'
        )
    test = [members[episode] for episode in split["test"] if episode in members]
    if not test:
        raise UsageError(f'split "{name}" has no test episode in this version; choose another with --split')
    return _build_fold(0, [members[episode] for episode in split["train"] if episode in members], test)


@dataclass(frozen=True, kw_only=True)
class EpisodeLabel:
    """Truth of an episode for training; never an input of a model."""

    episode: str
    """Id of the episode."""
    app: str
    """Name of the application."""
    fault: str | None
    """Name of the fault, or None."""
    targets: tuple[str, ...]
    """Services that the fault was applied to."""
    system_level: str | None
    """System level of the fault, or None."""
    fault_type: str | None
    """Type of the fault, or None."""
    onset_ns: int | None
    """Time when the first fault started to act, UTC nanoseconds; None if it is unknown or if there was no fault."""
    problems: tuple[tuple[str, ...], ...]
    """Application, fault and target of every fault."""
    causes: frozenset[str]
    """Services that are correct answers: services of the root causes, and further accepted names."""

    @property
    def faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @property
    def cluster(self) -> tuple[str, ...]:
        """Key of its cluster; see `get_cluster_key`."""
        return get_cluster_key(self.episode, self.app, self.fault, self.targets)


def episode_labels(dataset: Dataset, episodes: Iterable[str] | None = None) -> dict[str, EpisodeLabel]:
    """Return the truth of episodes by id, by default of all episodes of the version."""
    labels = {}
    for episode in dataset.episodes if episodes is None else episodes:
        label, app = dataset.label(episode), dataset.view(episode).context.app
        labels[episode] = EpisodeLabel(
            episode=episode,
            app=app,
            fault=label.fault,
            targets=tuple(label.targets),
            system_level=label.system_level,
            fault_type=label.fault_type,
            onset_ns=label.onset_ns,
            problems=list_problems(app, label.problems),
            causes=frozenset(name for cause in label.root_causes for name in (cause.service, *cause.accepted)),
        )
    return labels


def dataset_folds(dataset: Dataset, split: str | None = None) -> list[Fold]:
    """Return the folds of `evaluate --split`.

    Parameters
    ----------
    dataset
        An opened dataset.
    split
        A published split (one fold), or a scheme: "cross" (two folds, the default), "cross-5", "leave-one-fault-out",
        "leave-one-target-out", "leave-one-app-out".

    Returns
    -------
    list of Fold
        Each with `healthy_train` (episodes without a fault), `faulty_train` (with a fault) and `test`. Episodes with
        the same application, fault and targets are in the same subset. Unlabelled episodes are in none.

    Raises
    ------
    UsageError
        The split is unknown, or has no episodes to test.
    """
    splits = {name: dict(subsets) for name, subsets in dataset.splits.items()}
    labelled = [e for e in dataset.episodes if dataset.label(e).no_fault_kind != UNLABELLED]
    return folds_of_split(split, splits, list(episode_labels(dataset, labelled).values()))
