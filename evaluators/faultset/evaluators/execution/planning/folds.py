"""Which healthy episodes a baseline learns from, and which episodes it is then run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name
from faultset.evaluators.results.truth import Truth

CROSS = "cross"


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Training and test episodes. Methods learn from no-fault episodes only."""

    number: int
    train: tuple[str, ...]
    """No-fault training episodes."""
    faulty_train: tuple[str, ...]
    """Training episodes with a fault, whose labels some methods are given."""
    test: tuple[str, ...]


def folds_of_split(name: str, splits: Mapping[str, Mapping[str, Sequence[str]]], truths: Sequence[Truth]) -> list[Fold]:
    """Folds of a published split: learn from its healthy training episodes, score its test episodes."""
    if name not in splits:
        raise unknown_name("split", name, [*splits, CROSS])
    split = splits[name]
    known = {truth.episode: truth for truth in truths}
    train = tuple(e for e in split["train"] if e in known and not known[e].faulty)
    faulty_train = tuple(e for e in split["train"] if e in known and known[e].faulty)
    test = tuple(e for e in split["test"] if e in known)
    both = set(split["train"]) & set(split["test"])
    if both:
        raise UsageError(
            f'split "{name}" has {len(both)} episodes on both sides (first: {min(both)}); publish it again'
        )
    if not test:
        raise UsageError(f'split "{name}" has no test episode in this version; choose another with --split')
    return [Fold(number=0, train=train, faulty_train=faulty_train, test=test)]


def cross_folds(truths: Sequence[Truth]) -> list[Fold]:
    """Two folds over the whole dataset: each healthy half is scored by what learned from the other half.

    Every episode is scored once and by a model that never saw it, so nothing of a small dataset is wasted.
    Halves are taken alternately per application, in the order of the version's list.
    """
    healthy: tuple[list[str], list[str]] = ([], [])
    faulty: tuple[list[str], list[str]] = ([], [])
    counts: dict[tuple[str, bool], int] = {}
    for truth in truths:
        key = (truth.app, truth.faulty)
        side = counts.get(key, 0) % 2
        counts[key] = counts.get(key, 0) + 1
        (faulty if truth.faulty else healthy)[side].append(truth.episode)
    folds = [
        Fold(
            number=side,
            train=tuple(healthy[1 - side]),
            faulty_train=tuple(faulty[1 - side]),
            test=tuple(faulty[side] + healthy[side]),
        )
        for side in (0, 1)
    ]
    return [fold for fold in folds if fold.test]
