"""Lines of a container's log file that belong together."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.objects import rfc3339_ns
from faultset.datasets.telemetry_formats.log_lines import read_records

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND

JAVA = """2026-01-02T03:04:05.678Z ERROR 1 --- [main] c.e.App : request failed
java.lang.IllegalStateException: no connection
\tat com.example.App.run(App.java:12)
\t... 3 more
Caused by: java.net.ConnectException: refused
\tat java.base/java.net.Socket.connect(Socket.java:1)
... 5 more"""
PYTHON = """2026-01-02 03:04:05,678 ERROR app: request failed
Traceback (most recent call last):
  File "app.py", line 1, in <module>
    run()
KeyError: 'geo'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "app.py", line 3, in <module>
    raise app.errors.Unavailable
app.errors.Unavailable"""
NODE = """Error: connect ECONNREFUSED
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1555:16)
    at async main (app.js:3:5)"""
ALONE = """Traceback (most recent call last):
  File "app.py", line 1, in <module>
ValueError: no"""


def entries(*lines: tuple[float, str, str, str]) -> list[str]:
    return [f"{rfc3339_ns(START + round(at * SECOND))} {stream} {flag} {text}\n" for at, stream, flag, text in lines]


def texts(*lines: tuple[float, str, str, str], end_s: float = 100.0) -> list[str]:
    return [text for _, text in read_records(entries(*lines), START + round(end_s * SECOND))]


@pytest.mark.parametrize("trace", [JAVA, PYTHON, NODE, ALONE], ids=["java", "python", "node", "without-a-message"])
def test_a_stack_trace_is_one_record_at_the_time_of_its_first_line(trace: str) -> None:
    lines = [(at / 1e4, "stderr", "F", line) for at, line in enumerate(trace.splitlines())]
    end = (0.1, "stderr", "F", "2026-01-02T03:04:05Z INF a.go:1 > next")
    found = list(read_records(entries(*lines, end), START + 100 * SECOND))
    assert [text for _, text in found] == [trace, end[3]]
    assert [time_ns for time_ns, _ in found] == [START, START + SECOND // 10]


def test_lines_with_a_shape_of_their_own_are_records_however_they_begin() -> None:
    lines = [
        "one",
        "  2026-01-02T03:04:05Z ERR a.go:1 > no",
        ' {"msg":"no"}',
        "Caused otherwise",
        "KeyError: no",
        "",
        "",
    ]
    assert texts(*((at / 10, "stdout", "F", line) for at, line in enumerate(lines))) == lines


def test_a_line_much_later_continues_nothing() -> None:
    assert texts((0, "stdout", "F", "one"), (5, "stdout", "F", "  two")) == ["one", "  two"]


def test_parts_and_traces_of_the_two_streams_are_kept_apart() -> None:
    assert texts(
        (0.0, "stdout", "P", "half "),
        (0.1, "stderr", "F", "ERR whole"),
        (0.2, "stderr", "P", "  at "),
        (0.3, "stdout", "F", "and half"),
        (0.4, "stderr", "F", "main"),
        (0.5, "stdout", "F", "  at stdout"),
    ) == ["ERR whole\n  at main", "half and half\n  at stdout"]


def test_what_was_printed_after_the_end_of_the_window_is_left_out() -> None:
    lines = [(0, "stdout", "F", "one"), (0.5, "stdout", "F", "\tat a"), (0.9, "stdout", "F", "\tat b")]
    assert texts(*lines, end_s=0.7) == ["one\n\tat a"]
