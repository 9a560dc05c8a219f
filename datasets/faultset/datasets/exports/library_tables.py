"""Layouts for libraries that read Parquet: Croissant, Hugging Face and DuckDB."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.core.errors import how_to_install
from faultset.core.printable import count_text
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import SUBSETS, ExportLayout, ExportOptions
from faultset.datasets.format.cards import KEEP_MARK, card_text
from faultset.datasets.format.episodes import EPISODES, table_file
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, AddedTable, stored_schema


class TablesBySplit(ExportLayout):
    """Copies of the dataset's files as `<subset>/<episode>/<folder>/<table>.parquet`.

    Without the split `by-episode`, all episodes are in the subset `train`.

    Attributes
    ----------
    rows
        Number of copied rows by table and subset.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self.rows: dict[tuple[str, str], int] = {}
        self.added: dict[str, AddedTable] = {}

    def write(self, episode: str) -> None:
        subset = self.find_subset(episode)
        source = self.dataset[episode]
        self.added |= {table.name: table for table in source.context.added_tables}
        for name, record in source.files.items():
            if not name.endswith(".parquet"):
                continue
            target = self.folder / subset / episode / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.path / name, target)
            key = (target.stem, subset)
            self.rows[key] = self.rows.get(key, 0) + (record.rows or 0)

    def tables(self) -> dict[str, list[str]]:
        """Return the subsets in which each table has rows; tables without rows are left out."""
        subsets: dict[str, list[str]] = {}
        for subset in SUBSETS:
            for (table, subset_of_rows), rows in self.rows.items():
                if subset_of_rows == subset and rows:
                    subsets.setdefault(table, []).append(subset)
        return subsets

    def glob(self, table: str, subset: str) -> str:
        """Return the glob pattern of a table's files."""
        return f"{subset}/*/{table_file(table)}"


_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
} | {
    name: f"cr:{name}"
    for name in (
        "citeAs", "column", "extract", "field", "fileObject", "fileProperty", "fileSet", "format", "includes",
        "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
        "repeated", "replace", "separator", "source", "subField", "transform",
    )
}  # fmt: skip


class CroissantExport(TablesBySplit):
    """`croissant.json` with a record set per table."""

    def finish(self) -> None:
        """Write the metadata without columns of nested records, such as root causes."""
        schemas = TABLES | {name: table.schema for name, table in self.added.items()} | TRUTH_TABLES
        tables = self.tables()
        version_file = self.dataset.version_file
        content = {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "name": self.dataset.root.resolve().name,
            "description": (
                "Labelled telemetry of microservices, with and without faults: "
                f"{count_text(len(version_file.episodes), 'episode')}. "
                "Nested columns, such as the root causes in the labels, are in the Parquet files only."
            ),
            "conformsTo": "http://mlcommons.org/croissant/1.0",
            "version": version_file.version,
            "datePublished": version_file.created,
            "distribution": [self._files(table, subsets) for table, subsets in tables.items()],
            "recordSet": [self._records(table, stored_schema(schemas[table])) for table in tables],
        }
        (self.folder / "croissant.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _files(self, table: str, subsets: list[str]) -> dict[str, Any]:
        return {
            "@type": "cr:FileSet",
            "@id": f"{table}-files",
            "name": f"{table}-files",
            "encodingFormat": "application/x-parquet",
            "includes": [self.glob(table, subset) for subset in subsets],
        }

    def _records(self, table: str, schema: pa.Schema) -> dict[str, Any]:
        fields = [content for column in schema if (content := _describe_field(table, column)) is not None]
        return {"@type": "cr:RecordSet", "@id": table, "name": table, "field": fields}


def _describe_field(table: str, column: pa.Field) -> dict[str, Any] | None:
    kind, is_list = column.type, pa.types.is_list(column.type)
    item_kind = kind.value_type if is_list else kind
    data_type = next((name for is_kind, name in _DATA_TYPES if is_kind(item_kind)), None)
    if data_type is None:
        return None
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{column.name}",
        "name": column.name,
        "description": (column.metadata or {}).get(b"description", b"").decode(),
        "dataType": data_type,
        "source": {"fileSet": {"@id": f"{table}-files"}, "extract": {"column": column.name}},
    } | ({"repeated": True} if is_list else {})


_DATA_TYPES = (
    (pa.types.is_timestamp, "sc:DateTime"),
    (pa.types.is_integer, "sc:Integer"),
    (pa.types.is_floating, "sc:Float"),
    (pa.types.is_boolean, "sc:Boolean"),
    (pa.types.is_string, "sc:Text"),
)


class HuggingFaceExport(TablesBySplit):
    """The card of the dataset with a configuration per table; its splits are the subsets of `by-episode`."""

    def finish(self) -> None:
        """Write the card with configurations and files in its front matter."""
        episodes = self.dataset.episodes
        text = card_text(
            self.dataset.root.resolve().name,
            self.dataset.version_file,
            {episode: self.dataset.label(episode) for episode in episodes},
            {episode: self.dataset.view(episode).context.app for episode in episodes},
            added_tables=list(self.added.values()),
        )
        body = text.split("\n---\n", 1)[1].replace(KEEP_MARK, "").replace("episodes/<id>/", "<subset>/<id>/").rstrip()
        lists = f"The lists are in `versions/{self.dataset.version}.json`, together with the SHA-256 of every file."
        body = body.replace(lists, "The folders `train` and `test` are the subsets of `by-episode`.")
        (self.folder / "README.md").write_text(f"{self._front_matter()}{body}\n", encoding="utf-8")

    def _front_matter(self) -> str:
        configs = []
        for table, subsets in self.tables().items():
            files = "".join(f"  - split: {subset}\n    path: {self.glob(table, subset)}\n" for subset in subsets)
            configs.append(f"- config_name: {table}\n  data_files:\n{files}")
        name = json.dumps(self.dataset.root.resolve().name)
        tags = "- time-series\n- microservices\n- anomaly-detection\n- root-cause-analysis\n"
        return f"---\npretty_name: {name}\ntags:\n{tags}configs:\n{''.join(configs)}---\n"


class DuckDBExport(ExportLayout):
    """`views.sql`, run as `duckdb -init views.sql` or `connection.execute(text)`.

    The views name the files of the version, so they do not show episodes added later.
    """

    opening = f"duckdb -init {{out}}/views.sql\n  in Python: {how_to_install('sql')}"

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._root = dataset.root.resolve()
        self._files: dict[str, list[Path]] = {}

    def write(self, episode: str) -> None:
        """Add the tables of an episode to the views."""
        for name in self.dataset.files[episode]:
            if name.endswith(".parquet"):
                path = self._root / EPISODES / episode / name
                self._files.setdefault(path.stem, []).append(path)

    def finish(self) -> None:
        views = []
        for table, paths in sorted(self._files.items()):
            names = ",\n  ".join(_quote(path) for path in paths)
            files = f"read_parquet([\n  {names}\n])"
            views.append(f'CREATE OR REPLACE VIEW "{table}" AS SELECT * FROM {files};\n')
        (self.folder / "views.sql").write_text("\n".join(views), encoding="utf-8")


def _quote(path: Path) -> str:
    text = str(path).replace("'", "''")
    return f"'{text}'"
