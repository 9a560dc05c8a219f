"""Destinations of a campaign's episodes: a folder, shared by all writers, or a URL."""

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

from faultset.collector.campaigns.output_folder import CAMPAIGNS, WorkerFolder, check_output_folder
from faultset.collector.campaigns.records import campaign_file, find_episode
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.core.errors import DataError, PlatformError
from faultset.datasets.format.cards import CARD
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import EPISODES, TELEMETRY, table_file
from faultset.datasets.format.labels import read_label
from faultset.datasets.format.version_files import VERSIONS, FileRecord, compute_sha256
from faultset.datasets.format.versions import EpisodeSummary, complete_episodes, list_versions, read_version
from faultset.datasets.remote.file_systems import fetch, fetch_present, is_url
from faultset.datasets.remote.writing import ARRIVING, FINISHED, FinishedEpisode, FinishedEpisodes, RemoteFolder

_DATASET_CONTENT = (ARRIVING, CAMPAIGNS, CARD, EPISODES, FINISHED, VERSIONS)
_CAMPAIGN_FILES = (CONTEXT_FILE, table_file("label"), table_file("evidence"))
_DOCUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.json")
_FILES_PER_FETCH = 500
PAUSES_S = (5.0, 30.0)
"""Pauses before a worker retries copying an episode."""

_log = logging.getLogger(__name__)


class Destination(ABC):
    """Destination of a campaign's episodes, for the `collect` command and for each worker.

    Methods that copy between the folder and a URL do nothing by default.
    """

    is_shared = False
    """Whether workers must be able to access the dataset's folder under the same path."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Path or URL to show to users."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Local folder in which episodes run: the dataset itself, or the local copy of a dataset at a URL."""

    def for_workers(self) -> Destination:
        """Return the destination with an absolute path."""
        return self

    @abstractmethod
    def check(self) -> None:
        """Raise DataError or PlatformError unless a dataset can be written there."""

    @abstractmethod
    def has_campaign(self, campaign: str) -> bool:
        """Return whether the dataset has the file of a campaign."""

    @abstractmethod
    def outcome(self, episode: str) -> EpisodeOutcome | None:
        """Return the outcome of an episode; None if the dataset does not have it."""

    @abstractmethod
    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        """Move a finished episode from its worker's folder to the dataset; return whether it was new."""

    def update(self) -> None:  # noqa: B027
        """Synchronise the folder with the dataset."""

    def add_finished(self, episodes: Iterable[str]) -> None:  # noqa: B027
        """Copy finished episodes from the folder to the dataset."""

    def save(self, path: Path) -> None:  # noqa: B027
        """Copy a campaign's file from the folder to the dataset."""

    def summaries(self) -> Mapping[str, EpisodeSummary]:
        """Return summaries of episodes whose files are not all in the folder."""
        return {}

    def publish_version(self, version: str) -> None:  # noqa: B027
        """Copy a version from the folder to the dataset."""


@dataclass(frozen=True)
class FolderDestination(Destination):
    """A dataset in a folder; copying is unnecessary."""

    root: Path
    is_shared = True

    @property
    def location(self) -> str:
        return str(self.root)

    @property
    def folder(self) -> Path:
        return self.root

    def for_workers(self) -> FolderDestination:
        return FolderDestination(self.root.resolve())

    def check(self) -> None:
        check_output_folder(self.root)

    def has_campaign(self, campaign: str) -> bool:
        return campaign_file(self.root, campaign).is_file()

    def outcome(self, episode: str) -> EpisodeOutcome | None:
        return find_episode(self.root, episode)

    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        return run.hand_over(self.root, episode)


@dataclass(frozen=True)
class UrlDestination(Destination):
    """A dataset at a URL, with a local copy on each machine that runs episodes.

    The local copy has the layout of a dataset. It contains all files of running episodes, and the context and truth of
    episodes at the URL, because the campaign reads them. If the two differ, the URL wins.
    """

    url: str

    @property
    def location(self) -> str:
        return self.url

    @staticmethod
    def of(url: str) -> UrlDestination:
        """Return the destination at a URL; raise UsageError or PlatformError if it cannot be opened."""
        return UrlDestination(RemoteFolder(url).url)

    @property
    def folder(self) -> Path:
        """The local copy: `~/.cache/faultset/collect/<hash of the URL>/<name>`, or below `XDG_CACHE_HOME`."""
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        digest = hashlib.sha256(self.location.encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9._-]|^\.+", "-", self.location.rpartition("/")[2])
        return Path(caches) / "faultset" / "collect" / digest / name

    def check(self) -> None:
        """Raise DataError if the URL has files but no dataset, PlatformError if it is not writable."""
        remote = RemoteFolder(self.location)
        content = remote.entries()
        if content and not {*content} & {*_DATASET_CONTENT}:
            raise DataError(
                f"--out must be a dataset or an empty URL, but {self.location} contains {content[0]!r}. Choose another"
            )
        trial = f"{ARRIVING}/trial-{secrets.token_hex(8)}"
        remote.write(trial, b"faultset checks whether it can write here")
        remote.remove(trial)

    def has_campaign(self, campaign: str) -> bool:
        return bool(fetch_present(self.location, [f"{CAMPAIGNS}/{campaign}.json"]))

    def outcome(self, episode: str) -> EpisodeOutcome | None:
        record = FinishedEpisodes(self.location).find(episode)
        return EpisodeOutcome(episode=episode, verdict=record.verdict) if record else None

    def hand_over(self, run: WorkerFolder, episode: str) -> bool:
        for pause_s in PAUSES_S:
            try:
                return FinishedEpisodes(self.location).add(run.path / EPISODES / episode, episode)
            except PlatformError as error:
                _log.warning("copying episode %s failed, retrying in %g s: %s", episode, pause_s, error)
                time.sleep(pause_s)
        return FinishedEpisodes(self.location).add(run.path / EPISODES / episode, episode)

    def update(self) -> None:
        """Copy finished episodes to the URL, then update the local copy from the URL."""
        episodes = FinishedEpisodes(self.location)
        records = episodes.records()
        episodes.settle(records)
        for name in (CAMPAIGNS, VERSIONS):
            self._copy_documents(episodes.folder, name)
        self._copy({CARD: self.folder / CARD})
        remote_files = self._list_files(records)
        for episode in complete_episodes(self.folder):
            path = self.folder / EPISODES / episode
            # another run has stored the episode first, or the URL no longer has it
            if (episode in remote_files) == (path / TELEMETRY).exists():
                shutil.rmtree(path)
        self.add_finished(complete_episodes(self.folder))
        self._copy_truth(remote_files)

    def add_finished(self, episodes: Iterable[str]) -> None:
        """Copy finished episodes to the URL; keep only their truth in the local copy."""
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
        RemoteFolder(self.location).write(path.relative_to(self.folder).as_posix(), path.read_bytes())

    def summaries(self) -> dict[str, EpisodeSummary]:
        summaries = {}
        for episode, files in self._list_files(FinishedEpisodes(self.location).records()).items():
            path = self.folder / EPISODES / episode
            context = read_context(path)
            summaries[episode] = EpisodeSummary(
                app=context.app,
                label=read_label(path),
                files=files,
                stamps={},
                added_tables=context.added_tables,
                app_title=context.app_title,
            )
        return summaries

    def publish_version(self, version: str) -> None:
        """Copy a version to the URL, which must already have all files that it names; raise DataError otherwise."""
        episodes, path = FinishedEpisodes(self.location), self.folder / VERSIONS / f"{version}.json"
        episodes.check_complete(read_version(self.folder, version).episodes)
        content = path.read_bytes()
        if episodes.folder.create(f"{VERSIONS}/{version}.json", content) != content:
            path.unlink()
            raise DataError(
                f"another command has published version {version} of {self.location}. Run the same command again to "
                "publish the next one"
            )
        episodes.folder.put(self.folder / CARD, CARD)

    def _list_files(self, records: Mapping[str, FinishedEpisode]) -> dict[str, Mapping[str, FileRecord]]:
        """Return the files of all episodes at the URL, including episodes that no version names."""
        files: dict[str, Mapping[str, FileRecord]] = {}
        for version in list_versions(self.folder):
            files |= read_version(self.folder, version).episodes
        return files | {episode: record.files for episode, record in records.items()}

    def _copy_documents(self, remote: RemoteFolder, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        documents = filter(_DOCUMENT.fullmatch, remote.entries(name))
        self._copy({f"{name}/{document}": self.folder / name / document for document in documents})

    def _copy(self, targets: Mapping[str, Path]) -> None:
        """Copy files from the URL; delete local files that the URL does not have."""
        contents = fetch_present(self.location, list(targets)) if targets else {}
        for name, path in targets.items():
            path.unlink(missing_ok=True)
            if name in contents:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(contents[name])

    def _copy_truth(self, files: Mapping[str, Mapping[str, FileRecord]]) -> None:
        """Copy the files that the campaign reads, unless the local copy already has them."""
        folder = self.folder / EPISODES
        digests = {
            f"{episode}/{name}": records[name].sha256
            for episode, records in files.items()
            for name in _CAMPAIGN_FILES
            if name in records
        }
        outdated_files = [
            name
            for name, digest in digests.items()
            if not (folder / name).is_file() or compute_sha256(folder / name) != digest
        ]
        for first in range(0, len(outdated_files), _FILES_PER_FETCH):
            contents = fetch(f"{self.location}/{EPISODES}", outdated_files[first : first + _FILES_PER_FETCH], digests)
            for name, content in contents.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)


def open_destination(out: str | Path) -> Destination:
    """Return the destination that `--out` names: a folder, or a URL that fsspec can write to.

    Raises UsageError if URLs of this kind cannot be written to, and PlatformError if the package for the protocol is
    missing.
    """
    text = str(out)
    if is_url(text):
        return UrlDestination.of(text)
    return FolderDestination(Path(text.removeprefix("file://").removeprefix("local://")))
