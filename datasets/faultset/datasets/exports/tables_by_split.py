"""The Parquet files of a version in folders by side of a split, for layouts that describe them to other libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.schemas import AddedTable

SPLIT = "by-episode"
SIDES = ("train", "test")


class TablesBySplit:
    """`<side>/<episode>/<folder>/<table>.parquet`, byte for byte as the dataset has them; without a split all is train.

    Attributes
    ----------
    rows
        (table, side) -> rows in the files that were copied.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self.dataset = dataset
        self.folder = folder
        self.rows: dict[tuple[str, str], int] = {}
        self.added: dict[str, AddedTable] = {}
        self._test = set(dataset.splits.get(SPLIT, {}).get("test", ()))

    def unavailable_reason(self, episode: str) -> str | None:
        """Return None: every episode fits."""
        return None

    def write(self, episode: str) -> None:
        """Copy the tables of one episode."""
        side = "test" if episode in self._test else "train"
        found = self.dataset[episode]
        self.added |= {table.name: table for table in found.context.added_tables}
        for name, record in found.files.items():
            if not name.endswith(".parquet"):
                continue
            target = self.folder / side / episode / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found.path / name, target)
            key = (target.stem, side)
            self.rows[key] = self.rows.get(key, 0) + (record.rows or 0)

    def tables(self) -> dict[str, list[str]]:
        """Return the sides on which each table has rows; a table without any is left out."""
        found: dict[str, list[str]] = {}
        for side in SIDES:
            for (table, place), rows in self.rows.items():
                if place == side and rows:
                    found.setdefault(table, []).append(side)
        return found

    def glob(self, table: str, side: str) -> str:
        """Return the pattern that the files of a table match."""
        return f"{side}/*/{table_file(table)}"
