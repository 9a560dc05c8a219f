"""Where the episodes of a campaign go: a folder that all who write them see, or a URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from faultset.collector.campaigns.output_folder import check_output_folder
from faultset.collector.campaigns.records import campaign_file, recorded_outcome
from faultset.collector.campaigns.url_destination import UrlDestination
from faultset.collector.campaigns.worker_folders import WorkerFolder
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.versions import EpisodeSummary
from faultset.datasets.remote.file_systems import is_url


class Destination(Protocol):
    """Where the episodes of a campaign go, as the command sees it that runs the campaign, and each of its workers."""

    @property
    def location(self) -> str:
        """What people call it: a path or a URL."""
        ...

    @property
    def folder(self) -> Path:
        """The folder of this machine in which episodes are run: the dataset, or the local part of one behind a URL."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether the folder is the dataset, so that workers must see it under the same path."""
        ...

    def for_workers(self) -> Destination:
        """Return the same, as it is called from any working directory."""
        ...

    def check(self) -> None:
        """Raise DataError or PlatformError when no dataset can be there, or nothing can be written."""
        ...

    def has_campaign(self, campaign: str) -> bool:
        """Say whether the dataset has the file of a campaign."""
        ...

    def outcome(self, episode: str) -> EpisodeOutcome | None:
        """Return the outcome of an episode; None when it is not there."""
        ...

    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        """Take a finished episode from the folder of its run; say False when it is there already."""
        ...

    def update(self) -> None:
        """Bring the folder up to date with the dataset, and the dataset with what the folder has finished."""
        ...

    def add_finished(self, episodes: Iterable[str]) -> None:
        """Take those finished episodes that are in the folder, if they are not there yet."""
        ...

    def save(self, path: Path) -> None:
        """Take a file of a campaign that was written into the folder."""
        ...

    def summaries(self) -> Mapping[str, EpisodeSummary]:
        """Return what is known of episodes whose files are not all in the folder."""
        ...

    def publish_version(self, version: str) -> None:
        """Take a version that was written into the folder."""
        ...


@dataclass(frozen=True)
class FolderDestination:
    """A dataset in a folder: nothing is to be copied."""

    folder: Path
    is_shared = True

    @property
    def location(self) -> str:
        """The folder's path."""
        return str(self.folder)

    def for_workers(self) -> FolderDestination:
        """Return the same with an absolute path."""
        return FolderDestination(self.folder.resolve())

    def check(self) -> None:
        """Raise DataError when the folder holds something else."""
        check_output_folder(self.folder)

    def has_campaign(self, campaign: str) -> bool:
        """Say whether the dataset has the file of a campaign."""
        return campaign_file(self.folder, campaign).is_file()

    def outcome(self, episode: str) -> EpisodeOutcome | None:
        """Return the outcome of an episode; None when it is not there."""
        return recorded_outcome(self.folder, episode) if (self.folder / EPISODES / episode).exists() else None

    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        """Rename a finished episode into the dataset."""
        return run.hand_over(self.folder, episode)

    def update(self) -> None:
        """Do nothing."""

    def add_finished(self, episodes: Iterable[str]) -> None:
        """Do nothing."""

    def save(self, path: Path) -> None:
        """Do nothing."""

    def summaries(self) -> Mapping[str, EpisodeSummary]:
        """Return nothing: all files are in the folder."""
        return {}

    def publish_version(self, version: str) -> None:
        """Do nothing."""


def open_destination(out: str | Path) -> Destination:
    """Return what `--out` names: any URL that fsspec can write to, or a folder.

    Raises
    ------
    UsageError
        Nothing can be written to such a URL.
    PlatformError
        The package is missing that speaks its protocol.
    """
    text = str(out)
    if is_url(text):
        return UrlDestination.of(text)
    return FolderDestination(Path(text.removeprefix("file://").removeprefix("local://")))
