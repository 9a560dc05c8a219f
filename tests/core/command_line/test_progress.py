import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from faultset.core.command_line.progress import StepCounter, report_progress, show_progress


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
