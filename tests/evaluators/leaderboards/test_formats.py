"""A leaderboard on a narrow terminal says which columns it left out, and breaks no name."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from faultset.baselines.registry import list_baselines
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards import formats
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.track_records import MAIN_DATASET, read_track_records, replace_track_records
from faultset.evaluators.scoring.metrics import Metric

OWN = Metric(name="own", title="own metric", task="localization", meaning="always a half", compute=lambda row: 0.5)


def printed(make, width: int, *scorers: Metric) -> str:
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(3)]
    rows = [make.row(truth, "a-method-of-a-long-name", ranking={"b": 1.0}) for truth in truths]
    console = Console(width=width, file=io.StringIO(), record=True)
    formats.show_leaderboard(build_leaderboard(rows, scorers=scorers), console)
    return console.export_text()


def test_columns_that_do_not_fit_are_named(make):
    narrow = printed(make, 100)
    assert re.search(r"leaderboard.md has all methods, \d+ more columns", " ".join(narrow.split()))
    assert "a-method-of-a-long-name" in narrow
    assert max(map(len, narrow.splitlines())) <= 100


def test_the_head_names_the_files_that_imported_cases_were_read_from(make):
    board = replace(
        build_leaderboard([make.row(make.truth(), "mine", ranking={"b": 1.0})]),
        settings={"imported_files": {"simple_data.csv": 7, "data.csv": 2}},
    )
    assert "(sha256 unknown), imported from data.csv (2), simple_data.csv (7), split" in formats.render_text(board, 200)


def test_a_wide_terminal_shows_all_columns(make):
    assert "more column" not in printed(make, 240)


def test_the_metric_of_an_installed_scorer_is_shown_before_built_in_columns(make):
    narrow = printed(make, 100, OWN)
    (line,) = [line for line in narrow.splitlines() if "baseline" in line.split()]
    assert line.index("AC@1") < line.index("metric") < line.index("CPU")
    assert max(map(len, narrow.splitlines())) <= 100


def test_a_large_leaderboard_fits_a_screen_and_keeps_what_users_bring(make):
    truths = [make.truth(f"e{app}{i}", app=app, fault=f"f{i}") for app in ("hotel", "shop") for i in range(6)]
    rows = []
    for number in range(12):
        right = ["b", "a"][number > 8]
        for truth in truths:
            for protocol in ("detected", "oracle"):
                rows.append(make.row(truth, f"method-{number}", ranking={right: 1.0}, protocol=protocol))
                answer = {"system_level": truth.system_level, "fault_type": truth.fault_type}
                rows.append(make.row(truth, f"method-{number}", task="rca", answer=answer, protocol=protocol))
            rows.append(make.detection(truth, range(65, 101), f"method-{number}"))
    rows += [make.row(truth, "mine", kind="external", ranking={"c": 1.0}) for truth in truths]
    rows += [make.row(truth, "guess", kind="control", ranking={"d": 1.0}) for truth in truths]
    evaluation = Evaluation(rows=tuple(rows))
    board = evaluation.board
    assert all(len(formats.render_text(board, width).splitlines()) <= 60 for width in (80, 100))
    text = formats.render_text(board, 120)
    assert len(text.splitlines()) < 50
    assert [line.split()[1] for line in text.splitlines() if line.split()[1:2] in (["mine"], ["guess"])] == [
        "guess",
        "mine",
    ]
    assert " · all apps · " in text
    assert " · hotel · " not in text
    assert ", the first 6 of 14 methods" in text
    assert "more tables" in text
    assert repr(evaluation) == text


def test_the_table_of_a_task_is_that_in_which_answers_of_users_stand(make):
    truths = [make.truth(f"e{i}", fault=f"f{i}") for i in range(6)]
    both = [(truth, protocol) for truth in truths for protocol in ("detected", "oracle")]
    rows = [make.row(truth, "method", ranking={"b": 1.0}, protocol=protocol) for truth, protocol in both]
    rows += [make.row(truth, "mine", kind="external", ranking={"c": 1.0}, protocol="oracle") for truth in truths]
    text = formats.render_text(build_leaderboard(rows), 120)
    assert "given: true onset" in text
    assert "mine" in text
    assert "1 more table (" in text


ROOT = Path(__file__).parents[3]


def test_records_name_installed_methods_of_the_task_and_figures_of_the_leaderboard() -> None:
    specs = list_baselines()
    lines = (ROOT / "datasets" / "core-2" / "leaderboard.md").read_text("utf-8").splitlines()
    for name, records in read_track_records().items():
        for record in records:
            if record.dataset != MAIN_DATASET:
                continue
            is_control = specs[name].kind == "control"
            assert specs[name].task == record.task
            assert -1 <= record.value <= 1
            assert not (record.beats_control and is_control)
            # the page compares detectors with random alarms, but not detectors that are controls
            figure = f"| {record.value:+.2f} " if record.task == "detection" else f"| {record.value:.2f} ["
            shown = [line for line in lines if f"| {name} |" in line]
            assert any(figure in line for line in shown) or (shown and is_control and record.task == "detection"), name
            tested = [line for line in shown if figure in line and "(given alarm_location)" not in line]
            assert record.beats_control == any("beats it" in line for line in tested), name


def test_records_of_other_systems_are_those_of_the_page() -> None:
    head, *rows = (ROOT / "benchmarks" / "external" / "systems_oracle.md").read_text("utf-8").splitlines()
    systems = [cell.strip() for cell in head.split("|")]
    cells = {row.split("`")[1]: dict(zip(systems, row.split("|"), strict=True)) for row in rows if "`" in row}
    others = [r for records in read_track_records().values() for r in records if r.dataset != MAIN_DATASET]
    assert {record.dataset for record in others} == {"nezha-tt", "nezha-ob", "openstack"}
    for record in others:
        percent = f"{100 * record.value:.0f}"
        shown = cells[record.baseline][record.dataset].split()[0]
        assert shown == (f"**{percent}**" if record.beats_control else percent), record.baseline


def test_a_result_in_a_table_without_a_control_has_no_remark() -> None:
    (record,) = read_track_records()["combined-evidence-at-alarm"]
    assert (record.near_best, record.beats_control) == (False, False)


def test_new_records_of_a_dataset_replace_the_old_ones_and_keep_those_of_others(tmp_path: Path) -> None:
    old = next(record for record in read_track_records()["max-z"] if record.dataset == MAIN_DATASET)
    path = tmp_path / "records.csv"
    replace_track_records("other", [replace(old, dataset="other", value=0.5)], path)
    lines = path.read_text("utf-8").splitlines()
    assert lines[-1] == "max-z,localization,other,AC@1,0.5,,"
    everything = [record for records in read_track_records().values() for record in records]
    assert len(lines) == 1 + len(everything) + 1
    replace_track_records(MAIN_DATASET, [old], path)
    others = [record for record in everything if record.dataset != MAIN_DATASET]
    assert len(path.read_text("utf-8").splitlines()) == 1 + len(others) + 1
    assert str(replace(old, value=0.256, near_best=True, beats_control=True)) == "0.26 (best, beats the control)"
