"""Log lines of common formats, and records of several lines."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.objects import rfc3339_ns
from faultset.datasets.telemetry_formats.log_lines import parse_line, read_records

SECOND = 1_000_000_000
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("2026-01-02T03:04:05Z INF a.go:32 > Reading config...", "info", "a.go:32 > Reading config..."),
        ("2026-01-02T03:04:05.123Z PNC a.go:1 > no reachable servers", "fatal", "a.go:1 > no reachable servers"),
        ("2026-01-02T03:04:05.123Z [WARN]  agent: gone", "warning", "agent: gone"),
        ("1234:M 02 Jan 2026 03:04:05.678 * Ready to accept connections", "info", "Ready to accept connections"),
        ("1234:C 02 Jan 2026 03:04:05.678 # Configuration loaded", "warning", "Configuration loaded"),
        ("[2026-Jan-02 03:04:05.678901] <error>: (A.h:9:Pop) Failed", "error", "(A.h:9:Pop) Failed"),
        ("[2026-Jan-02 03:04:05.678901] <info>: (A.cpp:9:main) Starting", "info", "(A.cpp:9:main) Starting"),
        ("2026/01/02 03:04:05 [warn] 7#7: *1 [lua] a.lua:3: F(): text", "warning", "7#7: *1 [lua] a.lua:3: F(): text"),
        ("Thrift: Fri Jan  2 03:04:05 2026 TSocket::open()", "error", "TSocket::open()"),
        ("goroutine 18 [running]:", None, "goroutine 18 [running]:"),
        ('time="2026-01-02T03:04:05Z" level=error msg="no route" host=geo', "error", 'msg="no route" host=geo'),
        ("ts=2026-01-02T03:04:05Z caller=a.go:1 level=warn msg=slow", "warning", "caller=a.go:1 msg=slow"),
        ("level=INFO msg=ready", "info", "msg=ready"),
        ("the option level=error was ignored", None, "the option level=error was ignored"),
        ("2026-01-02T03:04:05.678Z ERROR 1 --- [main] c.e.App : no", "error", "[main] c.e.App : no"),
        ("2026-01-02 03:04:05.678  WARN 1 --- [exec-1] c.e.App : no", "warning", "[exec-1] c.e.App : no"),
        ("2026-01-02T03:04:05.678+01:00  INFO 12 --- [geo] [main] App : up", "info", "[geo] [main] App : up"),
        ('{"SeverityText":"ERROR","Body":"no route"}', "error", "no route"),
        ('{"severityNumber":13,"body":{"stringValue":"slow"}}', "warning", "slow"),
        ('{"Level":"Information","Message":"up"}', "info", "up"),
        ("\x1b[90m2026-01-02T03:04:05Z\x1b[0m \x1b[31mERR\x1b[0m a.go:1 > \x1b[1mno\x1b[0m", "error", "a.go:1 > no"),
        ("\x1b[32mINFO\x1b[0m up", None, "INFO up"),
        ("", None, ""),
    ],
)  # fmt: skip
def test_stamp_and_level_are_taken_off_a_line(line, level, message):
    found = parse_line(line)
    assert (found.level, found.message) == (level, message)


@pytest.mark.parametrize(
    "line",
    [
        f"2026-01-02T03:04:05Z TRC a.go:1 > starts trace_id={TRACE} span_id={SPAN}",
        f"slow trace_id={TRACE.upper()} span_id={SPAN.upper()}",
        f"slow traceId={TRACE}, spanId={SPAN}",
        f"slow [traceID: {TRACE}] [spanID: {SPAN}]",
        f"slow trace.id={TRACE} span.id={SPAN}",
        f'level=error msg=slow TraceId="{TRACE}" SpanId="{SPAN}"',
        f'slow {{"trace_id": "{TRACE}", "span_id": "{SPAN}"}}',
        f'{{"msg":"slow","traceID":"{TRACE.upper()}","spanID":"{SPAN.upper()}"}}',
        f'{{"message":"slow","trace.id":"{TRACE}","span.id":"{SPAN}"}}',
        f'{{"Body":"slow","TraceId":"{TRACE}","SpanId":"{SPAN}"}}',
    ],
)
def test_ids_are_read_in_every_spelling_and_in_lower_case(line: str) -> None:
    found = parse_line(line)
    assert (found.trace_id, found.span_id) == (TRACE, SPAN)


@pytest.mark.parametrize("line", [f"trace_id={TRACE}0", "trace_id=12", f"retrace_id={TRACE}", f"id={TRACE}"])
def test_other_numbers_are_no_ids(line: str) -> None:
    assert parse_line(line).trace_id is None


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
GO = """panic: runtime error: invalid memory address or nil pointer dereference [recovered]
\tpanic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x6f3a21]

goroutine 34 [running]:
testing.tRunner.func1.2({0x1c0b3a0, 0x25f6010})
\t/usr/local/go/src/testing/testing.go:1545 +0x238
main.(*server).search(0xc0000b2000, ...)
\t/app/main.go:31 +0x1d
created by net/http.(*Server).Serve in goroutine 1
\t/usr/local/go/src/net/http/server.go:3086 +0x5cb
exit status 2"""
ALONE = """Traceback (most recent call last):
  File "app.py", line 1, in <module>
ValueError: no"""


def entries(*lines: tuple[float, str, str, str]) -> list[str]:
    return [f"{rfc3339_ns(START + round(at * SECOND))} {stream} {flag} {text}\n" for at, stream, flag, text in lines]


def texts(*lines: tuple[float, str, str, str], end_s: float = 100.0) -> list[str]:
    return [text for _, text in read_records(entries(*lines), START + round(end_s * SECOND))]


@pytest.mark.parametrize(
    "trace", [JAVA, PYTHON, NODE, GO, ALONE], ids=["java", "python", "node", "go", "without-a-message"]
)
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


def test_lines_after_a_panic_that_are_no_trace_are_records_of_their_own() -> None:
    lines = ["panic: no", "", "Listening on port (80)", "main.main()"]
    assert texts(*((at / 10, "stderr", "F", line) for at, line in enumerate(lines))) == ["panic: no", *lines[2:]]


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
