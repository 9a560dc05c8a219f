"""Tables that a source adds to an episode are declared, written, read, verified, and in the dataset's card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultset.core.errors import DataError, UsageError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.context import EpisodeContext, read_context
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.schemas import AddedColumn, AddedTable
from faultset.datasets.format.versions import create_version
from faultset.datasets.views import EpisodeView

START_NS = 1_760_000_000_000_000_000
SECOND = 1_000_000_000
POWER = AddedTable(
    name="power",
    source="power-meter of lab-meters 1.2",
    meaning="What the machine draws.",
    columns=(
        AddedColumn(name="socket", type="string", meaning="which socket"),
        AddedColumn(name="drawn_w", type="double", unit="W", meaning="drawn power", nullable=True),
    ),
)


def row(at_s: float, socket: str = "a", watts: float | None = 80.0) -> dict[str, Any]:
    return {"time": START_NS + round(at_s * SECOND), "socket": socket, "drawn_w": watts}


def found(root: Path, check: str) -> list[str]:
    return [str(finding) for finding in verify(root) if finding.check == check]


def test_an_added_table_is_read_like_any_other(write_episode: Callable[..., Path]) -> None:
    view = EpisodeView(write_episode(added_tables=[POWER], power=[row(2), row(1, "b", None)]))
    assert view.tables[-1] == "power"
    rows = view.table("power")
    assert rows["socket"].to_pylist() == ["b", "a"], "rows are in time order"
    assert rows["drawn_w"].to_pylist() == [None, 80.0]
    assert rows["episode"].to_pylist() == ["e1", "e1"]
    with pytest.raises(UsageError, match="power"):
        view.table("powr")


def test_the_context_carries_the_declaration_with_units(write_episode: Callable[..., Path]) -> None:
    path = write_episode(added_tables=[POWER])
    context = read_context(path)
    assert context.added_tables == (POWER,)
    assert context.tables["power"].field("drawn_w").metadata[b"unit"] == b"W"
    assert (path / "telemetry" / "power.parquet").exists(), "a table without rows is an empty file"


def test_an_episode_without_added_tables_has_an_empty_list_of_them(write_episode: Callable[..., Path]) -> None:
    assert json.loads((write_episode() / "context.json").read_text())["added_tables"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"columns": "no list"},
        {"columns": [{"name": "x"}]},
        {"name": "metrics"},
        {"columns": [{"name": "x", "type": "complex", "meaning": "m", "unit": "", "nullable": False}]},
    ],
)
def test_a_damaged_declaration_is_one_sentence(change: dict[str, Any], write_episode: Callable[..., Path]) -> None:
    path = write_episode(added_tables=[POWER]) / "context.json"
    content = json.loads(path.read_text())
    content["added_tables"][0] |= change
    with pytest.raises(DataError) as error:
        EpisodeContext.from_json(json.dumps(content), origin=str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "Power"}, "is not a valid name of an added table"),
        ({"name": "label"}, "is not a valid name of an added table"),
        ({"columns": ()}, "must have columns in addition to its time"),
        ({"columns": (AddedColumn(name="time", type="double", meaning="m"),)}, "already exist"),
        ({"columns": (AddedColumn(name="x", type="float", meaning="m"),)}, "choose one of string, text"),
        ({"columns": (AddedColumn(name="x", type="double", meaning=" "),)}, "lacks a meaning"),
    ],
)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        AddedTable(**{**vars(POWER), **changes})


def test_a_writer_refuses_a_context_with_other_tables(tmp_path: Path, write_episode: Callable[..., Path]) -> None:
    context = read_context(write_episode("e1"))
    with (
        EpisodeWriter(tmp_path / "other", "e1", added_tables=[POWER]) as writer,
        pytest.raises(DataError, match=r"must declare the writer's tables .*power"),
    ):
        writer.write_context(context)


def test_a_sound_added_table_passes_and_the_card_explains_it(
    tmp_path: Path, write_episode: Callable[..., Path]
) -> None:
    write_episode("e1", added_tables=[POWER], power=[row(1)])
    write_episode("e2")
    create_version(tmp_path, provenance={})
    assert [str(one) for one in verify(tmp_path) if one.severity == "error"] == []
    card = (tmp_path / "README.md").read_text()
    assert "| power | 1 |" in card
    assert "| drawn_w | double | W | yes | drawn power |" in card
    assert "config_name: power" in card
    assert "power" in open_dataset(tmp_path).view("e1").tables


def test_rows_outside_the_view_and_files_that_nobody_declares_are_errors(
    tmp_path: Path, write_episode: Callable[..., Path], recorded_again: Callable[[Path], None]
) -> None:
    write_episode("e1", added_tables=[POWER], power=[row(101)])
    path = write_episode("e2", added_tables=[POWER])
    create_version(tmp_path, provenance={})
    content = json.loads((path / "context.json").read_text())
    del content["added_tables"]
    (path / "context.json").write_text(json.dumps(content))
    recorded_again(tmp_path)
    assert any("1 of 1 rows are outside the view" in one for one in found(tmp_path, "window"))
    assert any("the context does not declare it" in one for one in found(tmp_path, "schema"))


def test_two_declarations_of_one_table_in_a_dataset_are_told(
    tmp_path: Path, write_episode: Callable[..., Path]
) -> None:
    write_episode("e1", added_tables=[POWER])
    write_episode("e2", added_tables=[AddedTable(**{**vars(POWER), "columns": POWER.columns[:1]})])
    create_version(tmp_path, provenance={})
    assert any("declared differently in episode e1" in one for one in found(tmp_path, "schema"))


def test_what_an_added_table_says_of_the_fault_is_a_leak(
    tmp_path: Path, write_episode: Callable[..., Path], fault_label: Callable[..., dict[str, Any]]
) -> None:
    notes = AddedTable(
        name="notes",
        source="notes of x 1",
        meaning="Notes.",
        columns=(AddedColumn(name="name", type="text", meaning="who wrote it"),),
    )
    rows = [{"time": START_NS, "name": "memory_leak begins"}]
    write_episode("e1", label=fault_label(), added_tables=[notes], notes=rows)
    write_episode("e2", label=fault_label("pod-kill"), added_tables=[notes])
    write_episode("e3")
    create_version(tmp_path, provenance={})
    assert any("notes.parquet" in one and "memory-leak" in one for one in found(tmp_path, "leak"))


def test_a_source_that_failed_is_told(tmp_path: Path, write_episode: Callable[..., Path]) -> None:
    failure = {"check": "source", "subject": "power-meter", "time": None, "passed": False, "detail": "no answer"}
    write_episode("e1", added_tables=[POWER], evidence=[failure])
    create_version(tmp_path, provenance={})
    assert any("source of power-meter is incomplete: no answer" in one for one in found(tmp_path, "source"))
