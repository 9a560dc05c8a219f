"""Croissant metadata (format version 1.0 of MLCommons) beside the tables, for libraries that read it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from faultset.datasets.exports.tables_by_split import TablesBySplit
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, stored

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
    """`croissant.json` with one record set for each table."""

    def finish(self) -> None:
        """Write the metadata; columns of nested records, such as root causes, have no place in it."""
        schemas = TABLES | {name: table.schema for name, table in self.added.items()} | TRUTH_TABLES
        tables = self.tables()
        manifest = self.dataset.manifest
        content = {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "name": self.dataset.root.resolve().name,
            "description": (
                f"Labelled telemetry of microservices, with and without faults: {len(manifest.episodes)} episodes. "
                "What is nested in a table, such as the root causes in the labels, is in its Parquet files only."
            ),
            "conformsTo": "http://mlcommons.org/croissant/1.0",
            "version": manifest.version,
            "datePublished": manifest.created,
            "distribution": [self._files(table, sides) for table, sides in tables.items()],
            "recordSet": [self._records(table, stored(schemas[table])) for table in tables],
        }
        (self.folder / "croissant.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _files(self, table: str, sides: list[str]) -> dict[str, Any]:
        return {
            "@type": "cr:FileSet",
            "@id": f"{table}-files",
            "name": f"{table}-files",
            "encodingFormat": "application/x-parquet",
            "includes": [self.glob(table, side) for side in sides],
        }

    def _records(self, table: str, schema: pa.Schema) -> dict[str, Any]:
        fields = [found for column in schema if (found := _field(table, column)) is not None]
        return {"@type": "cr:RecordSet", "@id": table, "name": table, "field": fields}


def _field(table: str, column: pa.Field) -> dict[str, Any] | None:
    kind, is_list = column.type, pa.types.is_list(column.type)
    data_type = _data_type(kind.value_type if is_list else kind)
    if data_type is None:
        return None
    described = (column.metadata or {}).get(b"description", b"").decode()
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{column.name}",
        "name": column.name,
        "description": described,
        "dataType": data_type,
        "source": {"fileSet": {"@id": f"{table}-files"}, "extract": {"column": column.name}},
    } | ({"repeated": True} if is_list else {})


def _data_type(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        return "sc:DateTime"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    if pa.types.is_floating(kind):
        return "sc:Float"
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    return "sc:Text" if pa.types.is_string(kind) else None
