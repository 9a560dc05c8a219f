"""`faultset dataset serve` refuses impossible options in one sentence and prints its address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from faultset.core.times import utc_text
from faultset.datasets.cli.serving import find_views, serve
from faultset.datasets.serve.prometheus_api import PrometheusApi
from faultset.datasets.serve.telemetry import ServedClock, ServedTelemetry
from tests.datasets.recorded_samples import SECOND, at

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([str(SAMPLE), "--episode", "nothing"], 3, "no episode"),
        ([str(SAMPLE / "episodes" / "01084746c57a"), "--version", "1.0.0"], 2, "the folder of one episode"),
        ([str(SAMPLE), "--episode", "01084746c57a", "--now", "61"], 2, "must be at most 60 s, the length of the view"),
        ([str(SAMPLE), "--episode", "01084746c57a", "--from", "2026-11-22T02:11:00"], 2, "are for recordings"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code == code
    assert message in result.output


def test_a_part_of_a_recording_is_served_with_its_own_times(recorded_root: Path) -> None:
    view = find_views(recorded_root, None, utc_text(at(600)), utc_text(at(1200)))("r1")
    served = ServedTelemetry(view, ServedClock(view.context))
    assert (served.clock.start_ns, served.clock.now_ns) == (at(600), at(1200))
    _, document = PrometheusApi(served).answer("query", {"query": ["level[1h]"]})
    ((time_s, first), *_, (_, last)) = document["data"]["result"][0]["values"]
    assert (time_s, first, last) == (at(600.5) / SECOND, "600", "1195")


def test_too_long_a_part_of_a_recording_is_refused(recorded_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.datasets.cli.serving.MAX_SERVED_S", 1800)
    result = CliRunner().invoke(serve, [str(recorded_root), "--episode", "r1"])
    assert (result.exit_code, "choose a part with --from and --to" in result.output) == (2, True)


def test_the_printed_address_answers_until_ctrl_c() -> None:
    program = "from faultset.core.start import faultset; faultset()"
    command = [sys.executable, "-c", program, "dataset", "serve", str(SAMPLE), "--episode", "01084746c57a", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        address = json.loads("".join(process.stdout.readline() for _ in range(3)))["address"]
        with urlopen(f"{address}/api/services", timeout=60) as answer:
            assert "frontend" in json.load(answer)["data"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
