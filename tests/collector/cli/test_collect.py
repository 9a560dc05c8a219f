"""Wrong requests and places: one sentence, the right exit code, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faultset.collector.cli.collect import collect


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--faults target-prot --apps hotel", 'did you mean "target-port"'),
        ("--faults all --apps hotl", 'did you mean "hotel"'),
        ("--faults all --apps hotel --healthy 5", "is not a duration"),
        ("--faults all --apps hotel --healthy 5s", "--healthy must be at least 20 s"),
        ("--faults revoke-auth --apps hotel --targets geo", "its targets in hotel are mongodb-geo, mongodb-rate"),
        ("--faults all --apps hotel --jobs 0", "must be a number from 1 to 9999, or auto"),
        ("--faults all --apps hotel --platform docker", "docker"),
        ("--apps hotel", "--faults"),
        ("--faults all --apps hotel --injector chaos-mesh", "platform local does not support --injector; omit it"),
        ("--faults all --apps hotel --injector litmus", "'litmus' is not one of 'agent', 'chaos-mesh'"),
        ("--faults all --apps hotel --rate inf", "--rate must be from 0.01 to 10000, but is inf"),
        ("--faults all --apps hotel --rate nan", "--rate must be from 0.01"),
        ("--faults all --apps hotel --rate 0", "--rate must be from 0.01"),
        ("--faults all --apps hotel --step 0s", "--step must be from 0.1 to 60, but is 0"),
        ("--faults all --apps hotel --trace-sampling nan", "--trace-sampling must be from 0 to 1, but is nan"),
        (f"--faults all --apps hotel --seed {'9' * 300}", "--seed must be from 0"),
        (f"--faults all --apps hotel --repeat {'9' * 300}", "--repeat must be from 1"),
        (f"--faults all --apps hotel --normal {'9' * 300}", "--normal must be from 0"),
        (f"--faults all --apps hotel --healthy {'9' * 400}s", "is too long for a duration"),
        (f"--faults all --apps hotel --seed {'9' * 5000}", "is not a valid integer"),
        (f"--faults all --apps hotel --jobs {'9' * 300}", "must be a number from 1 to 9999, or auto"),
    ],
)
def test_a_wrong_request_gets_one_sentence_and_exit_code_2(words: str, sentence: str, tmp_path: Path) -> None:
    out = tmp_path / "data"
    done = CliRunner().invoke(collect, [*words.split(), "--out", str(out)])
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert "Traceback" not in done.output
    assert not out.exists()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    done = CliRunner().invoke(collect, ["--faults", "noop", "--apps", "hotel", "--normal", "1", "--out", str(tmp_path)])
    assert done.exit_code == 3
    assert "thesis.tex" in done.output
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "data"
    done = CliRunner().invoke(collect, ["--faults", "all", "--apps", "hotel", "--dry-run", "--out", str(out)])
    assert done.exit_code == 0
    assert "revoke-auth" in done.output
    assert not out.exists()


def test_a_dry_run_is_ordered_and_ends_with_episodes_time_and_disk() -> None:
    words = ["--faults", "target-port,pod-kill", "--apps", "social,hotel", "--repeat", "2", "-j", "4", "--dry-run"]
    done = CliRunner().invoke(collect, words)
    *table, total = done.output.strip().splitlines()
    rows = [line.split() for line in table if "target-port" in line or "pod-kill" in line or "none (" in line]
    order = [next(word for word in row if word in ("pod-kill", "target-port", "none")) for row in rows]
    assert order == [*["pod-kill"] * 2, *["target-port"] * 2, *["none"] * 4] * 2
    # 16 runs of 405 s with four at a time, of which 78 % run at once; each view has 360 s at 20 requests a second
    assert total == "16 episodes (8 with a fault, 8 without), at most 4 at a time: about 35 min and 69 MB"


def test_without_a_redis_server_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = tmp_path / "data"
    done = CliRunner().invoke(collect, ["--faults", "noop", "--apps", "hotel", "--normal", "1", "--out", str(out)])
    assert done.exit_code == 4
    assert "install the package redis-server or valkey" in done.output
    assert not out.exists()


@pytest.mark.parametrize("out", ["file/data", "/proc/data", "x" * 300, "circle/data", "locked/data", "a/" * 3000])
def test_a_place_that_cannot_hold_a_dataset_is_one_sentence(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultset.collector.platforms.local.host.LocalHost.check", lambda host: [])
    (tmp_path / "file").write_text("precious")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "locked").mkdir()
    if out.startswith("locked"):
        real = os.mkdir

        def refuse(path: Any, *rest: Any, **options: Any) -> None:
            if "locked" in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            real(path, *rest, **options)

        monkeypatch.setattr(os, "mkdir", refuse)
    words = ["--faults", "noop", "--apps", "hotel", "--normal", "1", "--out", str(tmp_path / out)]
    done = CliRunner().invoke(collect, words)
    assert done.exit_code == 3, done.output
    assert "Traceback" not in done.output
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("settings", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_names_that_the_terminal_cannot_show_are_no_traceback(settings: dict[str, str], tmp_path: Path) -> None:
    name = "b\u00f6se\udcff\x1b[2J"
    words = [str(Path(sys.executable).with_name("collect")), "--faults", name, "--apps", name, "--out", str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, **settings}, capture_output=True)
    assert done.returncode == 2, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr
