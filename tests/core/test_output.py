from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from faultset.core import output
from faultset.core.output import StepCounter, report_progress, show_progress

RECORDS = [{"name": "[geo]", "rows": 12345, "share": 0.123456, "ok": True, "hidden": 1}, {"name": None, "rows": None}]


def test_records_are_a_table_for_people(capsys):
    output.show_records(RECORDS, columns={"name": "service", "rows": "rows", "share": "share", "ok": "ok"}, title="T")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "T"
    assert lines[1].split() == ["service", "rows", "share", "ok"]
    assert lines[2].split() == ["[geo]", "12,345", "0.1235", "yes"]


def test_long_lines_stay_whole_in_a_pipe(capsys):
    output.show_records([{"message": "word " * 60}], columns=["message"])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_table_is_wrapped_in_a_pipe_where_a_command_says_so(capsys):
    output.show_records([{"name": "a", "message": "word " * 60}], columns=["name", "message"], wrap_at=100)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.count("word") for line in lines) == 60
    assert max(map(len, lines)) == 100


def test_records_are_a_list_for_programs(capsys):
    output.show_records(RECORDS, columns=["name"], as_json=True)
    assert json.loads(capsys.readouterr().out) == RECORDS


class SlowStep(int):
    """A step whose addition lets other threads run before its sum is stored."""

    def __radd__(self, other: int) -> int:
        time.sleep(0.001)
        return int(other) + int(self)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)


def test_steps_that_threads_finish_at_once_are_all_counted(capsys):
    with show_progress(32, "cases") as advance, ThreadPoolExecutor(4) as pool:
        list(pool.map(advance, [SlowStep(1)] * 32))
    assert capsys.readouterr().err.splitlines()[-1].startswith("cases 32/32 after")


def test_a_long_command_prints_at_most_four_lines(capsys):
    with show_progress(1000, "episodes") as advance:
        for _ in range(1000):
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == [f"{250 * step}/1000" for step in range(1, 5)]


def test_a_total_may_be_found_out_later(capsys):
    with report_progress("cases") as progress:
        steps = StepCounter(2, progress)
        steps.add()
        steps.add()
    assert capsys.readouterr().err.splitlines()[-1].startswith("cases 2/2 after")


def test_a_second_phase_with_another_total_is_counted_from_its_start(capsys):
    with report_progress("cases") as progress:
        for total in (2, 3):
            steps = StepCounter(total, progress)
            for _ in range(total):
                steps.add()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" after")[0] for line in lines if "left" not in line] == ["cases 2/2", "cases 3/3"]


def test_a_command_with_nothing_to_do_prints_no_line(capsys):
    with report_progress("case") as show:
        StepCounter(0, show)
    assert capsys.readouterr().err == ""
