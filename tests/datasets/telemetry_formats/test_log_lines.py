"""What is taken off a line of a log."""

from __future__ import annotations

import pytest

from faultset.datasets.telemetry_formats.log_lines import parse_line

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
