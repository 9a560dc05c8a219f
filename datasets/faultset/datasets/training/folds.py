"""Which episodes a baseline learns from, and which episodes it is then run on.

Episodes of one cluster (application, fault, target) repeat one problem. They are never on both sides, or a method that
learns from labels would be asked what it has been told.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset


class FoldMember(Protocol):
    """What must be known of an episode to put it on a side."""

    @property
    def episode(self) -> str:
        """Id."""
        ...

    @property
    def app(self) -> str:
        """Application."""
        ...

    @property
    def fault(self) -> str | None:
        """Name of the fault; None without one."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """Services that the fault was applied to."""
        ...

    @property
    def faulty(self) -> bool:
        """Whether a fault was injected."""
        ...

    @property
    def cluster(self) -> tuple[str, ...]:
        """Key under which repetitions of one problem count as one, as `cluster_of` gives it."""
        ...

    @property
    def problems(self) -> tuple[tuple[str, ...], ...]:
        """Application, fault and target of every fault, as `problems_of` gives them."""
        ...


CROSS = "cross"
_CROSS = re.compile(r"cross(?:-(\d{1,4})(?:x(\d{1,3}))?)?")
_LEFT_OUT: Mapping[str, Callable[[FoldMember], tuple[Hashable, ...]]] = {
    "leave-one-fault-out": lambda truth: tuple(sorted(problem[1] for problem in truth.problems)),
    "leave-one-target-out": lambda truth: tuple(sorted((truth.app, target) for target in truth.targets)),
    "leave-one-app-out": lambda truth: (truth.app,),
}
"""What of an episode no training episode of its fold may have."""
SCHEMES = (CROSS, f"{CROSS}-5", f"{CROSS}-5x3", *_LEFT_OUT)
"""What `--split` takes beside the published splits of a dataset."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Training and test episodes."""

    number: int
    """Place among the folds, from 0."""
    healthy_train: tuple[str, ...]
    """Training episodes without a fault, from which methods learn what is normal."""
    faulty_train: tuple[str, ...]
    """Training episodes with a fault, whose labels some methods are given."""
    test: tuple[str, ...]
    """Test episodes, with a fault or without."""
    inner: int | None = None
    """Number of the division inside the training episodes of a fold, where thresholds are set; see `inner_folds`."""


def cluster_of(episode: str, app: str, fault: str | None, targets: Sequence[str]) -> tuple[str, ...]:
    """Return the key under which repetitions of one problem count as one: application, fault, targets.

    An episode without a fault repeats nothing and is a cluster of its own.
    """
    return (app, "", episode) if fault is None else (app, fault, *sorted(targets))


def problems_of(app: str, problems: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return what an episode asks about: application, fault and target of each of its faults; nothing without one."""
    return tuple((app, *problem) for problem in problems)


def folds_of_split(
    name: str | None, splits: Mapping[str, Mapping[str, Sequence[str]]], truths: Sequence[FoldMember]
) -> list[Fold]:
    """Make the folds of a published split, or of a scheme over the whole dataset.

    Parameters
    ----------
    name
        A published split; "cross" for two folds, which is the default, "cross-K" for K folds and "cross-KxR" for R
        such divisions; "leave-one-fault-out", "leave-one-target-out" or "leave-one-app-out" for one fold each.

    Raises
    ------
    UsageError
        There is no such split or scheme, or it leaves nothing to learn from or to score.
    """
    if name is not None and name in splits:
        return [_published(name, splits[name], truths)]
    if name is not None and name in _LEFT_OUT:
        return _leave_one_out(name, truths)
    match = _CROSS.fullmatch(name or CROSS)
    if match is None:
        raise unknown_name("split", name or "", [*splits, *SCHEMES])
    count, repeats = int(match[1] or 2), int(match[2] or 1)
    if count < 2 or repeats < 1:
        raise UsageError(
            f'split "{name}" has {count} folds, {repeats} times; there must be two folds or more, once or more'
        )
    return [
        fold for repeat in range(repeats) for fold in cross_folds(truths, count, repeat=repeat if repeats > 1 else None)
    ]


def cross_folds(truths: Sequence[FoldMember], count: int = 2, *, repeat: int | None = None) -> list[Fold]:
    """Divide the whole dataset into folds, each scored by what learned from the others.

    Every episode is scored once and by a model that never saw it or another episode of its cluster, so nothing of a
    small dataset is wasted. Clusters are dealt out in the order of the version's list, so that each fold has about as
    many episodes of each application, with and without a fault, and targets of each fault as far as there are several.

    Parameters
    ----------
    repeat
        Number of the division when there are several: clusters are shuffled by it before they are dealt.
    """
    order = _clusters(truths)
    if repeat is not None:
        random.Random(repeat).shuffle(order)
    dealt: list[list[FoldMember]] = [[] for _ in range(count)]
    of_fault: Counter[Hashable] = Counter()
    of_kind: Counter[Hashable] = Counter()
    for members in order:
        one = members[0]
        number = min(
            range(count),
            key=lambda n: (of_fault[n, one.app, one.fault], of_kind[n, one.app, one.faulty], len(dealt[n]), n),
        )
        dealt[number] += members
        of_fault[number, one.app, one.fault] += len(members)
        of_kind[number, one.app, one.faulty] += len(members)
    return _folds(dealt, first=count * (repeat or 0))


def _clusters(truths: Sequence[FoldMember]) -> list[list[FoldMember]]:
    """Put together what repeats a problem, also in part: episodes with several faults share one with others."""
    clusters: dict[Hashable, list[FoldMember]] = {}
    of_problem: dict[Hashable, Hashable] = {}
    for truth in truths:
        keys = truth.problems or (truth.cluster,)
        found = list(dict.fromkeys(of_problem[key] for key in keys if key in of_problem))
        name = found[0] if found else keys[0]
        members = clusters.setdefault(name, [])
        for other in found[1:]:
            members += clusters.pop(other)
            of_problem |= {key: name for key, owner in of_problem.items() if owner == other}
        members.append(truth)
        of_problem |= dict.fromkeys(keys, name)
    return list(clusters.values())


def _leave_one_out(name: str, truths: Sequence[FoldMember]) -> list[Fold]:
    """One fold for each value; episodes without a fault go with their application, or are dealt out."""
    value_of = _LEFT_OUT[name]
    by_app = name == "leave-one-app-out"
    values = list(dict.fromkeys(value_of(truth) for truth in truths if truth.faulty or by_app))
    if len(values) < 2:
        what = name.removeprefix("leave-one-").removesuffix("-out")
        raise UsageError(f"--split {name} needs faults of two or more values of {what}; this version has {len(values)}")
    parts: dict[Hashable, list[FoldMember]] = {value: [] for value in values}
    healthy = [truth for truth in truths if not truth.faulty]
    for truth in truths:
        if truth.faulty or by_app:
            parts[value_of(truth)].append(truth)
    if not by_app:
        for place, truth in enumerate(healthy):
            parts[values[place % len(values)]].append(truth)
    return _folds(list(parts.values()), apart=None if by_app else value_of)


def _folds(
    parts: Sequence[Sequence[FoldMember]],
    *,
    first: int = 0,
    apart: Callable[[FoldMember], tuple[Hashable, ...]] | None = None,
) -> list[Fold]:
    """Make a fold of every part; what has one of the values of `apart` that the part has is not learned from."""
    folds = []
    for number, part in enumerate(parts):
        rest = [truth for other, truths in enumerate(parts) if other != number for truth in truths]
        if apart is not None:
            tested = {value for truth in part if truth.faulty for value in apart(truth)}
            rest = [truth for truth in rest if not truth.faulty or tested.isdisjoint(apart(truth))]
        if part:
            folds.append(_fold(first + number, rest, part))
    return folds


def _fold(number: int, train: Sequence[FoldMember], test: Sequence[FoldMember]) -> Fold:
    return Fold(
        number=number,
        healthy_train=tuple(truth.episode for truth in train if not truth.faulty),
        faulty_train=tuple(truth.episode for truth in train if truth.faulty),
        test=tuple(truth.episode for truth in sorted(test, key=lambda truth: not truth.faulty)),
    )


def _published(name: str, split: Mapping[str, Sequence[str]], truths: Sequence[FoldMember]) -> Fold:
    """Learn from the training episodes, score the test episodes."""
    known = {truth.episode: truth for truth in truths}
    both = set(split["train"]) & set(split["test"])
    if both:
        raise UsageError(
            f'split "{name}" has {len(both)} episodes on both sides (first: {min(both)}); publish it again'
        )
    test = [known[e] for e in split["test"] if e in known]
    if not test:
        raise UsageError(f'split "{name}" has no test episode in this version; choose another with --split')
    return _fold(0, [known[e] for e in split["train"] if e in known], test)


@dataclass(frozen=True, kw_only=True)
class EpisodeLabel:
    """What a model may be taught of one episode; never among its inputs."""

    episode: str
    """Id of the episode."""
    app: str
    """Name of the application."""
    fault: str | None
    """Name of the fault; None without one."""
    targets: tuple[str, ...]
    """Services that the fault was applied to."""
    system_level: str | None
    """Where the fault is; None without one."""
    fault_type: str | None
    """What kind of fault it is; None without one."""
    onset_ns: int | None
    """When the injection began, UTC nanoseconds; None without a fault, and where it is not known."""
    problems: tuple[tuple[str, ...], ...]
    """Application, fault and target of every fault."""
    causes: frozenset[str]
    """Services that are a right answer: those of the root causes, and other names that are accepted."""

    @property
    def faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @property
    def cluster(self) -> tuple[str, ...]:
        """Key under which repetitions of one problem count as one; see `cluster_of`."""
        return cluster_of(self.episode, self.app, self.fault, self.targets)


def episode_labels(dataset: Dataset, episodes: Iterable[str] | None = None) -> dict[str, EpisodeLabel]:
    """Return what is true of episodes, by id; of all episodes of the version by default."""
    found = {}
    for episode in dataset.episodes if episodes is None else episodes:
        label, app = dataset.label(episode), dataset.view(episode).context.app
        found[episode] = EpisodeLabel(
            episode=episode,
            app=app,
            fault=label.fault,
            targets=tuple(label.targets),
            system_level=label.system_level,
            fault_type=label.fault_type,
            onset_ns=label.onset_ns,
            problems=problems_of(app, label.problems),
            causes=frozenset(name for cause in label.root_causes for name in (cause.service, *cause.accepted)),
        )
    return found


def dataset_folds(dataset: Dataset, split: str | None = None) -> list[Fold]:
    """Return the folds that `evaluate --split` uses: train on one side, predict the other.

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
        Each with `healthy_train` (episodes without a fault), `faulty_train` (with one) and `test`. Episodes of one
        (application, fault, target) are on one side.

    Raises
    ------
    UsageError
        There is no such split, or it leaves nothing to learn from or to test.
    """
    splits = {name: dict(sides) for name, sides in dataset.splits.items()}
    return folds_of_split(split, splits, list(episode_labels(dataset).values()))
