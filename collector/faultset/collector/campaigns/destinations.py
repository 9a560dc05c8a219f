"""Where the episodes of a campaign go: a folder that all who write them see, or a URL."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultset.collector.campaigns.output_folder import WorkerFolder, check_output_folder
from faultset.collector.campaigns.records import CAMPAIGNS, campaign_file, recorded_outcome
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.core.errors import DataError, PlatformError
from faultset.datasets.format.cards import CARD
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import EPISODES, TELEMETRY, table_file
from faultset.datasets.format.labels import read_label
from faultset.datasets.format.manifests import VERSIONS, FileRecord
from faultset.datasets.format.versions import EpisodeSummary, complete_episodes, list_versions, read_manifest, sha256_of
from faultset.datasets.remote.file_systems import fetch, fetch_present, is_url
from faultset.datasets.remote.writing import ARRIVING, FINISHED, FinishedEpisode, FinishedEpisodes, RemoteFolder

_CONTENT = (ARRIVING, CAMPAIGNS, CARD, EPISODES, FINISHED, VERSIONS)
_READ = (CONTEXT_FILE, table_file("label"), table_file("evidence"))
_DOCUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.json")
_TOGETHER = 500
PAUSES_S = (5.0, 30.0)
"""How long a worker waits before it tries again to copy an episode that took minutes to run."""

_log = logging.getLogger(__name__)


class Destination(ABC):
    """Where the episodes of a campaign go, as the command sees it that runs the campaign, and each of its workers.

    What only a dataset needs that is not in the folder itself does nothing here.
    """

    is_shared = False
    """Whether the folder is the dataset, so that workers must see it under the same path."""

    @property
    @abstractmethod
    def location(self) -> str:
        """What people call it: a path or a URL."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of this machine in which episodes are run: the dataset, or the local part of one behind a URL."""

    def for_workers(self) -> Destination:
        """Return the same, as it is called from any working directory."""
        return self

    @abstractmethod
    def check(self) -> None:
        """Raise DataError or PlatformError when no dataset can be there, or nothing can be written."""

    @abstractmethod
    def has_campaign(self, campaign: str) -> bool:
        """Return whether the dataset has the file of a campaign."""

    @abstractmethod
    def outcome(self, episode: str) -> EpisodeOutcome | None:
        """Return the outcome of an episode; None when it is not there."""

    @abstractmethod
    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        """Take a finished episode from the folder of its run; return whether it was not there yet."""

    def update(self) -> None:  # noqa: B027
        """Bring the folder up to date with the dataset, and the dataset with what the folder has finished."""

    def add_finished(self, episodes: Iterable[str]) -> None:  # noqa: B027
        """Take those finished episodes that are in the folder, if they are not there yet."""

    def save(self, path: Path) -> None:  # noqa: B027
        """Take a file of a campaign that was written into the folder."""

    def summaries(self) -> Mapping[str, EpisodeSummary]:
        """Return what is known of episodes whose files are not all in the folder."""
        return {}

    def publish_version(self, version: str) -> None:  # noqa: B027
        """Take a version that was written into the folder."""


@dataclass(frozen=True)
class FolderDestination(Destination):
    """A dataset in a folder: nothing is to be copied."""

    root: Path
    is_shared = True

    @property
    def location(self) -> str:
        """The folder's path."""
        return str(self.root)

    @property
    def folder(self) -> Path:
        """The dataset itself."""
        return self.root

    def for_workers(self) -> FolderDestination:
        """Return the same with an absolute path."""
        return FolderDestination(self.root.resolve())

    def check(self) -> None:
        """Raise DataError when the folder holds something else."""
        check_output_folder(self.root)

    def has_campaign(self, campaign: str) -> bool:
        """Return whether the dataset has the file of a campaign."""
        return campaign_file(self.root, campaign).is_file()

    def outcome(self, episode: str) -> EpisodeOutcome | None:
        """Return the outcome of an episode; None when it is not there."""
        return recorded_outcome(self.root, episode) if (self.root / EPISODES / episode).exists() else None

    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        """Rename a finished episode into the dataset."""
        return run.hand_over(self.root, episode)


@dataclass(frozen=True)
class UrlDestination(Destination):
    """A dataset behind a URL: its local part, and what is copied in which order.

    The local part is a folder of the user on each machine that runs episodes. It is laid out like a dataset and holds
    what is under way, and of the episodes behind the URL only context and truth, which the campaign reads. What is
    behind the URL decides; the local part follows.
    """

    url: str

    @property
    def location(self) -> str:
        """The URL."""
        return self.url

    @staticmethod
    def of(url: str) -> UrlDestination:
        """Return the destination behind a URL; raise UsageError or PlatformError when it cannot be opened."""
        return UrlDestination(RemoteFolder(url).url)

    @property
    def folder(self) -> Path:
        """The local part: `~/.cache/faultset/collect/<hash of the URL>/<name>`, or below `XDG_CACHE_HOME`."""
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        digest = hashlib.sha256(self.location.encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9._-]|^\.+", "-", self.location.rpartition("/")[2])
        return Path(caches) / "faultset" / "collect" / digest / name

    def check(self) -> None:
        """Raise DataError when something else is there, and PlatformError when nothing can be written and removed."""
        remote = RemoteFolder(self.location)
        content = remote.entries()
        if content and not {*content} & {*_CONTENT}:
            raise DataError(
                f"{self.location} holds {content[0]!r} and is not a faultset dataset; name an empty or new place with "
                "--out"
            )
        trial = f"{ARRIVING}/trial-{secrets.token_hex(8)}"
        remote.write(trial, b"faultset looks whether it can write here")
        remote.remove(trial)

    def has_campaign(self, campaign: str) -> bool:
        """Say whether the dataset has the file of a campaign."""
        return bool(fetch_present(self.location, [f"{CAMPAIGNS}/{campaign}.json"]))

    def outcome(self, episode: str) -> EpisodeOutcome | None:
        """Return the outcome of an episode; None when it is not there."""
        record = FinishedEpisodes(self.location).find(episode)
        return EpisodeOutcome(episode=episode, verdict=record.verdict) if record else None

    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        """Copy a finished episode to the URL, trying again for a while; say False when one is there."""
        for pause_s in PAUSES_S:
            try:
                return FinishedEpisodes(self.location).add(run.path / EPISODES / episode, episode)
            except PlatformError as error:
                _log.warning("episode %s could not be copied and is copied again in %g s: %s", episode, pause_s, error)
                time.sleep(pause_s)
        return FinishedEpisodes(self.location).add(run.path / EPISODES / episode, episode)

    def update(self) -> None:
        """Make the local part follow what is behind the URL, after copying there what this machine had finished."""
        episodes = FinishedEpisodes(self.location)
        records = episodes.records()
        episodes.settle(records)
        for name in (CAMPAIGNS, VERSIONS):
            self._copy_documents(episodes.folder, name)
        self._copy({CARD: self.folder / CARD})
        there = self._files(records)
        for episode in complete_episodes(self.folder):
            path = self.folder / EPISODES / episode
            if episode in there and (path / TELEMETRY).exists():
                # another run of it was quicker
                shutil.rmtree(path)
            elif episode not in there and not (path / TELEMETRY).exists():
                shutil.rmtree(path)
        self.add_finished(complete_episodes(self.folder))
        self._copy_truth(there)

    def add_finished(self, episodes: Iterable[str]) -> None:
        """Copy those finished episodes to the URL that are whole in the local part; only their truth stays in it."""
        for episode in episodes:
            path = self.folder / EPISODES / episode
            if not (path / TELEMETRY).is_dir():
                continue
            finished = FinishedEpisodes(self.location)
            if finished.add(path, episode):
                shutil.rmtree(path / TELEMETRY)
            elif record := finished.find(episode):
                shutil.rmtree(path)
                finished.settle({episode: record})
                self._copy_truth({episode: record.files})

    def save(self, path: Path) -> None:
        """Copy a file of the local part to the URL."""
        RemoteFolder(self.location).write(path.relative_to(self.folder).as_posix(), path.read_bytes())

    def summaries(self) -> dict[str, EpisodeSummary]:
        """Return what is known of the episodes that are there."""
        found = {}
        for episode, files in self._files(FinishedEpisodes(self.location).records()).items():
            path = self.folder / EPISODES / episode
            context = read_context(path)
            found[episode] = EpisodeSummary(
                app=context.app,
                label=read_label(path),
                files=files,
                stamps={},
                added_tables=context.added_tables,
                app_title=context.app_title,
            )
        return found

    def publish_version(self, version: str) -> None:
        """Copy a version of the local part to the URL, after all files that it names.

        Raises
        ------
        DataError
            Files of its episodes are missing, or somebody else has made a version of that name meanwhile.
        """
        episodes, path = FinishedEpisodes(self.location), self.folder / VERSIONS / f"{version}.json"
        episodes.check_whole(read_manifest(self.folder, version).episodes)
        content = path.read_bytes()
        if episodes.folder.create(f"{VERSIONS}/{version}.json", content) != content:
            path.unlink()
            raise DataError(
                f"{self.location} has got another version {version} meanwhile; run the same command again to make the "
                "next one"
            )
        episodes.folder.put(self.folder / CARD, CARD)

    def _files(self, records: Mapping[str, FinishedEpisode]) -> dict[str, Mapping[str, FileRecord]]:
        """Return the files of all episodes that are there: those of versions, and those that have come since."""
        found: dict[str, Mapping[str, FileRecord]] = {}
        for version in list_versions(self.folder):
            found |= read_manifest(self.folder, version).episodes
        return found | {episode: record.files for episode, record in records.items()}

    def _copy_documents(self, remote: RemoteFolder, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        documents = filter(_DOCUMENT.fullmatch, remote.entries(name))
        self._copy({f"{name}/{document}": self.folder / name / document for document in documents})

    def _copy(self, targets: Mapping[str, Path]) -> None:
        """Copy files from the URL; those that are not there are not in the local part either."""
        found = fetch_present(self.location, list(targets)) if targets else {}
        for name, path in targets.items():
            path.unlink(missing_ok=True)
            if name in found:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found[name])

    def _copy_truth(self, files: Mapping[str, Mapping[str, FileRecord]]) -> None:
        """Copy what the campaign reads of episodes, if it is not in the local part as it is behind the URL."""
        folder = self.folder / EPISODES
        wanted = {
            f"{episode}/{name}": records[name].sha256
            for episode, records in files.items()
            for name in _READ
            if name in records
        }
        due = [
            name
            for name, digest in wanted.items()
            if not (folder / name).is_file() or sha256_of(folder / name) != digest
        ]
        for first in range(0, len(due), _TOGETHER):
            found = fetch(f"{self.location}/{EPISODES}", due[first : first + _TOGETHER], wanted)
            for name, content in found.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)


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
