"""Files of an earlier schema version lack a column, which readers find null; new ones have it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.datasets import open_dataset, upgrade_dataset, verify
from faultset.datasets.format.schemas import SCHEMA_VERSION
from faultset.datasets.views import EpisodeView

OLD = Path(__file__).parents[1] / "data" / "schema-1"
OBJECTS = "episodes/*/telemetry/objects.parquet"


def old_views() -> list[EpisodeView]:
    dataset = open_dataset(OLD)
    return [dataset.view(episode) for episode in dataset.episodes]


def test_the_files_of_schema_version_1_have_no_texts_of_config_maps() -> None:
    assert all("data" not in pq.read_schema(file).names for file in OLD.glob(OBJECTS))
    assert open_dataset(OLD).manifest.schema_version == 1


@pytest.mark.parametrize("filters", [None, [("kind", "=", "Deployment")], pc.field("data").is_null()])
def test_what_they_lack_is_null_however_it_is_read(filters: object) -> None:
    for view in old_views():
        rows = view.table("objects", filters=filters)  # type: ignore[arg-type]
        assert rows.column_names[-1] == "data"
        assert rows["data"].null_count == len(rows) > 0
        assert len(view.table("objects", ["name"], filters)) == len(rows)  # type: ignore[arg-type]
        pieces = [len(data) for _, data in view.pieces("objects", "time", "data")]
        assert sum(pieces) == len(view.table("objects"))


def test_any_other_column_must_be_there(tmp_path: Path) -> None:
    root = Path(shutil.copytree(OLD, tmp_path / "old"))
    file = next(root.glob(OBJECTS))
    pq.write_table(pq.read_table(file).drop_columns(["state"]), file)
    with pytest.raises(DataError, match=r"columns differ: missing \['state'\]"):
        EpisodeView(file.parents[1]).table("objects")


def test_an_upgrade_writes_the_column(tmp_path: Path) -> None:
    upgraded = upgrade_dataset(OLD, tmp_path / "new")
    assert upgraded.manifest.schema_version == SCHEMA_VERSION
    assert all("data" in pq.read_schema(file).names for file in (tmp_path / "new").glob(OBJECTS))
    assert not [finding for finding in verify(tmp_path / "new") if finding.severity == "error"]
