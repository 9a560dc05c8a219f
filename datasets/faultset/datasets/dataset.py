"""Open one version of a dataset for reading."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pandas as pd

from faultset.core.errors import DataError, UsageError, suggest
from faultset.core.output import Progress
from faultset.core.printable import quoted
from faultset.core.regular_files import stat_regular_file
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.labels import Label, join_distinct, read_evidence, read_journal, read_label
from faultset.datasets.format.recordings import RECORDINGS, listed_chunks
from faultset.datasets.format.version_files import VERSIONS, FileRecord, RecordingSplit, VersionFile
from faultset.datasets.format.versions import read_version
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.validation import check_recording_files
from faultset.datasets.validation import check_dataset_files
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    from faultset.datasets.tools.recording import ViewClock
    from faultset.datasets.tools.toolset import EpisodeTools


@cache
def list_project_datasets() -> dict[str, Path]:
    """Return the folders of the project's datasets by name; empty if its source folder is unknown."""
    try:
        origin = json.loads(metadata.distribution("faultset").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return {}
    address = urlsplit(origin.get("url", ""))
    if address.scheme != "file":
        return {}
    folder = Path(unquote(address.path)) / "datasets"
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{VERSIONS}"))}


def dataset_folder(location: Path | str) -> Path:
    """Return the folder of a dataset: a path, or the name of one of the project's datasets.

    A folder of that name in the current folder takes precedence.
    """
    path = Path(location)
    if len(path.parts) != 1 or path.exists():
        return path
    return list_project_datasets().get(path.name, path)


def is_episode(location: Path) -> bool:
    """Return whether a path is the folder of one episode."""
    return (location / CONTEXT_FILE).is_file() and location.parent.name != RECORDINGS


def episode_folder(location: Path, episode: str | None, version: str | None = None) -> Path:
    """Return the folder of an episode of a dataset; without `episode`, `location` must be that folder itself.

    Raises
    ------
    UsageError
        `location` is a dataset and `episode` is missing, or it is the folder of an episode and `episode` or `version`
        is given.
    DataError
        The dataset, version or episode does not exist.
    """
    is_single = is_episode(location)
    if is_single and episode is None and version is None:
        return location
    if is_single or episode is None:
        raise UsageError(
            "a dataset needs --episode, but the folder of one episode takes neither --episode nor --version; add "
            "or leave out these options"
        )
    return open_dataset(location, version)[episode].path


TEXTS = ("app", "fault", "target", "no_fault", "verdict", "cause", "level", "type")
TIMES = ("start", "onset", "noticed", "undone", "end")
SECONDS = ("reference_s", "onset_s", "noticed_s", "undone_s", "duration_s")


def label_frame(episodes: Iterable[Episode]) -> pd.DataFrame:
    """Return a frame with a row per episode; `Dataset.labels` describes the columns."""
    rows = {episode.id: _build_row(episode) for episode in episodes}
    index = pd.Index(list(rows), name="episode", dtype=object)
    frame = pd.DataFrame(list(rows.values()), index=index, columns=[*TEXTS, *TIMES, *SECONDS, "onset_ns"], dtype=object)
    for name in TIMES:
        frame[name] = pd.to_datetime(frame[name].astype("Int64"), unit="ns", utc=True)
    return frame.astype({"onset_ns": "Int64"} | dict.fromkeys(SECONDS, "float64"))


def _build_row(episode: Episode) -> dict[str, Any]:
    label = episode.label
    times = {
        "start": label.view_start_ns,
        "onset": label.onset_ns,
        "noticed": label.first_manifest_ns,
        "undone": label.recover_start_ns,
        "end": label.view_end_ns,
    }
    ends = {"reference_s": label.reference_end_ns, "duration_s": label.view_end_ns}
    ends |= {f"{name}_s": times[name] for name in ("onset", "noticed", "undone")}
    return {
        "app": episode.context.app,
        "fault": label.fault,
        "target": join_distinct(label.targets) or None,
        "no_fault": label.no_fault_kind,
        "verdict": label.verdict,
        "cause": join_distinct(cause.service for cause in label.root_causes) or None,
        "level": label.system_level,
        "type": label.fault_type,
        **times,
        **{name: label.seconds_into_view(time_ns) for name, time_ns in ends.items()},
        "onset_ns": label.onset_ns,
    }


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode: the view that methods get, and the ground truth. Files are read on access."""

    id: str
    """Opaque id."""
    path: Path
    """Folder of the episode."""
    files: Mapping[str, FileRecord] = field(default_factory=dict, repr=False)
    """Path below the folder -> record of the file in the version."""

    @property
    def view(self) -> EpisodeView:
        """The input of methods."""
        return EpisodeView(self.path)

    @property
    def context(self) -> EpisodeContext:
        """Facts that methods may use."""
        return self.view.context

    @property
    def label(self) -> Label:
        """The ground truth."""
        return read_label(self.path)

    @property
    def evidence(self) -> pd.DataFrame:
        """The checks of the episode and their results, one per row."""
        return read_evidence(self.path)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The recorded changes to the platform, in order."""
        return read_journal(self.path)

    def tools(self, clock: ViewClock | None = None, *, algorithms: bool = True) -> EpisodeTools:
        """Return tools to query the view; they cannot reach the ground truth.

        Parameters
        ----------
        clock
            The current time; by default the end of the view.
        algorithms
            Whether to include tools that compute a part of a diagnosis, such as anomaly scores.
        """
        from faultset.datasets.tools.toolset import EpisodeTools

        return EpisodeTools(self.view, clock, algorithms=algorithms)


class Dataset:
    """One version of a dataset, a collection of episodes; use `open_dataset`.

    `len(dataset)` counts the episodes, `for episode in dataset` yields each as an `Episode`, `dataset[episode_id]`
    returns one, and `episode_id in dataset` returns whether the version has it.

    Attributes
    ----------
    root
        Dataset folder.
    version_file
        Content of the version file.
    files
        Episode -> path below its folder -> record of the file.
    splits
        Name of a split -> {"train": ids, "test": ids}.
    recording_files
        Recording -> path below its folder -> record of the file.
    recording_splits
        Name of a split -> its `train`, `validation` and `test` stretches: recording, start and end in UTC nanoseconds.
    """

    def __init__(self, root: Path, version_file: VersionFile) -> None:
        self.root = root
        self.version_file = version_file
        self.files: dict[str, Mapping[str, FileRecord]] = dict(sorted(version_file.episodes.items()))
        self.recording_files: dict[str, Mapping[str, FileRecord]] = dict(sorted(version_file.recordings.items()))
        self.recording_splits: Mapping[str, RecordingSplit] = version_file.recording_splits
        self.splits: dict[str, dict[str, list[str]]] = {
            name: {"train": list(split.train), "test": list(split.test)} for name, split in version_file.splits.items()
        }

    def __repr__(self) -> str:
        recordings = f", recordings={len(self.recording_files)}" if self.recording_files else ""
        return f"Dataset({str(self.root)!r}, version={self.version!r}, episodes={len(self)}{recordings})"

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Episode]:
        return (self[episode] for episode in self.files)

    def __contains__(self, episode: object) -> bool:
        return episode in self.files

    def __getitem__(self, episode: str) -> Episode:
        """Return an episode with its view and its truth; raise DataError if the version lacks it."""
        return Episode(id=episode, path=self.path(episode), files=self.files[episode])

    @property
    def version(self) -> str:
        """Version string."""
        return self.version_file.version

    @property
    def created(self) -> str:
        """Time stamp of the version."""
        return self.version_file.created

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Origin of the data, as recorded by the collector."""
        return self.version_file.provenance

    @property
    def episodes(self) -> tuple[str, ...]:
        """Ids of the version's episodes, sorted."""
        return tuple(self.files)

    def recordings(self) -> tuple[Recording[Dataset], ...]:
        """Return the recordings of the version with their views and their truth, sorted by id."""
        return tuple(map(self.recording, self.recording_files))

    @property
    def recording_hashes(self) -> list[str]:
        """Sorted checksums of all files of the recordings, which identify their content."""
        return sorted(record.sha256 for files in self.recording_files.values() for record in files.values())

    @property
    def recorded_chunks(self) -> dict[str, list[int]]:
        """Recording -> numbers of its chunks in the version."""
        return {recording: listed_chunks(files) for recording, files in self.recording_files.items()}

    def recording(self, recording: str) -> Recording[Dataset]:
        """Return a recording; raise DataError if the version lacks it."""
        if recording not in self.recording_files:
            raise DataError(
                f"version {self.version} of {self.root} has no recording {quoted(recording)}; "
                f"{suggest(recording, self.recording_files)}"
            )
        return Recording(
            id=recording,
            path=self.root / RECORDINGS / recording,
            files=self.recording_files[recording],
            open_cuts=open_dataset,
        )

    def view(self, episode: str) -> EpisodeView:
        """Return the view of an episode."""
        return EpisodeView(self.path(episode))

    def label(self, episode: str) -> Label:
        """Return the ground truth of an episode."""
        return read_label(self.path(episode))

    def labels(self) -> pd.DataFrame:
        """Return the labels of all episodes as a table indexed by episode id.

        Returns
        -------
        pandas.DataFrame
            `app`, `fault`, `target`, `no_fault` (plain, disturbed, sham or unlabelled), `verdict`, `cause` (faulty
            services), `level` and `type` as text; `start`, `onset`, `noticed`, `undone` and `end` as UTC timestamps;
            `reference_s`, `onset_s`, `noticed_s`, `undone_s` and `duration_s` as seconds since `start`; `onset_ns` as
            an integer. Events that did not happen are missing values. `noticed` is the first second in which clients
            noticed the fault.

        Examples
        --------
        >>> open_dataset("sample").labels().groupby("fault")["onset_s"].mean()  # doctest: +SKIP
        """
        return label_frame(self)

    def path(self, episode: str) -> Path:
        """Return the folder of an episode.

        Raises
        ------
        DataError
            The version has no such episode.
        UsageError
            The id is not a string.
        """
        if not isinstance(episode, str):
            raise UsageError(f"the id of an episode must be a string, got {episode!r}; choose one of dataset.episodes")
        if episode not in self.files:
            raise DataError(
                f"version {self.version} of {self.root} has no episode {quoted(episode)}; "
                f"{suggest(episode, self.files)}"
            )
        return self.root / EPISODES / episode

    def check_files(
        self, threads: int = 4, progress: Progress | None = None, *, episodes: Iterable[str] | None = None
    ) -> None:
        """Check the files of episodes; unchanged files that passed before are not read again.

        Parameters
        ----------
        threads
            Number of episodes to read concurrently.
        progress
            Called with the number of finished episodes and the total.
        episodes
            Ids; by default all episodes and recordings of the version.

        Raises
        ------
        DataError
            An episode is damaged; `faultset.datasets.validation.check_content` describes the checks.
        """
        files = self.files if episodes is None else {episode: self[episode].files for episode in episodes}
        check_dataset_files(self.root, files, threads, progress)
        if episodes is None:
            check_recording_files(self.root, self.recording_files)


def open_dataset(path: Path | str, version: str | None = None) -> Dataset:
    """Open one version of a dataset, the newest by default.

    The schema version and the presence and size of every file are checked; `faultset.datasets.verify` also reads and
    hashes the files.

    Parameters
    ----------
    path
        Dataset folder, or the name of one of the project's datasets, such as "sample".
    version
        A version such as "1.0.0"; `list_versions` returns all.

    Raises
    ------
    DataError
        The dataset or version does not exist, or its files are missing or damaged.
    """
    root = dataset_folder(path)
    dataset = Dataset(root, read_version(root, version))
    missing, changed, total = [], [], 0
    for name, record in dataset.version_file.paths().items():
        total += 1
        file = root / name
        try:
            size = stat_regular_file(file, below=root).st_size
        except DataError as error:
            if not isinstance(error.__context__, FileNotFoundError):
                raise
            missing.append(file)
        else:
            if size != record.bytes:
                changed.append(file)
    remedy = 'restore them, or open another version ("faultset dataset versions" lists them)'
    if missing:
        raise DataError(
            f"dataset {root} version {dataset.version} is incomplete: {len(missing)} of {total} files missing "
            f"(first: {missing[0].relative_to(root)}); {remedy}"
        )
    if changed:
        raise DataError(
            f"dataset {root} version {dataset.version} is damaged: {len(changed)} of {total} files have a different "
            f"size (first: {changed[0].relative_to(root)}); {remedy}"
        )
    return dataset
