"""Every registered format of recorded runs keeps what formats promise."""

from __future__ import annotations

import ast
import gzip
import inspect
import itertools
import json
import textwrap
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.agents import import_runs, read_runs, score_runs
from faultset.agents.cli import import_
from faultset.agents.formats.contract import agent_format_names
from faultset.agents.runs.record import RUNS, RUNS_VERSION, TRUTH, AgentRun, RunTruth
from faultset.agents.testing import check_agent_format
from faultset.core.errors import DataError, UsageError
from tests.agents.conftest import Session, said

SAMPLES = Path(__file__).parent / "samples"


def test_one_bad_file_stops_an_import_and_nothing_is_left(session: Session, tmp_path: Path) -> None:
    session(said('submit("Yes")'))
    session(said('submit("Yes")'), name="two.json").write_text('{"trace": [')
    with pytest.raises(DataError, match=r"two\.json is not valid JSON"):
        import_runs("aiopslab", tmp_path / "sessions", tmp_path / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]


def test_bad_files_are_left_out_and_counted_when_asked_for(session: Session, tmp_path: Path) -> None:
    session(said('submit("Yes")'))
    session(said('submit("Yes")'), name="two.json").write_text('{"trace": [')
    done = import_runs("aiopslab", tmp_path / "sessions", tmp_path / "runs", skip_bad=True)
    assert (done.files, len(done.runs), [*done.left_out]) == (2, 1, ["two.json"])
    assert read_runs(tmp_path / "runs") == [*done.runs]


def test_a_file_packed_with_gzip_gives_the_same_run(session: Session, tmp_path: Path) -> None:
    file = session(said('submit("Yes")'))
    (plain,) = import_runs("aiopslab", tmp_path / "sessions", tmp_path / "plain").runs
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    (unpacked,) = import_runs("aiopslab", tmp_path / "sessions", tmp_path / "unpacked").runs
    assert (unpacked.status, unpacked.answer, unpacked.source_file) == (plain.status, plain.answer, packed.name)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(DataError, match="is damaged gzip data"):
        import_runs("aiopslab", tmp_path / "sessions", tmp_path / "damaged")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "is not valid JSON"),
        (lambda text: text.replace('"env"', '"wizard"'), "role must be 'assistant', 'env', 'system' or 'user'"),
        (lambda text: text.replace('"problem_id"', '"problem"'), "the field problem_id is missing"),
        (lambda text: "[]", "must hold an object"),
        (lambda text: text.replace('"trace": [', '"trace": [], "old": ['), "trace"),
    ],
)
def test_a_bad_file_is_one_sentence(change, sentence: str, session: Session, tmp_path: Path) -> None:
    file = session(said('exec_shell("ls")'), said('submit("Yes")'))
    file.write_text(change(file.read_text()))
    with pytest.raises(DataError) as caught:
        import_runs("aiopslab", file, tmp_path / "runs")
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_file_in_another_encoding_is_one_sentence(session: Session, tmp_path: Path) -> None:
    file = session(said('submit("Yes")'))
    file.write_bytes(file.read_text().encode("utf-16"))
    with pytest.raises(DataError, match="is not valid JSON"):
        import_runs("aiopslab", file, tmp_path / "runs")


def test_a_very_long_observation_is_kept_whole(session: Session, tmp_path: Path) -> None:
    long = "ä" * 420_000
    file = session(said('exec_shell("kubectl logs geo")'), said('submit("Yes")'), replies=(long, "1"))
    done = import_runs("aiopslab", file, tmp_path / "runs")
    document = json.loads((tmp_path / "runs" / done.runs[0].trajectory_path).read_text())
    assert document["steps"][0]["observation"]["results"][0]["content"] == long


def test_names_come_from_the_user_where_the_files_lack_them(session: Session, tmp_path: Path) -> None:
    file = session(said('submit("Yes")'), agent=None)
    run = import_runs("aiopslab", file, tmp_path / "runs", agent="bash", model="gpt").runs[0]
    assert (run.agent, run.model) == ("bash", "gpt")


def test_a_folder_that_is_not_empty_is_refused(session: Session, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").touch()
    with pytest.raises(DataError, match="must be a new or empty folder"):
        import_runs("aiopslab", session(said('submit("Yes")')), tmp_path / "runs")


def test_an_unknown_format_is_a_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="aiopslab"):
        import_runs("aiopslap", tmp_path, tmp_path / "runs")


def test_a_damaged_table_is_one_sentence(session: Session, tmp_path: Path) -> None:
    import_runs("aiopslab", session(said('submit("Yes")')), tmp_path / "runs")
    table = tmp_path / "runs" / "runs.parquet"
    table.write_bytes(table.read_bytes()[:-40])
    with pytest.raises(DataError) as caught:
        score_runs(tmp_path / "runs")
    assert str(caught.value).isprintable()


def test_every_column_is_described_where_it_is_declared() -> None:
    for record, schema in ((AgentRun, RUNS), (RunTruth, TRUTH)):
        (declaration,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
        assert isinstance(declaration, ast.ClassDef)
        described = [
            field.target.id
            for field, text in itertools.pairwise(declaration.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
        ]
        assert described == schema.names


def test_tables_carry_the_version_of_their_layout(session: Session, tmp_path: Path) -> None:
    import_runs("aiopslab", session(said('submit("Yes")')), tmp_path / "runs")
    for name in ("runs", "truth"):
        metadata = pq.read_schema(tmp_path / "runs" / f"{name}.parquet").metadata
        assert metadata[b"faultset.agent_runs"] == str(RUNS_VERSION).encode()


@pytest.mark.parametrize("command", ["get " * 100_000, "cat /scripts/" * 30_000, "a/" * 200_000, "`" * 300_000])
def test_long_commands_take_no_long_time(command: str, session: Session, tmp_path: Path) -> None:
    file = session(said(f'exec_shell("{command}")'), said('submit("Yes")'))
    started = time.monotonic()
    import_runs("aiopslab", file, tmp_path / "runs")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(("name", "other"), [("atif", "openrca"), ("openrca", "atif"), ("aiopslab", "inspect")])
def test_a_file_of_another_format_names_the_format_that_reads_it(name: str, other: str, tmp_path: Path) -> None:
    file = next(path for path in sorted((SAMPLES / other).rglob("*")) if path.is_file())
    with pytest.raises(DataError, match=f"use faultset agents import {other}$"):
        import_runs(name, file, tmp_path / "runs")


@pytest.mark.parametrize(("options", "hinted"), [([], True), (["--candidates", "mongodb-geo"], False)])
def test_answers_in_free_text_that_cannot_be_read_ask_for_candidates(
    options: list[str], hinted: bool, tmp_path: Path
) -> None:
    file = SAMPLES / "atif" / "shell.trajectory.json"
    result = CliRunner().invoke(import_, ["atif", str(file), str(tmp_path / "runs"), *options])
    assert result.exit_code == 0, result.output
    assert ("for example --candidates geo,rate" in result.output) == hinted


@pytest.mark.parametrize("name", agent_format_names())
def test_it_passes_the_check_of_formats(name: str) -> None:
    check_agent_format(name, SAMPLES / name)
