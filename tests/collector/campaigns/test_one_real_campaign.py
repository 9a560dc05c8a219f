"""`collect` and `evaluate` as a user types them: one real fault episode and one without, short phases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset


def run(command: str, *words: str) -> subprocess.CompletedProcess[str]:
    package = {"collect": "collector", "evaluate": "evaluators"}[command]
    code = f"from faultset.{package}.cli.{command} import {command}; {command}()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], subprocess.CompletedProcess[str]]:
    root = tmp_path_factory.mktemp("real") / "data"
    options = (
        "--faults scale-to-zero --targets geo --apps hotel --normal 1 --step 500ms --warmup 2s --healthy 12s "
        f"--faulty 12s --cooldown 2s --rate 8 --load constant --seed 4 --out {root}"
    ).split()
    return root, options, run("collect", *options)


def test_collect_prints_a_verdict_and_the_next_command(collected) -> None:
    root, _, done = collected
    assert done.returncode == 0, done.stderr
    assert "manifest" in done.stdout
    assert f"dataset {root}, version 1.0.0" in done.stdout
    assert f"next: faultset dataset verify {root} --shortcuts" in done.stdout


def test_the_dataset_is_sound_and_leaks_nothing(collected) -> None:
    root, _, _ = collected
    assert [f for f in verify(root) if f.severity == "error"] == []
    dataset = open_dataset(root)
    labels = {dataset.label(episode).fault: episode for episode in dataset.episodes}
    assert set(labels) == {"scale-to-zero", None}
    healthy = dataset.view(labels[None])
    assert (healthy.requests()["outcome"] == "ok").mean() > 0.95
    assert {"frontend", "search", "geo", "rate", "profile"} <= set(healthy.spans()["service"].dropna().unique())
    assert healthy.wide().shape[0] == 24


def test_the_same_command_again_runs_nothing_and_makes_no_version(collected) -> None:
    root, options, _ = collected
    again = run("collect", *options)
    assert again.returncode == 0, again.stderr
    assert "was already collected" in again.stderr
    assert [path.stem for path in (root / "versions").iterdir()] == ["1.0.0"]


def test_evaluate_scores_it(collected, tmp_path: Path) -> None:
    root, _, _ = collected
    done = run(
        "evaluate", str(root), "--baselines", "ksigma,kubernetes-state,random,always-yes", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "leaderboard.json").read_text())
    assert (tmp_path / "report.html").stat().st_size > 10_000
