"""Version files: episodes, their files with checksums, provenance and splits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar

import pyarrow as pa
from pydantic import ConfigDict, JsonValue, StringConstraints

from faultset.core.documents import STRICT, check_type, parse_object
from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.regular_files import FileStamp, explain_read_error, read_regular
from faultset.datasets.format.context import check_schema_version
from faultset.datasets.format.labels import Label
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.format.schemas import Count, EpisodeFile, EpisodeId, Name, RecordingFile, VersionName
from faultset.datasets.format.storage import open_table

VERSIONS = "versions"
LIMIT_BYTES = 64 << 20
"""Maximum size of a version file, which needs about 1.6 kB per episode."""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """Size, hash and row count of a file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    bytes: Count
    """Size of the file."""
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """Hash of its content, in hexadecimal digits."""
    rows: Count | None
    """Rows of a Parquet file; None for other files."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The training and test episodes of a split."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    key: Name
    """Property whose values are never in both subsets."""
    train: tuple[EpisodeId, ...]
    """Ids of the training episodes."""
    test: tuple[EpisodeId, ...]
    """Ids of the test episodes."""


@dataclass(frozen=True, kw_only=True)
class RecordingSplit:
    """Training, validation and test stretches of the recordings."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    key: Name
    """Property whose values are never in two subsets."""
    train: tuple[Stretch, ...]
    """Stretches for training: recording, start and end, UTC nanoseconds."""
    validation: tuple[Stretch, ...] = ()
    """Stretches for choosing settings."""
    test: tuple[Stretch, ...]
    """Stretches for testing."""


@dataclass(frozen=True, kw_only=True)
class VersionFile:
    """The content of a version file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    """Version of the layout of files and tables."""
    version: VersionName
    """Name of the version, for instance "1.0.0"."""
    created: Name
    """Time of its creation, ISO 8601 in UTC."""
    provenance: Mapping[str, JsonValue]
    """Origin of the data."""
    episodes: Mapping[EpisodeId, Mapping[EpisodeFile, FileRecord]]
    """Episode -> path in its folder -> record of the file."""
    splits: Mapping[Name, Split]
    """Name of a published split -> the split."""
    recordings: Mapping[EpisodeId, Mapping[RecordingFile, FileRecord]] = field(
        default_factory=dict[str, Mapping[str, FileRecord]]
    )
    """Recording -> path in its folder -> record of the file."""
    recording_splits: Mapping[Name, RecordingSplit] = field(default_factory=dict[str, RecordingSplit])
    """Name of a published split of the recordings -> the split."""

    def units(self) -> dict[str, Mapping[str, FileRecord]]:
        """Return the files of each episode and recording by its path below the dataset's folder."""
        folders = {"episodes": self.episodes, "recordings": self.recordings}
        return {f"{folder}/{unit}": files for folder, units in folders.items() for unit, files in sorted(units.items())}

    def paths(self) -> dict[str, FileRecord]:
        """Return the records of all files by their path below the dataset's folder."""
        return {f"{unit}/{name}": record for unit, files in self.units().items() for name, record in files.items()}

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, content: bytes | str, *, origin: str) -> VersionFile:
        """Parse the text of a version file; `origin` is its path, `.../X.Y.Z.json`."""
        document = parse_object(content, origin)
        check_schema_version(document.get("schema_version"), origin)
        version_file = check_type(document, cls, origin)
        expected = origin.replace("\\", "/").rpartition("/")[2].removesuffix(".json")
        if version_file.version != expected:
            raise DataError(f"{origin} must have version {expected}, got {version_file.version}; restore the file")
        for name, split in version_file.splits.items():
            _check_split(name, split, version_file, origin)
        for name, split in version_file.recording_splits.items():
            _check_recording_split(name, split, version_file, origin)
        return version_file


def read_version_file(root: Path, version: str) -> VersionFile:
    path = root / VERSIONS / f"{version}.json"
    return VersionFile.from_json(read_regular(path, limit_bytes=LIMIT_BYTES, below=root), origin=str(path))


def _check_split(name: str, split: Split, version_file: VersionFile, origin: str) -> None:
    title = f"{origin}: split {quoted(name)}"
    members = [*split.train, *split.test]
    unknown = sorted({*members} - version_file.episodes.keys())
    if unknown:
        raise DataError(f"{title} names the episode {unknown[0]}, which the version lacks; restore the file")
    if len({*members}) < len(members):
        raise DataError(f"{title} names an episode twice; restore the file")


def _check_recording_split(name: str, split: RecordingSplit, version_file: VersionFile, origin: str) -> None:
    title = f"{origin}: split {quoted(name)} of the recordings"
    stretches = sorted([*split.train, *split.validation, *split.test])
    for stretch in stretches:
        if stretch.recording not in version_file.recordings:
            raise DataError(
                f"{title} names the recording {stretch.recording}, which the version lacks; restore the file"
            )
        if stretch.start_ns >= stretch.end_ns:
            raise DataError(f"{title} has an empty stretch of {stretch.recording}; restore the file")
    for first, second in pairwise(stretches):
        if first.recording == second.recording and first.end_ns > second.start_ns:
            raise DataError(f"{title} has two stretches of {first.recording} that overlap; restore the file")


def make_splits(labels: Mapping[str, Label], apps: Mapping[str, str], *, seed: int = 0) -> dict[str, Split]:
    """Return the splits of a version; a grouped split needs at least two groups."""
    if not labels:
        return {}
    faulty = {episode: label for episode, label in labels.items() if label.fault is not None}
    healthy = [episode for episode in labels if episode not in faulty]
    healthy_subsets = _deal_strata({episode: (labels[episode].no_fault_kind or "") for episode in healthy}, seed)
    problems = {episode: label.problems for episode, label in faulty.items()}
    splits = {"by-episode": _build_split("fault and target", _deal_problems(problems, seed) | healthy_subsets)}
    faults = {episode: label.fault_names for episode, label in faulty.items()}
    targets = {episode: sorted(label.targets) for episode, label in faulty.items()}
    for name, key, groups in (("by-fault", "fault", faults), ("by-target", "target", targets)):
        subsets = _deal_groups(groups, seed)
        if subsets is not None:
            splits[name] = _build_split(key, subsets | healthy_subsets)
    subsets = _deal_groups({episode: [app] for episode, app in apps.items()}, seed)
    if subsets is not None:
        splits["by-app"] = _build_split("app", subsets)
    return splits


def _build_split(key: str, subsets: Mapping[str, str]) -> Split:
    return Split(
        key=key,
        train=tuple(sorted(episode for episode, subset in subsets.items() if subset == "train")),
        test=tuple(sorted(episode for episode, subset in subsets.items() if subset == "test")),
    )


def compute_shuffle_key(name: str, seed: int) -> str:
    """Return a key that shuffles names reproducibly when they are sorted by it."""
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


def _alternate(names: Sequence[str], seed: int, first: str = "test") -> dict[str, str]:
    other = "train" if first == "test" else "test"
    shuffled = sorted(names, key=lambda name: compute_shuffle_key(name, seed))
    return {name: first if number % 2 == 0 else other for number, name in enumerate(shuffled)}


def _deal_strata(strata: Mapping[str, str], seed: int) -> dict[str, str]:
    """Divide each stratum evenly; the extra names of odd strata go alternately to test and training."""
    subsets: dict[str, str] = {}
    first = "test"
    for stratum in sorted(set(strata.values())):
        names = [name for name, group in strata.items() if group == stratum]
        subsets |= _alternate(names, seed, first)
        if len(names) % 2:
            first = "train" if first == "test" else "test"
    return subsets


def _deal_problems(problems: Mapping[str, Sequence[tuple[str, ...]]], seed: int) -> dict[str, str]:
    """Divide whole (fault, target) groups, so that a fault with two targets is in both subsets."""
    groups = {episode: ["/".join(problem) for problem in pairs] for episode, pairs in problems.items()}
    components = _connect(groups)
    subsets = _deal_strata({component: component.partition("/")[0] for component in components.values()}, seed)
    return {episode: subsets[component] for episode, component in components.items()}


def _deal_groups(groups: Mapping[str, Sequence[str]], seed: int) -> dict[str, str] | None:
    """Divide episodes so that no group is in both subsets; return None if all are connected."""
    components = _connect(groups)
    if len(set(components.values())) < 2:
        return None
    subsets = _alternate(sorted(set(components.values())), seed)
    return {episode: subsets[component] for episode, component in components.items()}


def _connect(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the connected component of each episode; episodes that share a group are connected."""
    leader: dict[str, str] = {}

    def find(group: str) -> str:
        while leader.setdefault(group, group) != group:
            group = leader[group]
        return group

    for members in groups.values():
        for member in members[1:]:
            leader[find(member)] = find(members[0])
    return {episode: find(members[0]) for episode, members in groups.items() if members}


@dataclass(frozen=True, kw_only=True)
class FileSummary:
    """Records of the files of an episode or recording."""

    files: Mapping[str, FileRecord]
    """Path below its folder -> record."""
    stamps: Mapping[str, FileStamp] = field(default_factory=dict[str, FileStamp])
    """Path below its folder -> stamp, for the files in the dataset's folder."""
    check_name: str = ""
    """Name of the content check that all files passed; empty if they were only hashed."""


def summarize_files(
    folder: Path, names: Iterable[str], schemas: Mapping[str, pa.Schema], rows: Mapping[str, int] | None = None
) -> tuple[dict[str, FileRecord], dict[str, FileStamp]]:
    """Read and hash files; return their records and stamps. `rows` are row counts that are already known."""
    files, stamps = {}, {}
    for name in names:
        path = folder / name
        stamps[name] = FileStamp.of(path, folder)
        files[name] = FileRecord(
            bytes=stamps[name].bytes,
            sha256=compute_sha256(path),
            rows=_read_row_count(path, schemas) if rows is None else rows.get(name),
        )
    return files, stamps


def file_names(folder: Path) -> list[str]:
    """Return the sorted relative paths of everything below a folder except folders; links are not followed."""
    return sorted(_walk(folder, ""))


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def hashes_below(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by its relative path."""
    return {name: compute_sha256(root / name) for name in file_names(root)}


def compute_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise explain_read_error(path, error) from error


def _read_row_count(path: Path, schemas: Mapping[str, pa.Schema]) -> int | None:
    if path.suffix != ".parquet":
        return None
    if path.stem not in schemas:
        raise DataError(f"{path} holds a table that the context does not declare; remove it")
    with open_table(path, path.stem, schemas[path.stem]) as file:
        return file.metadata.num_rows
