"""A dataset version as input of an evaluation, and local copies of its episodes."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from faultset.core.errors import DataError
from faultset.core.files import replacing
from faultset.core.output import Progress
from faultset.core.processes import make_scratch, scratch
from faultset.datasets.checks.telemetry import ReferenceGaps, gap_messages, reference_gaps
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, TELEMETRY, TRUTH, table_file
from faultset.datasets.format.labels import read_label
from faultset.datasets.format.storage import QUICK, write_parquet
from faultset.datasets.format.version_files import VERSIONS
from faultset.datasets.recordings.window_view import select_available_rows
from faultset.datasets.remote.file_systems import (
    copy_version,
    fetch,
    is_url,
    local_path,
    open_labels,
    read_remote_version,
)
from faultset.datasets.validation import check_content
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.file_cache import load_or_compute
from faultset.evaluators.results.truth import Truth, build_truth

CACHE_BYTES = int(os.environ.get("FAULTSET_FETCHED_BYTES", 4 << 30))
"""Disk limit for fetched episodes per worker; episodes in use are never removed."""
ALWAYS_FETCHED = ("metrics", "spans", "logs", "events", "objects")


@dataclass(frozen=True, kw_only=True)
class EpisodeLocation:
    """Location of an episode: a local folder, or files at a URL with their checksums."""

    folder: str
    files: Mapping[str, str] = field(default_factory=dict)
    """File of the episode -> SHA-256; empty for a folder."""
    content: str = ""
    """SHA-256 over the checksums of all files that methods may read; empty if unknown."""

    @property
    def remote(self) -> bool:
        """Return whether files must be fetched first."""
        return bool(self.files)


@contextlib.contextmanager
def local_folders(locations: Sequence[EpisodeLocation], needs: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Yield local folders of the episodes, valid inside the block."""
    if not any(location.remote for location in locations):
        yield tuple(location.folder for location in locations)
        return
    tables = {*ALWAYS_FETCHED, *(("requests",) if "sli" in needs else ())}
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context(_fetched_episodes().lend(location, tables)) if location.remote else location.folder
            for location in locations
        )


class _FetchedEpisodes:
    """The fetched episodes of this process; the least recently used are removed first."""

    def __init__(self) -> None:
        self._root = make_scratch("fetched")
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._users: dict[str, int] = {}

    @contextlib.contextmanager
    def lend(self, location: EpisodeLocation, tables: set[str]) -> Iterator[str]:
        key = hashlib.sha256(f"{location.folder}\0{sorted(location.files.items())}".encode()).hexdigest()[:24]
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            busy = self._busy.setdefault(key, threading.Lock())
        folder = self._root / key / PurePosixPath(location.folder).name
        try:
            with busy:
                self._complete(location, folder, tables, key)
            yield str(folder)
        finally:
            with self._lock:
                self._users[key] -= 1
                self._shrink()

    def _complete(self, location: EpisodeLocation, folder: Path, tables: set[str], key: str) -> None:
        needed = [CONTEXT_FILE, *(table_file(table) for table in sorted(tables))]
        missing = [name for name in needed if name in location.files and not (folder / name).exists()]
        size = 0
        if missing:
            for name, data in fetch(location.folder, missing, location.files).items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path, durable=False) as temporary:
                    temporary.write_bytes(data)
                size += len(data)
            check_content(folder, folder.name, [name for name in needed if name in location.files])
        with self._lock:
            self._sizes[key] = self._sizes.pop(key, 0) + size

    def _shrink(self) -> None:
        for key in list(self._sizes):
            if sum(self._sizes.values()) <= CACHE_BYTES:
                return
            if not self._users.get(key):
                del self._sizes[key]
                shutil.rmtree(self._root / key, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


_episodes: _FetchedEpisodes | None = None
_episodes_lock = threading.Lock()


def _fetched_episodes() -> _FetchedEpisodes:
    global _episodes
    with _episodes_lock:
        if _episodes is None:
            _episodes = _FetchedEpisodes()
            atexit.register(remove_fetched_episodes)
        return _episodes


def remove_fetched_episodes() -> None:
    global _episodes
    with _episodes_lock:
        episodes, _episodes = _episodes, None
    if episodes is not None:
        episodes.remove()


_READERS = 2
"""Threads for reading labels; more would only wait for the interpreter lock."""
_SPANS = table_file("spans")
_INPUT_FILES = (CONTEXT_FILE, table_file("label"), table_file("metrics"))


@dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """Labels and episode locations of a dataset version."""

    name: str
    version: str
    digest: str
    """SHA-256 of the version's file list."""
    folder: Path
    """Dataset folder; for a URL, a local copy of contexts and labels."""
    truths: tuple[Truth, ...]
    splits: dict[str, dict[str, list[str]]]
    without_spans: frozenset[str] = frozenset()
    """Episodes without spans."""
    gaps: Mapping[str, ReferenceGaps] = field(default_factory=dict)
    """Episode -> gaps in its metrics; empty for a URL."""
    url: str | None = None
    checksums: dict[str, dict[str, str]] = field(default_factory=dict)
    """Episode -> file -> SHA-256."""
    unlabelled: int = 0
    """Number of episodes without a label, which are left out."""
    imported_files: Mapping[str, int] = field(default_factory=dict)
    """For imported data whose cases offer several input files: file -> number of cases read from it."""

    @classmethod
    def of(cls, dataset: Dataset, *, url: str | None = None) -> DatasetSource:
        """Read the labels of all episodes of an opened dataset version."""
        root = Path(dataset.root).resolve()
        if not dataset.episodes and dataset.recording_files:
            raise DataError(
                f"{url or root} version {dataset.version} has recordings and no episodes; use Recording.episodes in "
                "Python to cut episodes out of the recordings first"
            )
        if not dataset.episodes:
            raise DataError(f"{url or root} version {dataset.version} has no episodes; collect some first")
        folders = [root / EPISODES / episode for episode in dataset.episodes]
        read = partial(_read_episodes, folders, with_gaps=url is None)
        episodes = read() if url else load_or_compute(tuple[_EpisodeFacts, ...], folders, _INPUT_FILES, read)
        identity = identify_dataset(dataset)
        return cls(
            name=url.rstrip("/").rpartition("/")[2] if url else identity.name,
            version=identity.version,
            digest=identity.digest,
            folder=root,
            truths=tuple(facts.truth for facts in episodes),
            gaps={facts.truth.episode: facts.gaps for facts in episodes if facts.gaps},
            splits={name: dict(split) for name, split in dataset.splits.items()},
            without_spans=frozenset(
                episode for episode, files in dataset.files.items() if _SPANS not in files or not files[_SPANS].rows
            ),
            url=url,
            checksums={
                episode: {name: record.sha256 for name, record in files.items()}
                for episode, files in dataset.files.items()
            },
            imported_files=dict(dataset.provenance.get("import", {}).get("inputs", {})),
        )

    def without_unlabelled(self) -> DatasetSource:
        """Return the source without unlabelled episodes, which may or may not have a fault."""
        truths = tuple(truth for truth in self.truths if truth.labelled)
        if not truths:
            location = self.url or self.folder
            raise DataError(
                f"{location} version {self.version} has no labelled episode, so nothing can be scored; name the causes "
                f'when you import it, or find suspects with "faultset diagnose {location}"'
            )
        names = {truth.episode for truth in truths}
        return replace(
            self,
            truths=truths,
            unlabelled=len(self.truths) - len(truths),
            gaps={episode: gaps for episode, gaps in self.gaps.items() if episode in names},
            without_spans=self.without_spans & names,
        )

    def reference_gaps(self) -> list[str]:
        """Describe gaps in the metrics of the episodes; empty for a URL, whose telemetry is not read."""
        return gap_messages(self.gaps, {truth.episode: len(truth.candidates) for truth in self.truths})

    def location(self, episode: str) -> EpisodeLocation:
        files = self.checksums.get(episode, {})
        content = _hash_content(files)
        if self.url is None:
            return EpisodeLocation(folder=str(self.folder / EPISODES / episode), content=content)
        return EpisodeLocation(folder=f"{self.url}/{EPISODES}/{episode}", files=files, content=content)


class DatasetIdentity(NamedTuple):
    """Identity of a dataset version in results."""

    name: str
    version: str
    digest: str
    """SHA-256 of the version's file list."""


def identify_dataset(dataset: Dataset) -> DatasetIdentity:
    """Return the name, version and digest of an opened dataset version."""
    root = Path(dataset.root).resolve()
    listing = root / VERSIONS / f"{dataset.version}.json"
    return DatasetIdentity(root.name, dataset.version, hashlib.sha256(listing.read_bytes()).hexdigest())


def _hash_content(files: Mapping[str, str]) -> str:
    """Hash the checksums of an episode's files, without its truth; empty if there are none."""
    lines = [f"{name} {sha256}\n" for name, sha256 in sorted(files.items()) if not name.startswith(f"{TRUTH}/")]
    return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else ""


class _EpisodeFacts(NamedTuple):
    """Data read from an episode before any method runs."""

    truth: Truth
    gaps: ReferenceGaps | None


def _read_episodes(episodes: Iterable[Path], *, with_gaps: bool) -> tuple[_EpisodeFacts, ...]:
    def read(episode: Path) -> _EpisodeFacts:
        view = EpisodeView(episode)
        truth, gaps = build_truth(read_label(episode), view.context), None
        if with_gaps:
            # damaged files are reported later, by the methods that read them
            with contextlib.suppress(DataError):
                gaps = reference_gaps(view)
        return _EpisodeFacts(truth, gaps)

    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(read, episodes))


def open_input(
    dataset: str | Path | Dataset, version: str | None = None, progress: Progress | None = None
) -> str | Dataset:
    """Open a dataset, or return its URL if it is remote and has no recordings.

    Episodes at a URL are fetched when they are needed. A dataset with recordings is copied to this machine until
    this process ends.

    `dataset`: folder, URL, or opened dataset.
    `progress`: called as recordings are copied.
    """
    if isinstance(dataset, Dataset):
        return dataset
    location = str(dataset)
    if not is_url(location):
        return open_dataset(local_path(location), version)
    if not read_remote_version(location.rstrip("/"), version)[0].recordings:
        return location
    scratch = make_scratch("copy")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return open_dataset(copy_version(location, version, scratch, progress), version)


def read_truths(dataset: str | Path | Dataset, version: str | None = None) -> tuple[Truth, ...]:
    """Return the ground truth of each labelled episode of a dataset.

    Parameters
    ----------
    dataset
        Folder, URL, or opened dataset.
    version
        Version of the dataset; the newest by default.
    """
    with open_source(dataset, version, workers=1) as read_source:
        return read_source().truths


@contextlib.contextmanager
def open_source(
    dataset: str | Path | Dataset, version: str | None, workers: int
) -> Iterator[Callable[[], DatasetSource]]:
    """Open a dataset version; yield a function that reads its labels and, for a folder, verifies its files.

    Episodes without a label are left out.

    `dataset`: folder, URL, or opened dataset.
    `workers`: threads that verify checksums.
    """
    if isinstance(dataset, str) and is_url(dataset):
        with open_remote_source(dataset, version) as source:
            yield source.without_unlabelled
        return
    opened = open_dataset(local_path(str(dataset)), version) if isinstance(dataset, str | Path) else dataset

    def read() -> DatasetSource:
        # a damaged file would otherwise count as a failure of every method
        opened.check_files(workers)
        return DatasetSource.of(opened).without_unlabelled()

    yield read


@contextlib.contextmanager
def open_remote_source(url: str, version: str | None) -> Iterator[DatasetSource]:
    """Open a dataset version at a URL: copy its file list, contexts and labels, but no telemetry.

    If the server cannot list folders, the version must be given.
    """
    with open_labels(url, version) as dataset:
        yield DatasetSource.of(dataset, url=url.rstrip("/"))


class TruncatedCopies:
    """Truncated copies of one episode, each written on first use.

    Use it as a context manager, which removes the copies.
    """

    def __init__(self, episode: str) -> None:
        self.episode = episode
        """Folder of the original episode."""
        self._stack = contextlib.ExitStack()
        self._folders: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def until(self, end_ns: int) -> str:
        """Return the folder of the copy that ends at `end_ns`, UTC nanoseconds."""
        if end_ns not in self._folders:
            root = Path(self._stack.enter_context(scratch("cut")))
            self._folders[end_ns] = str(truncate_episode(Path(self.episode), end_ns, root))
        return self._folders[end_ns]


def truncate_episode(episode: Path, end_ns: int, root: Path) -> Path:
    """Write an episode as it was known at `end_ns` into `root/episodes/<id>`, and return that folder.

    Later rows are dropped. Spans that end later are absent, and requests that end later are unfinished, as at the end
    of every view. The files themselves are truncated, so no method can read past the end.

    `end_ns`: new end of the view, UTC nanoseconds; clipped to [end of the reference, end of the view].
    """
    view = EpisodeView(episode)
    context = view.context
    end_ns = max(context.reference_end_ns, min(end_ns, context.view_end_ns))
    folder = root / EPISODES / episode.name
    (folder / TELEMETRY).mkdir(parents=True)
    cut = dataclasses.replace(context, view_end_ns=end_ns)
    (folder / CONTEXT_FILE).write_text(cut.to_json(), encoding="utf-8")
    for name in view.tables:
        if (episode / table_file(name)).exists():
            table = select_available_rows(name, view.table(name), end_ns)
            write_parquet(folder / table_file(name), table, compression=QUICK)
    return folder


@contextlib.contextmanager
def copy_healthy_references(folders: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield copies of fault episodes that contain only their healthy reference."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(scratch("cut"))) if folders else Path()
        yield tuple(str(truncate_episode(Path(folder), 0, root)) for folder in folders)
