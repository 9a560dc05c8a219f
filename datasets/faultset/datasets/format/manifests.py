"""The content of a version file: episodes, their files with checksums, provenance and splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, JsonValue, StringConstraints

from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.reading.documents import STRICT, checked, parse_object
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.format.context import check_schema_version
from faultset.datasets.format.names import Count, EpisodeFile, EpisodeId, Name, VersionName

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
