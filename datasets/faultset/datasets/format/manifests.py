"""Version files: episodes, their files with checksums, provenance and splits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, JsonValue, StringConstraints

from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.reading.documents import STRICT, checked, parse_object
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.format.context import check_schema_version
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import Count, EpisodeFile, EpisodeId, Name, VersionName

VERSIONS = "versions"
LIMIT_BYTES = 64 << 20
"""Size of a version file, which holds about 1.6 kB for each episode."""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """What a version remembers of one file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    bytes: Count
    """Size of the file."""
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """Hash of its content, in hexadecimal digits."""
    rows: Count | None
    """Rows of a Parquet file; None for other files."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which episodes are for training and which for testing."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    key: Name
    """What is never on both sides."""
    train: tuple[EpisodeId, ...]
    """Ids of the training episodes."""
    test: tuple[EpisodeId, ...]
    """Ids of the test episodes."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a version file says."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    """Version of the layout of files and tables."""
    version: VersionName
    """Name of the version, for instance "1.0.0"."""
    created: Name
    """When the version was made, ISO 8601 in UTC."""
    provenance: Mapping[str, JsonValue]
    """How the data was made."""
    episodes: Mapping[EpisodeId, Mapping[EpisodeFile, FileRecord]]
    """Episode -> path in its folder -> record of the file."""
    splits: Mapping[Name, Split]
    """Name of a published split -> its two sides."""

    def to_json(self) -> str:
        """Return the text of the version file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, content: bytes | str, *, origin: str) -> Manifest:
        """Read the text of a version file.

        Parameters
        ----------
        content
            The text.
        origin
            Names the file in errors, `.../X.Y.Z.json`.

        Raises
        ------
        DataError
            It is no version file of this schema version, or contradicts itself.
        """
        found = parse_object(content, origin)
        check_schema_version(found.get("schema_version"), origin)
        manifest = checked(found, cls, origin)
        named = origin.replace("\\", "/").rpartition("/")[2].removesuffix(".json")
        if manifest.version != named:
            raise DataError(f"{origin} says that it is version {manifest.version}; restore the file")
        for name, split in manifest.splits.items():
            _check_split(name, split, manifest, origin)
        return manifest


def read_manifest_file(root: Path, version: str) -> Manifest:
    """Read the file of a version of a dataset that has it."""
    path = root / VERSIONS / f"{version}.json"
    return Manifest.from_json(read_regular(path, limit_bytes=LIMIT_BYTES, below=root), origin=str(path))


def _check_split(name: str, split: Split, manifest: Manifest, origin: str) -> None:
    place = f"{origin}: split {quoted(name)}"
    members = [*split.train, *split.test]
    unknown = sorted({*members} - manifest.episodes.keys())
    if unknown:
        raise DataError(f"{place} names the episode {unknown[0]}, which the version does not have; restore the file")
    if len({*members}) < len(members):
        raise DataError(f"{place} names an episode twice; restore the file")


def make_splits(labels: Mapping[str, Label], apps: Mapping[str, str], *, seed: int = 0) -> dict[str, Split]:
    """Return every split that the episodes allow: a grouped one needs at least two groups.

    Parameters
    ----------
    labels
        Label of every episode.
    apps
        App of every episode.
    seed
        Shuffles; equal seeds give equal splits.
    """
    faulty = {episode: label for episode, label in labels.items() if label.fault is not None}
    healthy = [episode for episode in labels if episode not in faulty]
    calm = _dealt({episode: (labels[episode].no_fault_kind or "") for episode in healthy}, seed)
    problems = {episode: label.problems for episode, label in faulty.items()}
    splits = {"by-episode": _split("fault and target", _problems_dealt(problems, seed) | calm)}
    faults = {episode: label.fault_names for episode, label in faulty.items()}
    targets = {episode: sorted(label.targets) for episode, label in faulty.items()}
    for name, key, groups in (("by-fault", "fault", faults), ("by-target", "target", targets)):
        sides = _groups_dealt(groups, seed)
        if sides is not None:
            splits[name] = _split(key, sides | calm)
    sides = _groups_dealt({episode: [app] for episode, app in apps.items()}, seed)
    if sides is not None:
        splits["by-app"] = _split("app", sides)
    return splits


def _split(key: str, sides: Mapping[str, str]) -> Split:
    return Split(
        key=key,
        train=tuple(sorted(episode for episode, side in sides.items() if side == "train")),
        test=tuple(sorted(episode for episode, side in sides.items() if side == "test")),
    )


def _order(name: str, seed: int) -> str:
    """Return what to sort by to shuffle names in a way that only they and the seed decide."""
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


def _alternating(names: Sequence[str], seed: int, first: str = "test") -> dict[str, str]:
    other = "train" if first == "test" else "test"
    shuffled = sorted(names, key=lambda name: _order(name, seed))
    return {name: first if number % 2 == 0 else other for number, name in enumerate(shuffled)}


def _dealt(strata: Mapping[str, str], seed: int) -> dict[str, str]:
    """Deal names to both sides, each stratum evenly, the odd ones in turn."""
    sides: dict[str, str] = {}
    first = "test"
    for stratum in sorted(set(strata.values())):
        names = [name for name, found in strata.items() if found == stratum]
        sides |= _alternating(names, seed, first)
        if len(names) % 2:
            first = "train" if first == "test" else "test"
    return sides


def _problems_dealt(problems: Mapping[str, Sequence[tuple[str, ...]]], seed: int) -> dict[str, str]:
    """Deal whole (fault, target) groups, so that each fault is on both sides where it has two targets."""
    groups = {episode: ["/".join(one) for one in found] for episode, found in problems.items()}
    clusters = _clusters(groups)
    sides = _dealt({cluster: cluster.partition("/")[0] for cluster in clusters.values()}, seed)
    return {episode: sides[cluster] for episode, cluster in clusters.items()}


def _groups_dealt(groups: Mapping[str, Sequence[str]], seed: int) -> dict[str, str] | None:
    """Deal episodes so that no group is on both sides."""
    clusters = _clusters(groups)
    if len(set(clusters.values())) < 2:
        return None
    sides = _alternating(sorted(set(clusters.values())), seed)
    return {episode: sides[cluster] for episode, cluster in clusters.items()}


def _clusters(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Name one group for each episode, the same for all episodes that are connected by groups."""
    leader: dict[str, str] = {}

    def find(group: str) -> str:
        while leader.setdefault(group, group) != group:
            group = leader[group]
        return group

    for members in groups.values():
        for member in members[1:]:
            leader[find(member)] = find(members[0])
    return {episode: find(members[0]) for episode, members in groups.items() if members}
