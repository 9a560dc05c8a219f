"""Train and test sides of a version, made once and stored with it.

What must not be on both sides differs: a (fault, target) pair in `by-episode`, a fault in `by-fault`, a target in
`by-target`, an app in `by-app`. Episodes without a fault belong to no such group and go to both sides alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from faultset.datasets.format.labels import Label
from faultset.datasets.format.manifests import Split


def make_splits(labels: Mapping[str, Label], apps: Mapping[str, str], *, seed: int = 0) -> dict[str, Split]:
    """Return every split that the episodes allow: a grouped one needs at least two groups.

    Parameters
    ----------
    labels
        Label of every episode.
    apps
        App of every episode.
    seed
        Shuffles; equal seeds give equal splits.
    """
    faulty = {episode: label for episode, label in labels.items() if label.fault is not None}
    healthy = [episode for episode in labels if episode not in faulty]
    calm = _dealt({episode: (labels[episode].no_fault_kind or "") for episode in healthy}, seed)
    problems = {episode: label.problems for episode, label in faulty.items()}
    splits = {"by-episode": _split("fault and target", _problems_dealt(problems, seed) | calm)}
    faults = {episode: label.fault_names for episode, label in faulty.items()}
    targets = {episode: sorted(label.targets) for episode, label in faulty.items()}
    for name, key, groups in (("by-fault", "fault", faults), ("by-target", "target", targets)):
        sides = _groups_dealt(groups, seed)
        if sides is not None:
            splits[name] = _split(key, sides | calm)
    sides = _groups_dealt({episode: [app] for episode, app in apps.items()}, seed)
    if sides is not None:
        splits["by-app"] = _split("app", sides)
    return splits


def _split(key: str, sides: Mapping[str, str]) -> Split:
    return Split(
        key=key,
        train=tuple(sorted(episode for episode, side in sides.items() if side == "train")),
        test=tuple(sorted(episode for episode, side in sides.items() if side == "test")),
    )


def _order(name: str, seed: int) -> str:
    """Return what to sort by to shuffle names in a way that only they and the seed decide."""
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


def _alternating(names: Sequence[str], seed: int, first: str = "test") -> dict[str, str]:
    other = "train" if first == "test" else "test"
    shuffled = sorted(names, key=lambda name: _order(name, seed))
    return {name: first if number % 2 == 0 else other for number, name in enumerate(shuffled)}


def _dealt(strata: Mapping[str, str], seed: int) -> dict[str, str]:
    """Deal names to both sides, each stratum evenly, the odd ones in turn."""
    sides: dict[str, str] = {}
    first = "test"
    for stratum in sorted(set(strata.values())):
        names = [name for name, found in strata.items() if found == stratum]
        sides |= _alternating(names, seed, first)
        if len(names) % 2:
            first = "train" if first == "test" else "test"
    return sides


def _problems_dealt(problems: Mapping[str, Sequence[tuple[str, ...]]], seed: int) -> dict[str, str]:
    """Deal whole (fault, target) groups, so that each fault is on both sides where it has two targets."""
    groups = {episode: ["/".join(one) for one in found] for episode, found in problems.items()}
    clusters = _clusters(groups)
    sides = _dealt({cluster: cluster.partition("/")[0] for cluster in clusters.values()}, seed)
    return {episode: sides[cluster] for episode, cluster in clusters.items()}


def _groups_dealt(groups: Mapping[str, Sequence[str]], seed: int) -> dict[str, str] | None:
    """Deal episodes so that no group is on both sides."""
    clusters = _clusters(groups)
    if len(set(clusters.values())) < 2:
        return None
    sides = _alternating(sorted(set(clusters.values())), seed)
    return {episode: sides[cluster] for episode, cluster in clusters.items()}


def _clusters(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Name one group for each episode, the same for all episodes that are connected by groups."""
    leader: dict[str, str] = {}

    def find(group: str) -> str:
        while leader.setdefault(group, group) != group:
            group = leader[group]
        return group

    for members in groups.values():
        for member in members[1:]:
            leader[find(member)] = find(members[0])
    return {episode: find(members[0]) for episode, members in groups.items() if members}
