"""Log lines and error texts of HotelReservation's services."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from faultset.collector.apps.hotel.persona import PERSONA
from faultset.collector.runtime.http.client import UnknownHostError
from faultset.collector.runtime.signals import Log

text = PERSONA.connection_failed


def test_dial_errors_have_gos_texts() -> None:
    where = "10.0.0.1:80"
    assert text(ConnectionRefusedError(), where) == "dial tcp 10.0.0.1:80: connect: connection refused"
    assert text(TimeoutError(), where) == "dial tcp 10.0.0.1:80: i/o timeout"
    assert text(OSError(113, "No route to host"), where) == "dial tcp 10.0.0.1:80: connect: no route to host"
    unknown = UnknownHostError("x")
    assert text(unknown, where) == "dial tcp: lookup x: no such host"


class Ended(Exception):
    pass


def end(code: int) -> NoReturn:
    raise Ended(code)


def test_log_lines_have_the_shape_of_the_console_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    output = os.open(path, os.O_WRONLY | os.O_CREAT)
    log = Log(PERSONA, "info", exit_process=end, output=output)
    log.trace("a.go:1", "hidden")
    log.warning("a.go:2", "seen")
    with pytest.raises(Ended, match="1"):
        log.write("fatal", "a.go:3", "no more")
    os.close(output)
    stamped = [line.partition(" ") for line in path.read_text().splitlines()]
    assert [rest for _, _, rest in stamped] == ["WRN a.go:2 > seen", "FTL a.go:3 > no more"]
    assert len(stamped[0][0]) == len("2026-01-01T00:00:00.000Z")


def test_a_panic_dumps_goroutines_and_ends_with_2(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended, match="2"):
        Log(PERSONA, exit_process=end).panic("cmd/geo/main.go:9", "no reachable servers")
    out, err = capfd.readouterr()
    assert out.endswith(" PNC cmd/geo/main.go:9 > no reachable servers\n")
    assert err.startswith("panic: no reachable servers\n\ngoroutine ")
    assert "/workspace/cmd/geo/main.go:9" in err


def test_lists_are_written_as_go_writes_them() -> None:
    assert PERSONA.format_list(["1", "2"]) == "[1 2]"
