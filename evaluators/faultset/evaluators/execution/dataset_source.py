"""A dataset version as an evaluation needs it, whether it lies in a folder or behind a URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from faultset.core.errors import DataError
from faultset.datasets.checks.references import ReferenceGaps, gap_messages, reference_gaps
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import EPISODES, TRUTH, table_file
from faultset.datasets.format.manifests import VERSIONS
from faultset.datasets.format.truth import read_label
from faultset.datasets.remote.file_systems import is_url, local_path
from faultset.datasets.remote.local_copies import opened_labels
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.known_labels import known_or_read
from faultset.evaluators.execution.remote_episodes import EpisodeLocation
from faultset.evaluators.results.truth import Truth, truth_of

_READERS = 2
"""Threads; more of them would wait for each other, since most of it is Python."""
_SPANS = table_file("spans")
_LABELS = (CONTEXT_FILE, table_file("label"))
_COMPARED = (CONTEXT_FILE, table_file("metrics"))


@dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """Labels of a dataset version, and where its episodes are."""

    name: str
    version: str
    digest: str
    """SHA-256 of the version's list of files."""
    folder: Path
    """Dataset folder; for a URL a local copy of contexts and labels."""
    truths: tuple[Truth, ...]
    splits: dict[str, dict[str, list[str]]]
    has_spans: bool
    """Whether every episode has spans."""
    url: str | None = None
    checksums: dict[str, dict[str, str]] = field(default_factory=dict)
    """Episode -> file -> SHA-256."""

    @classmethod
    def of(cls, dataset: Dataset, *, url: str | None = None) -> DatasetSource:
        """Read the labels of all episodes of an opened dataset version."""
        root = Path(dataset.root).resolve()
        if not dataset.episodes:
            raise DataError(f"{url or root} version {dataset.version} has no episodes; collect some first")
        listing = root / VERSIONS / f"{dataset.version}.json"
        folders = [root / EPISODES / episode for episode in dataset.episodes]
        truths = (
            _truths_of(folders)
            if url
            else known_or_read(tuple[Truth, ...], folders, _LABELS, partial(_truths_of, folders))
        )
        return cls(
            name=url.rstrip("/").rpartition("/")[2] if url else root.name,
            version=dataset.version,
            digest=hashlib.sha256(listing.read_bytes()).hexdigest(),
            folder=root,
            truths=truths,
            splits={name: dict(split) for name, split in dataset.splits.items()},
            has_spans=all(_SPANS in files and files[_SPANS].rows for files in dataset.files.values()),
            url=url,
            checksums={
                episode: {name: record.sha256 for name, record in files.items()}
                for episode, files in dataset.files.items()
            },
        )

    def reference_gaps(self) -> list[str]:
        """Say what the metrics of the episodes lack; an empty list for a URL, whose telemetry is not at hand."""
        if self.url is not None:
            return []
        folders = [self.folder / EPISODES / truth.episode for truth in self.truths]
        gaps = known_or_read(tuple[ReferenceGaps | None, ...], folders, _COMPARED, partial(_gaps_of, folders))
        found = {folder.name: one for folder, one in zip(folders, gaps, strict=True) if one}
        return gap_messages(found, {truth.episode: len(truth.candidates) for truth in self.truths})

    def location(self, episode: str) -> EpisodeLocation:
        """Return where the files of an episode are."""
        files = self.checksums.get(episode, {})
        content = _content_of(files)
        if self.url is None:
            return EpisodeLocation(folder=str(self.folder / EPISODES / episode), content=content)
        return EpisodeLocation(folder=f"{self.url}/{EPISODES}/{episode}", files=files, content=content)


def _content_of(files: Mapping[str, str]) -> str:
    """Return a hash of the checksums of an episode's files without its truth; empty where there are none."""
    lines = [f"{name} {sha256}\n" for name, sha256 in sorted(files.items()) if not name.startswith(f"{TRUTH}/")]
    return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else ""


def _truths_of(episodes: Iterable[Path]) -> tuple[Truth, ...]:
    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(_truth_at, episodes))


def _gaps_of(episodes: Iterable[Path]) -> tuple[ReferenceGaps | None, ...]:
    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(_gaps_at, episodes))


def _gaps_at(episode: Path) -> ReferenceGaps | None:
    # files that were damaged meanwhile are named with the methods that meet them
    with suppress(DataError):
        return reference_gaps(EpisodeView(episode))
    return None


def _truth_at(episode: Path) -> Truth:
    return truth_of(read_label(episode), read_context(episode))


@contextmanager
def opened_dataset(
    dataset: str | Path | Dataset, version: str | None, workers: int
) -> Iterator[Callable[[], DatasetSource]]:
    """Open a dataset version; yield a function that reads its labels and, of a folder, checks its files.

    Parameters
    ----------
    dataset
        Folder, URL, or a dataset that is open already.
    workers
        Threads that compare files with their checksums.
    """
    if isinstance(dataset, str) and is_url(dataset):
        with opened_remotely(dataset, version) as source:
            yield lambda: source
        return
    opened = open_dataset(local_path(str(dataset)), version) if isinstance(dataset, str | Path) else dataset

    def read() -> DatasetSource:
        check_content(opened, workers)
        return DatasetSource.of(opened)

    yield read


def check_content(dataset: Dataset, threads: int) -> None:
    """Check every file of a version.

    Results name the version they belong to, so the content must be the version's; and a damaged file would
    otherwise look like the failure of every baseline that reads it.

    Raises
    ------
    DataError
        A file is damaged, or differs from its checksum.
    """
    dataset.check_files(threads)


@contextmanager
def opened_remotely(url: str, version: str | None) -> Iterator[DatasetSource]:
    """Open a dataset version behind a URL: its list, contexts and labels are copied, telemetry is not.

    Where a server cannot list a folder, the version must be named.
    """
    with opened_labels(url, version) as dataset:
        yield DatasetSource.of(dataset, url=url.rstrip("/"))
