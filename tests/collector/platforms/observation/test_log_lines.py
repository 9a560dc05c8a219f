"""What is taken off a line of a log."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.observation.log_lines import parse_line

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
        ("", None, ""),
    ],
)  # fmt: skip
def test_stamp_and_level_are_taken_off_a_line(line, level, message):
    found = parse_line(line)
    assert (found.level, found.message) == (level, message)


def test_trace_ids_are_found_in_a_line():
    found = parse_line(f"2026-01-02T03:04:05Z TRC a.go:1 > starts trace_id={TRACE} span_id={SPAN}")
    assert (found.level, found.trace_id, found.span_id) == ("trace", TRACE, SPAN)
