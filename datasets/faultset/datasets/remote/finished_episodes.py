"""Episodes that are written straight to a URL, by several machines that share nothing else.

The files of an episode go to a folder of their own in `.workers/`. Then a record in `finished/` is written, if the
episode has none yet; it names that folder, and from then on the episode is there. At last its files are moved to
`episodes/`. So nobody ever mixes files of two runs of one episode: whoever goes on with an interrupted move, moves what
the record names. Readers see an episode when it is in a version.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, StringConstraints

from faultset.core.errors import DataError, FaultsetError
from faultset.core.reading.documents import STRICT, checked, parse_object
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.names import EpisodeFile, EpisodeId, Name, is_episode_id
from faultset.datasets.format.summaries import summarize_episode
from faultset.datasets.remote.file_systems import fetch_present
from faultset.datasets.remote.writing import RemoteFolder

FINISHED = "finished"
ARRIVING = ".workers"
_TOGETHER = 500


@dataclass(frozen=True, kw_only=True)
class FinishedEpisode:
    """What a dataset behind a URL says of an episode that is there."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: EpisodeId
    """Its id."""
    run: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,140}$")]
    """The folder in which its files came."""
    verdict: Name
    """The verdict of its label."""
    files: Mapping[EpisodeFile, FileRecord]
    """Path in its folder -> record of the file."""

    def to_json(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes, *, origin: str) -> FinishedEpisode:
        """Read the content of its file; raise DataError when it is not one."""
        return checked(parse_object(content, origin), cls, origin)


class FinishedEpisodes:
    """The episodes of a dataset behind a URL that were written there one by one.

    Parameters
    ----------
    url
        Any URL that fsspec can write to.
    """

    def __init__(self, url: str) -> None:
        self.folder = RemoteFolder(url)

    def find(self, episode: str) -> FinishedEpisode | None:
        """Return what is known of an episode; None when it is not there."""
        name = f"{FINISHED}/{episode}.json"
        found = fetch_present(self.folder.url, [name])
        return self._read(name, found[name]) if found else None

    def records(self) -> dict[str, FinishedEpisode]:
        """Return what is known of each episode that is there, by its id."""
        entries = (name.removesuffix(".json") for name in self.folder.entries(FINISHED) if name.endswith(".json"))
        names = [f"{FINISHED}/{episode}.json" for episode in entries if is_episode_id(episode)]
        found: dict[str, FinishedEpisode] = {}
        for first in range(0, len(names), _TOGETHER):
            for name, content in fetch_present(self.folder.url, names[first : first + _TOGETHER]).items():
                record = self._read(name, content)
                found[record.episode] = record
        return found

    def add(self, path: Path, episode: str) -> bool:
        """Copy an episode from a local folder; say False when it is there already, of whatever run.

        Raises
        ------
        DataError
            The local folder is damaged.
        PlatformError
            The place cannot be written to. Nothing is there then that readers see.
        """
        summary = summarize_episode(path)
        record = FinishedEpisode(
            episode=episode,
            run=f"{episode}-{secrets.token_hex(8)}",
            verdict=summary.label.verdict,
            files=summary.files,
        )
        arriving, content = f"{ARRIVING}/{record.run}", record.to_json()
        try:
            self.folder.put_all({f"{arriving}/{name}": path / name for name in record.files})
        except BaseException:
            with suppress(FaultsetError):
                self.folder.remove(arriving)
            raise
        # where it is not known whether this has happened, the files stay until the episode is finished
        is_new = self.folder.create(f"{FINISHED}/{episode}.json", content) == content
        if is_new:
            self._settle(record)
        else:
            self.folder.remove(arriving)
        return is_new

    def settle(self, records: Mapping[str, FinishedEpisode]) -> None:
        """Finish moves that were interrupted, and remove what other runs of finished episodes have left.

        What belongs to no finished episode stays: it may be arriving.
        """
        for run in self.folder.entries(ARRIVING):
            record = records.get(run.rpartition("-")[0])
            if record is not None and record.run == run:
                self._settle(record)
            elif record is not None:
                self.folder.remove(f"{ARRIVING}/{run}")

    def check_whole(self, files: Mapping[str, Mapping[str, FileRecord]]) -> None:
        """Raise DataError unless all files of some episodes are there with their recorded size."""
        sizes = self.folder.sizes(EPISODES)
        missing = [
            f"{EPISODES}/{episode}/{name}"
            for episode, records in files.items()
            for name, record in records.items()
            if sizes.get(f"{episode}/{name}") != record.bytes
        ]
        if missing:
            raise DataError(
                f"{len(missing)} files of finished episodes are not whole at {self.folder.url} (first: {missing[0]}); "
                f"restore them, or remove the files of their episodes in {FINISHED}/ to run those again"
            )

    def _read(self, name: str, content: bytes) -> FinishedEpisode:
        record = FinishedEpisode.from_json(content, origin=f"{self.folder.url}/{name}")
        if name != f"{FINISHED}/{record.episode}.json":
            raise DataError(f"{self.folder.url}/{name} is of another episode; remove it to run that one again")
        return record

    def _settle(self, record: FinishedEpisode) -> None:
        self.folder.move(f"{ARRIVING}/{record.run}", f"{EPISODES}/{record.episode}", record.files)
