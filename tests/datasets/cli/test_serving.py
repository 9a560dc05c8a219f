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

from faultset.datasets.cli.serving import serve

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([str(SAMPLE), "--episode", "nothing"], 3, "no episode"),
        ([str(SAMPLE / "episodes" / "01084746c57a"), "--version", "1.0.0"], 2, "the folder of a single episode"),
        ([str(SAMPLE), "--episode", "01084746c57a", "--now", "61"], 2, "at most the 60 s of the view"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code == code
    assert message in result.output


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
