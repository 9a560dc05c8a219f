"""A dataset of schema version 1 as an older release wrote it: read by everything, and written anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.core.command_line.console import root as faultset
from faultset.core.errors import DataError
from faultset.datasets import open_dataset, upgrade_dataset, verify
from faultset.datasets.testing import check_exporter

OLD = Path(__file__).parent / "data" / "schema-1"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def cause_fields(root: Path) -> set[str]:
    label = next(root.glob("episodes/*/truth/label.parquet"))
    return {field.name for field in pq.read_schema(label).field("root_causes").type.value_type}


def test_the_old_dataset_lacks_what_this_release_writes(old: Path) -> None:
    assert "metric" not in cause_fields(old)


def test_an_old_dataset_is_read_by_everything(old: Path) -> None:
    dataset = open_dataset(old)
    dataset.check_files(1)
    assert not [finding for finding in verify(old) if finding.severity == "error"]
    for episode in dataset.episodes:
        view = dataset.view(episode)
        assert all(len(view.table(table)) for table in view.tables)
        assert view.wide(step_s=1.0).size
        assert dataset.label(episode).episode == episode
        assert dataset[episode].journal == []
    check_exporter("wide-parquet", old)


def test_an_upgrade_has_the_same_content_in_the_new_form(old: Path, tmp_path: Path) -> None:
    told = []
    made = upgrade_dataset(old, tmp_path / "new", progress=lambda *steps: told.append(steps))
    before = open_dataset(old)
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert (made.episodes, made.splits) == (before.episodes, before.splits)
    assert made.provenance["upgraded_from"]["version"] == "1.0.0"
    for episode in made.episodes:
        assert made.label(episode) == before.label(episode)
        assert made.view(episode).context == before.view(episode).context
        pd.testing.assert_frame_equal(made[episode].evidence, before[episode].evidence)
        for table in made.view(episode).tables:
            assert made.view(episode).table(table).equals(before.view(episode).table(table))
    assert not [finding for finding in verify(tmp_path / "new") if finding.severity == "error"]
    assert "metric" in cause_fields(tmp_path / "new")


def test_an_upgrade_never_writes_into_a_folder_that_holds_something(old: Path) -> None:
    with pytest.raises(DataError, match="exists and is not empty; give a new folder"):
        upgrade_dataset(old, old)


def test_the_command_says_where_the_new_dataset_is(old: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(faultset, ["dataset", "upgrade", str(old), str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "2 episodes in" in result.stdout
