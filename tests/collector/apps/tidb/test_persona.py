"""Log lines and errors of a TiDB cluster."""

from __future__ import annotations

import pytest

from faultset.collector.apps.tidb.operator import klog
from faultset.collector.apps.tidb.persona import PERSONA
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.datasets.telemetry_formats.log_lines import parse_line

TIME_S = 1_758_739_269.83


def test_lines_have_the_unified_format_and_are_read_with_their_level() -> None:
    line = PERSONA.format_line(TIME_S, "warning", "tso.go:114", 'clock "jumps"')
    assert line == '[2025/09/24 18:41:09.830 +00:00] [WARN] [tso.go:114] ["clock \\"jumps\\""]'
    assert parse_line(line).level == "warning"


def test_lines_of_the_operator_are_those_of_klog(capfd: pytest.CaptureFixture[str]) -> None:
    klog("E", "tidb_cluster_controller.go:128", "sync failed")
    line = capfd.readouterr().out.strip()
    assert line.endswith("       1 tidb_cluster_controller.go:128] sync failed")
    assert parse_line(line).level == "error"


def test_clients_see_the_errors_of_the_database() -> None:
    known = RpcError(Code.UNAVAILABLE, "ERROR 9001 (HY000): PD server timeout: x")
    assert PERSONA.format_failure(known) == "ERROR 9001 (HY000): PD server timeout: x"
    other = RpcError(Code.INTERNAL, "engine")
    assert PERSONA.format_failure(other) == "ERROR 1105 (HY000): rpc error: code = Internal desc = engine"
