"""Records of methods on the datasets with a leaderboard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from faultset.baselines.api.registry import list_baselines
from faultset.evaluators.leaderboards.track_records import MAIN_DATASET, read_track_records, replace_track_records

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
