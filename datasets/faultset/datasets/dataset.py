"""One version of a dataset, opened for reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.suggestions import suggest
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.integrity import differing_files
from faultset.datasets.format.labels import Label
from faultset.datasets.format.summaries import FileRecord
from faultset.datasets.format.truth import read_label
from faultset.datasets.format.versions import read_manifest
from faultset.datasets.views import EpisodeView


class Dataset:
    """One version of a dataset, checked when it was opened; use `open_dataset`.

    Attributes
    ----------
    root
        Dataset folder.
    version
        Version string.
    episodes
        Ids of the version's episodes, sorted.
    splits
        Name of a split -> {"train": ids, "test": ids}.
    split_keys
        Name of a split -> what is never on both of its sides.
    provenance
        What the collector said about how the data was made.
    """

    def __init__(self, root: Path, manifest: Mapping[str, Any]) -> None:
        self.root = root
        self.version: str = manifest["version"]
        self.created: str = manifest["created"]
        self.provenance: Mapping[str, Any] = manifest["provenance"]
        self.files: dict[str, dict[str, FileRecord]] = {
            episode: {path: FileRecord(**record) for path, record in files.items()}
            for episode, files in sorted(manifest["episodes"].items())
        }
        self.splits: dict[str, dict[str, list[str]]] = {
            name: {"train": list(sides["train"]), "test": list(sides["test"])}
            for name, sides in manifest["splits"].items()
        }
        self.split_keys: dict[str, str] = {name: sides["key"] for name, sides in manifest["splits"].items()}

    def __repr__(self) -> str:
        return f"Dataset({str(self.root)!r}, version={self.version!r}, episodes={len(self.files)})"

    @property
    def episodes(self) -> tuple[str, ...]:
        """Ids of the version's episodes, sorted."""
        return tuple(self.files)

    def view(self, episode: str) -> EpisodeView:
        """Return an episode as a method sees it."""
        return EpisodeView(self.path(episode))

    def label(self, episode: str) -> Label:
        """Return what really happened in an episode."""
        return read_label(self.path(episode))

    def path(self, episode: str) -> Path:
        """Return the folder of an episode; raise DataError when the version has no such episode."""
        if episode not in self.files:
            raise DataError(
                f'version {self.version} of {self.root} has no episode "{episode}"; {suggest(episode, self.files)}'
            )
        return self.root / EPISODES / episode

    def differing_files(self, threads: int = 4) -> list[Path]:
        """Return the files whose content is not what the version recorded; those not changed since are not read."""
        expected = {
            self.path(episode) / name: record.sha256
            for episode, records in self.files.items()
            for name, record in records.items()
        }
        return differing_files(self.root, expected, threads)


def open_dataset(path: Path | str, version: str | None = None) -> Dataset:
    """Open one version of a dataset, the newest by default.

    Checks that the schema version is known and that every file of the version is there with its recorded size;
    `faultset.datasets.checks.verification.verify` also reads and hashes them.
    """
    root = Path(path)
    dataset = Dataset(root, read_manifest(root, version))
    missing, changed, total = [], [], 0
    for episode, files in dataset.files.items():
        for name, record in files.items():
            total += 1
            file = root / EPISODES / episode / name
            try:
                if file.stat().st_size != record.bytes:
                    changed.append(file)
            except FileNotFoundError:
                missing.append(file)
    remedy = 'restore them, or open another version ("faultset dataset versions" lists them)'
    if missing:
        raise DataError(
            f"dataset {root} version {dataset.version} is incomplete: {len(missing)} of {total} files missing "
            f"(first: {missing[0].relative_to(root)}); {remedy}"
        )
    if changed:
        raise DataError(
            f"dataset {root} version {dataset.version} is damaged: {len(changed)} of {total} files have another "
            f"size than recorded (first: {changed[0].relative_to(root)}); {remedy}"
        )
    return dataset
