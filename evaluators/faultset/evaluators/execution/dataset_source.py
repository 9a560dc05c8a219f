"""A dataset version as an evaluation needs it, whether it lies in a folder or behind a URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, PlatformError
from faultset.core.suggestions import suggest
from faultset.datasets.checks.references import ReferenceGaps, gap_messages, reference_gaps
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.manifests import VERSIONS, Manifest
from faultset.datasets.format.truth import read_label
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.remote_episodes import EpisodeLocation, fetch, filesystem
from faultset.evaluators.execution.scratch import scratch
from faultset.evaluators.results.truth import Truth, truth_of

_READERS = 4
LABEL_FILE = "truth/label.parquet"


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
    url: str | None = None
    checksums: dict[str, dict[str, str]] = field(default_factory=dict)
    """Episode -> file -> SHA-256, for a URL."""

    @classmethod
    def of(cls, dataset: Dataset, *, url: str | None = None) -> DatasetSource:
        """Read the labels of all episodes of an opened dataset version."""
        root = Path(dataset.root).resolve()
        if not dataset.episodes:
            raise DataError(f"{url or root} version {dataset.version} has no episodes; collect some first")
        listing = root / VERSIONS / f"{dataset.version}.json"
        with ThreadPoolExecutor(_READERS) as pool:
            truths = tuple(pool.map(_truth_at, [dataset.path(episode) for episode in dataset.episodes]))
        return cls(
            name=url.rstrip("/").rpartition("/")[2] if url else root.name,
            version=dataset.version,
            digest=hashlib.sha256(listing.read_bytes()).hexdigest(),
            folder=root,
            truths=truths,
            splits={name: dict(split) for name, split in dataset.splits.items()},
            url=url,
            checksums={
                episode: {name: record.sha256 for name, record in files.items()}
                for episode, files in dataset.files.items()
            }
            if url
            else {},
        )

    def reference_gaps(self) -> list[str]:
        """Say what the metrics of the episodes lack; an empty list for a URL, whose telemetry is not at hand."""
        if self.url is not None:
            return []
        folders = {truth.episode: self.folder / EPISODES / truth.episode for truth in self.truths}
        with ThreadPoolExecutor(_READERS) as pool:
            gaps = list(pool.map(_gaps_at, folders.values()))
        found = {episode: one for episode, one in zip(folders, gaps, strict=True) if one}
        return gap_messages(found, {truth.episode: len(truth.candidates) for truth in self.truths})

    def location(self, episode: str) -> EpisodeLocation:
        """Return where the files of an episode are."""
        if self.url is None:
            return EpisodeLocation(folder=str(self.folder / EPISODES / episode))
        return EpisodeLocation(folder=f"{self.url}/{EPISODES}/{episode}", files=self.checksums[episode])


def _gaps_at(episode: Path) -> ReferenceGaps | None:
    # files that were damaged meanwhile are named with the methods that meet them
    with suppress(DataError):
        return reference_gaps(EpisodeView(episode))
    return None


def _truth_at(episode: Path) -> Truth:
    return truth_of(read_label(episode), read_context(episode))


def is_url(location: str) -> bool:
    """Whether a dataset is named by a URL that is no local file."""
    scheme, found, _ = location.partition("://")
    return bool(found) and scheme not in ("file", "local")


def local_path(location: str) -> Path:
    """Return the folder that a location names."""
    return Path(location.removeprefix("file://").removeprefix("local://"))


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

    Any URL that fsspec knows: `s3://`, `gs://`, `az://`, `http://`, `memory://`. Where a server cannot list a folder,
    the version must be named.
    """
    url = url.rstrip("/")
    system, root = filesystem(url)
    known = [] if version is not None else _versions(system, root, url)
    chosen = version or known[-1]
    try:
        text = system.cat_file(f"{root}/{VERSIONS}/{chosen}.json")
        manifest = Manifest.from_json(text, origin=f"{url}/{VERSIONS}/{chosen}.json")
        if manifest.version != chosen:
            raise DataError(f"{url}/{VERSIONS}/{chosen}.json is of version {manifest.version}; restore the file")
    except FileNotFoundError:
        there = _versions(system, root, url)
        raise DataError(f'dataset {url} has no version "{chosen}"; {suggest(chosen, there)}') from None
    except OSError as error:
        raise PlatformError(f"{url} cannot be read ({error}); check the address and who may read it") from error
    with scratch("labels") as folder:
        mirror = Path(folder) / "dataset"
        (mirror / VERSIONS).mkdir(parents=True)
        (mirror / VERSIONS / f"{chosen}.json").write_bytes(text)
        dataset = Dataset(mirror, manifest)
        copy_files(url, dataset, list(dataset.episodes), [CONTEXT_FILE, LABEL_FILE], mirror)
        yield DatasetSource.of(dataset, url=url)


def copy_files(url: str, dataset: Dataset, episodes: list[str], names: list[str], mirror: Path) -> None:
    """Copy some files of some episodes into a local folder of the same layout."""
    checksums = {
        f"{episode}/{name}": record.sha256
        for episode in episodes
        for name, record in dataset.files[episode].items()
        if name in names
    }
    for name, data in fetch(f"{url}/{EPISODES}", list(checksums), checksums).items():
        path = mirror / EPISODES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _versions(system: Any, root: str, url: str) -> list[str]:
    try:
        names = [str(entry).rpartition("/")[2] for entry in system.ls(f"{root}/{VERSIONS}", detail=False)]
    except FileNotFoundError:
        names = []
    except Exception as error:
        # each file system raises what its library raises
        raise PlatformError(
            f"{url} cannot be listed ({type(error).__name__}: {str(error)[:200]}); check the address and who may read "
            "it, or name the version with --version"
        ) from error
    found = [name.removesuffix(".json") for name in names if name.endswith(".json") and name[0].isdigit()]
    if not found:
        raise DataError(f"{url} has no versions: it is not a dataset, or the server cannot list it; try --version")
    return sorted(found, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()])
