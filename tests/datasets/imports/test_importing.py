"""An import: whole episodes or none, finished by running it again, and one clear sentence for bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, DiskFullError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.versions import complete_episodes
from faultset.datasets.imports import cases as case_imports
from faultset.datasets.imports.contract import reference_end
from faultset.datasets.imports.examination import examine
from faultset.datasets.imports.formats.rcaeval import RCAEvalImport
from faultset.datasets.imports.importer import ImportCost, episode_id, import_dataset

START, ROWS, ONSET = 1_690_000_000, 60, 30


def write_cases(root: Path, count: int, rows: int = ROWS, series: int = 2) -> Path:
    rng = np.random.default_rng(0)
    header = ",".join(["time", *(f"s{number}_cpu" for number in range(series))])
    for number in range(count):
        folder = root / "RE2-OB" / "s0_cpu" / str(number)
        folder.mkdir(parents=True)
        values = rng.random((rows, series)).round(4)
        lines = [",".join([str(START + row), *map(str, values[row])]) for row in range(rows)]
        (folder / "simple_metrics.csv").write_text("\n".join([header, *lines]) + "\n")
        (folder / "inject_time.txt").write_text(str(START + rows // 2))
    return root


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(faultset, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_cases(tmp_path / "source", 3)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_the_command_says_where_the_result_is_and_what_to_run_next(source, out):
    code, text, progress = run("dataset", "import", "rcaeval", source, out, "--workers", 1)
    assert code == 0
    assert f"3 episodes in {out}: 3 written now." in text
    assert f"faultset dataset verify {out}" in text
    assert f"evaluate {out}" in text
    assert "cases 3/3" in progress


def test_an_import_that_is_run_again_has_nothing_to_do(source, out):
    import_dataset("rcaeval", source, out, workers=1)
    again = import_dataset("rcaeval", source, out, workers=1)
    assert (again.written, again.is_new, again.version) == (0, False, "1.0.0")
    assert open_dataset(out).version == "1.0.0"


def test_an_interrupted_import_writes_only_what_is_missing(source, out, monkeypatch):
    real = case_imports.import_case
    written: list[str] = []

    def failing(found, case, folder):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(case.key)
        real(found, case, folder)

    monkeypatch.setattr(case_imports, "import_case", failing)
    with pytest.raises(KeyboardInterrupt):
        import_dataset("rcaeval", source, out, workers=1)
    assert len(complete_episodes(out)) == 1
    monkeypatch.setattr(case_imports, "import_case", real)
    done = import_dataset("rcaeval", source, out, workers=1)
    assert (done.cases, done.written) == (3, 2)


def test_kill_nine_leaves_whole_episodes_or_none_and_no_process(tmp_path, out):
    # more than two workers finish until they notice that the import is gone
    cases = 90
    source = write_cases(tmp_path / "many", cases, rows=1_200, series=60)
    code = f"""
import sys
from faultset.datasets.imports.importer import import_dataset
if __name__ == "__main__":
    import_dataset("rcaeval", {str(source)!r}, {str(out)!r}, workers=2)
"""
    script = tmp_path / "run.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    deadline = time.monotonic() + 60
    while len(complete_episodes(out)) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while time.monotonic() < deadline and _group_lives(process.pid):
        time.sleep(0.05)
    assert not _group_lives(process.pid)
    assert 0 < len(complete_episodes(out)) < cases
    done = import_dataset("rcaeval", source, out, workers=1)
    assert done.cases == cases
    assert len(open_dataset(out).episodes) == cases
    assert not list((out / "episodes").glob("*.incomplete"))


def _group_lives(leader: int) -> bool:
    """Return whether anybody but zombies is left in a process group."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            return True
    return False


def test_many_workers_give_the_same_dataset_as_one(source, tmp_path):
    import_dataset("rcaeval", source, tmp_path / "one", workers=1)
    import_dataset("rcaeval", source, tmp_path / "two", workers=2)
    assert open_dataset(tmp_path / "one").files == open_dataset(tmp_path / "two").files


def test_a_case_that_cannot_be_read_stops_the_version_unless_it_may_be_left_out(source, out):
    bad = source / "RE2-OB" / "s0_cpu" / "1" / "simple_metrics.csv"
    bad.write_text("")
    code, text, errors = run("dataset", "import", "rcaeval", source, out, "--workers", 1)
    assert (code, text) == (3, "")
    assert "cannot import 1 of 3 cases (first: " in errors
    assert "--skip-bad" in errors
    assert not (out / "versions").exists()
    code, text, errors = run("dataset", "import", "rcaeval", source, out, "--workers", 1, "--skip-bad")
    assert code == 0
    assert "Skipped RE2-OB/s0_cpu/1: " in errors
    assert open_dataset(out).provenance["import"]["left_out"].keys() == {"RE2-OB/s0_cpu/1"}


def test_a_second_source_joins_the_dataset_as_a_new_version(source, tmp_path, out):
    import_dataset("rcaeval", source, out, workers=1)
    write_cases(tmp_path / "more", 5)
    for number in range(3):
        # Other cases than the first source has.
        folder = tmp_path / "more" / "RE2-OB" / "s0_cpu" / str(number)
        folder.rename(folder.with_name(str(number + 10)))
    done = import_dataset("rcaeval", tmp_path / "more", out, workers=1)
    assert (done.version, len(open_dataset(out).episodes)) == ("1.1.0", 8)


def test_the_same_case_from_elsewhere_is_refused(source, tmp_path, out):
    import_dataset("rcaeval", source, out, workers=1)
    with pytest.raises(DataError, match=r"was imported into .*; choose another folder"):
        import_dataset("rcaeval", write_cases(tmp_path / "other", 1), out, workers=1)


def test_a_folder_with_other_data_is_never_touched(source, out):
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    code, _, errors = run("dataset", "import", "rcaeval", source, out)
    assert code == 3
    assert errors == f"Error: {out} holds other data (thesis.txt); give a new folder for the imported dataset\n"
    assert [entry.name for entry in out.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("rcaevall", "{source}"), 2, 'unknown format "rcaevall"; did you mean "rcaeval"'),
        (("rcaeval", "{source}-missing"), 3, "does not exist"),
        (("rcaeval", "{empty}"), 3, "holds no RCAEval case"),
        (("rcabench", "{source}"), 3, "holds no valid datapack"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(source, out, tmp_path, arguments, code, sentence):
    (tmp_path / "empty").mkdir()
    filled = [argument.format(source=source, empty=tmp_path / "empty") for argument in arguments]
    found, text, errors = run("dataset", "import", *filled, out)
    assert (found, text) == (code, "")
    assert sentence in errors
    assert errors.count("\n") == 1
    assert not out.exists()


def test_ids_are_opaque_and_the_same_in_every_import():
    first = episode_id("rcaeval", "RE2-OB/cartservice_cpu/1")
    assert first == episode_id("rcaeval", "RE2-OB/cartservice_cpu/1")
    assert first != episode_id("rcaeval", "RE2-OB/cartservice_cpu/2")
    assert len(first) == 12


def test_truth_is_not_in_what_a_method_sees(source, out):
    import_dataset("rcaeval", source, out, workers=1)
    dataset = open_dataset(out)
    context = json.loads((dataset.path(dataset.episodes[0]) / "context.json").read_text())
    assert not {"fault", "inject_start", "targets"} & context.keys()
    assert context["platform"] == "imported"


@pytest.mark.parametrize(
    ("onset", "expected"), [(None, 40), (100, 40), (40, 40), (39, 31), (1, 1)], ids=str
)  # fmt: skip
def test_the_reference_never_reaches_the_onset(onset, expected):
    assert reference_end(0, 100, onset, origin="a case") == expected


def test_a_case_that_begins_with_its_fault_has_no_reference():
    with pytest.raises(DataError, match="has no healthy time"):
        reference_end(0, 100, 0, origin="a case")


def test_the_doctor_names_the_format_and_the_next_command(source):
    code, text, _ = run("dataset", "doctor", source)
    assert code == 0
    assert "holds 3 RCAEval cases" in text
    assert f"faultset dataset import rcaeval {source} OUT" in text
    assert "There are no logs." in text


def test_the_doctor_knows_our_own_datasets_and_what_they_were_made_of(source, out):
    import_dataset("rcaeval", source, out, workers=1)
    code, text, _ = run("dataset", "doctor", out)
    assert code == 0
    assert "is a faultset dataset, imported from RCAEval data" in text
    assert f"faultset dataset verify {out}" in text


def test_the_doctor_says_what_it_does_not_know(tmp_path):
    (tmp_path / "holiday").mkdir()
    code, _, errors = run("dataset", "doctor", tmp_path / "holiday")
    assert code == 3
    assert "has none of the known formats (aiops2025, aiopslab, cloud-monitoring, cloud-opsbench, nab," in errors
    assert "looks most like" not in errors


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (("construct_data/a.csv",), "like Nezha data: it has a folder construct_data and lacks a fault list"),
        (("x/record.csv",), "like OpenRCA data: it has record.csv and lacks a folder telemetry"),
        (("Nova/Test_1/a.log",), "it has folders Test_n and lacks a table of tests (nova.tsv, "),
        (("low/graph.csv",), "like PetShop data: it has graph.csv and lacks folders issue_n or"),
        (("pack/normal_traces.parquet",), "and lacks env.json or injection.json"),
        (("a/normal_traces.parquet", "b/env.json"), "does not have them together in one folder"),
        (("RE2-OB/cartservice_cpu/1/logs.csv",), "and lacks a file with metrics (simple_metrics.csv, data.csv)"),
    ],
)
def test_the_doctor_says_which_known_format_is_nearest_and_what_it_lacks(tmp_path, files, sentence):
    for name in files:
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text("x")
    code, _, errors = run("dataset", "doctor", tmp_path / "in")
    assert code == 3
    assert sentence in errors


def test_the_doctor_exits_with_three_when_a_case_cannot_be_imported(source):
    (source / "RE2-OB" / "s0_cpu" / "1" / "inject_time.txt").unlink()
    code, text, errors = run("dataset", "doctor", source)
    assert code == 3
    assert "inject_time.txt is missing" in text
    assert errors.splitlines()[-1] == f"Error: {source} cannot be imported as it is: 1 issue; see the list above"


@pytest.fixture
def out_of_view(monkeypatch):
    """A format whose view lies an hour after its telemetry."""
    real = RCAEvalImport.load

    def late(self, case):
        episode = real(self, case)
        hour_ns = 3_600 * 10**9
        moved = {
            name: getattr(episode, name) + hour_ns for name in ("view_start_ns", "view_end_ns", "reference_end_ns")
        }
        tables = {
            table: lambda table=table: [TABLES[table].empty_table().drop(["episode"])] for table in episode.tables
        }
        return replace(
            episode, tables=tables, label={**episode.label, "inject_start": START * 10**9 + hour_ns}, **moved
        )

    monkeypatch.setattr(RCAEvalImport, "load", late)


@pytest.mark.usefixtures("out_of_view")
def test_an_episode_without_a_row_in_its_view_is_never_written_and_the_doctor_says_so(source, out):
    code, _, errors = run("dataset", "import", "rcaeval", source, out, "--workers", 1)
    assert code == 3
    assert "RE2-OB/s0_cpu/0: no telemetry is within the view" in errors
    assert complete_episodes(out) == []
    code, text, _ = run("dataset", "doctor", source)
    assert code == 3
    assert "no telemetry is within the view" in text


def test_the_doctor_names_a_gap_that_all_series_have_in_common(source):
    for number in (0, 2):
        file = source / "RE2-OB" / "s0_cpu" / str(number) / "simple_metrics.csv"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:11] + lines[23:]))
    (issue,) = [issue for issue in examine(source).data_issues if "No metric series" in issue.problem]
    assert issue.problem == "No metric series has a sample for 13 s, 9 s after the start of the view."
    assert issue.location == "RE2-OB/s0_cpu/0 and 1 more"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_line_says_how_many_cases_how_long_and_how_much_disk(tmp_path, out, workers):
    source = write_cases(tmp_path / "ten", 10)
    _, _, errors = run("dataset", "import", "rcaeval", source, out, "--workers", workers)
    first, *lines, last = errors.splitlines()
    assert re.fullmatch(
        rf"10 cases \(10 with a fault, 0 without\): about \d+ s and \d+ [kM]B, {workers} at a time\.", first
    )
    assert all(re.fullmatch(r"cases \d+/10 after \d+ s, about \d+ s left", line) for line in lines)
    assert re.fullmatch(r"cases 10/10 after \d+ s", last)


def test_the_estimate_is_near_what_an_import_takes(tmp_path, out):
    costs: list[ImportCost] = []
    source = write_cases(tmp_path / "many", 12, rows=600, series=40)
    import_dataset("rcaeval", source, out, workers=1, announce=costs.append)
    (cost,) = costs
    size = sum(path.stat().st_size for path in (out / "episodes").rglob("*") if path.is_file())
    assert 0.5 < cost.disk_bytes / size < 2
    assert (cost.cases, cost.waiting, cost.workers) == (12, 12, 1)
    assert cost.seconds > 0


def test_progress_ends_when_the_version_is_written(source, out):
    steps: list[tuple[int, bool]] = []
    for _ in range(2):
        import_dataset(
            "rcaeval",
            source,
            out,
            workers=1,
            progress=lambda done, total: steps.append((done, (out / "versions").is_dir())),
        )
        assert steps[-1] == (3, True)
        assert not any(done == 3 for done, _ in steps[:-1])
        steps.clear()


@pytest.mark.parametrize(("error", "raised"), [(DiskFullError("full"), True), (DataError("no space left here"), False)])
def test_a_full_disk_is_told_from_a_bad_case_by_its_class_and_not_by_its_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: DataError, raised: bool
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(case_imports, "import_case", fail)
    with pytest.raises(DiskFullError) if raised else nullcontext():
        said = case_imports.try_import(cast("Any", RCAEvalImport()), cast("Any", SimpleNamespace(key="case")), tmp_path)
        assert said == "no space left here"
