"""A script that gives DuckDB every table as a view over the dataset's own files; nothing is copied."""

from __future__ import annotations

from pathlib import Path

from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.format.episodes import EPISODES


class DuckDBExport:
    """`views.sql`, run as `duckdb -init views.sql` or `connection.execute(text)`.

    The views name the version's files, so that what is added to the dataset later is not seen, and see whatever changes
    in them.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._root = dataset.root.resolve()
        self._folder = folder
        self._dataset = dataset
        self._files: dict[str, list[Path]] = {}

    def unavailable_reason(self, episode: str) -> str | None:
        """Return None: every episode fits."""
        return None

    def write(self, episode: str) -> None:
        """Note the tables of one episode."""
        for name in self._dataset.files[episode]:
            if name.endswith(".parquet"):
                path = self._root / EPISODES / episode / name
                self._files.setdefault(path.stem, []).append(path)

    def finish(self) -> None:
        """Write the script."""
        views = []
        for table, paths in sorted(self._files.items()):
            listed = ",\n  ".join(_quoted(path) for path in paths)
            files = f"read_parquet([\n  {listed}\n])"
            views.append(f'CREATE OR REPLACE VIEW "{table}" AS SELECT * FROM {files};\n')
        (self._folder / "views.sql").write_text("\n".join(views), encoding="utf-8")


def _quoted(path: Path) -> str:
    text = str(path).replace("'", "''")
    return f"'{text}'"
