"""Training and test sides of an opened dataset, by the same rules as evaluations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faultset.datasets.training.folds import Fold, cluster_of, folds_of_split, problems_of

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset


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
