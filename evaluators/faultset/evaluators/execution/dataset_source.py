"""A dataset version as an evaluation needs it, whether it lies in a folder or behind a URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from faultset.core.errors import DataError
from faultset.datasets.checks.telemetry import ReferenceGaps, gap_messages, reference_gaps
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, TRUTH, table_file
from faultset.datasets.format.labels import read_label
from faultset.datasets.format.manifests import VERSIONS
from faultset.datasets.remote.file_systems import is_url, local_path, opened_labels
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.label_cache import cached_or_read
from faultset.evaluators.execution.remote_episodes import EpisodeLocation
from faultset.evaluators.results.truth import Truth, truth_of

_READERS = 2
"""Threads; more of them would wait for each other, since most of it is Python."""
_SPANS = table_file("spans")
_READ = (CONTEXT_FILE, table_file("label"), table_file("metrics"))


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
    without_spans: frozenset[str] = frozenset()
    """Episodes that have no spans."""
    gaps: Mapping[str, ReferenceGaps] = field(default_factory=dict)
    """Episode -> what its metrics lack, of those that lack something; empty for a URL."""
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
        read = partial(_read_all, folders, with_gaps=url is None)
        found = read() if url else cached_or_read(tuple[_Facts, ...], folders, _READ, read)
        return cls(
            name=url.rstrip("/").rpartition("/")[2] if url else root.name,
            version=dataset.version,
            digest=hashlib.sha256(listing.read_bytes()).hexdigest(),
            folder=root,
            truths=tuple(facts.truth for facts in found),
            gaps={folder.name: facts.gaps for folder, facts in zip(folders, found, strict=True) if facts.gaps},
            splits={name: dict(split) for name, split in dataset.splits.items()},
            without_spans=frozenset(
                episode for episode, files in dataset.files.items() if _SPANS not in files or not files[_SPANS].rows
            ),
            url=url,
            checksums={
                episode: {name: record.sha256 for name, record in files.items()}
                for episode, files in dataset.files.items()
            },
        )

    def reference_gaps(self) -> list[str]:
        """Say what the metrics of the episodes lack; an empty list for a URL, whose telemetry is not at hand."""
        return gap_messages(self.gaps, {truth.episode: len(truth.candidates) for truth in self.truths})

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


class _Facts(NamedTuple):
    """What is read of an episode before any method runs."""

    truth: Truth
    gaps: ReferenceGaps | None


def _read_all(episodes: Iterable[Path], *, with_gaps: bool) -> tuple[_Facts, ...]:
    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(partial(_facts_of, with_gaps=with_gaps), episodes))


def _facts_of(episode: Path, *, with_gaps: bool) -> _Facts:
    view = EpisodeView(episode)
    truth, gaps = truth_of(read_label(episode), view.context), None
    if with_gaps:
        # files that were damaged meanwhile are named with the methods that meet them
        with suppress(DataError):
            gaps = reference_gaps(view)
    return _Facts(truth, gaps)


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
