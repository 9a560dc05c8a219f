"""Log lines that stand for no program in particular."""

from __future__ import annotations

import pytest

from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals import Log
from faultset.datasets.telemetry_formats.log_lines import parse_line


def test_the_level_of_a_neutral_line_is_recognised_when_it_is_collected(capfd: pytest.CaptureFixture[str]) -> None:
    log = Log(Persona())
    log.trace("/cart", "a request")
    log.warning("cart", "no such item")
    lines = [parse_line(line) for line in capfd.readouterr().out.splitlines()]
    assert [(line.level, line.message) for line in lines] == [
        ("trace", "/cart: a request"),
        ("warning", "cart: no such item"),
    ]
