"""Whole evaluations of a small dataset, and the report about them."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from faultset.baselines.registry import get_baseline
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.training.folds import cross_folds, folds_of_split
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.plan import EvaluationPlan, make_plan
from faultset.evaluators.execution.scheduling import local_client, run_plan
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.reports.page import render
from faultset.evaluators.results.rows import ResultRow

NAMES = ("spot", "always-yes", "clock", "random", "max-z", "most-frequent")


def plan_of(dataset: Path, workers: int, names: tuple[str, ...] = NAMES, **settings) -> EvaluationPlan:
    source = DatasetSource.of(open_dataset(dataset))
    return make_plan(
        EvaluationScope(source=source, settings=EvaluationSettings(**settings)),
        [get_baseline(name) for name in names],
        workers,
    )


def run(plan: EvaluationPlan, workers: int) -> tuple[list[ResultRow], int]:
    steps = []
    with local_client(workers) as client:
        rows = run_plan(plan, client, steps.append)
    return sorted(rows, key=lambda row: row.key), sum(steps)


@pytest.fixture(scope="module")
def evaluated(example_dataset: Path) -> tuple[EvaluationPlan, list[ResultRow], int]:
    plan = plan_of(example_dataset, 2)
    rows, steps = run(plan, 2)
    return plan, rows, steps


def answers(rows: list[ResultRow]) -> list[ResultRow]:
    measured = {"seconds": None, "cpu_seconds": None, "fit_seconds": None, "peak_bytes": None}
    return [dataclasses.replace(row, **measured) for row in rows]


def test_every_planned_answer_becomes_a_row(evaluated):
    plan, rows, _ = evaluated
    # 3 detectors on 4 episodes; 2 localizers and 5 seeds of random on 2 faults under 2 protocols and on 2 calm ones;
    # max-z also with its own detector
    assert len(rows) == plan.answers == 3 * 4 + (2 + 5) * (2 * 2 + 2) + 2
    assert len({row.key for row in rows}) == len(rows)
    assert {row.status for row in rows if row.truth.faulty or row.task == "detection"} == {"ok"}


def test_a_local_evaluation_listens_on_loopback_only():
    import psutil

    with local_client(1):
        here = psutil.Process()
        processes = [here, *here.children(recursive=True)]
        open_ports = [c.laddr.ip for p in processes for c in p.net_connections("inet") if c.status == "LISTEN"]
    assert all(ip.startswith("127.") for ip in open_ports), open_ports


def test_progress_reaches_the_plan(evaluated):
    plan, _, steps = evaluated
    assert steps <= plan.steps
    assert steps >= plan.steps * 0.8


def test_localizers_are_told_the_alarm_of_a_detector_or_the_onset(evaluated):
    _, rows, _ = evaluated
    alarms = {row.episode: row.alarm_ns for row in rows if row.baseline == "spot"}
    for row in rows:
        if row.task == "localization" and row.protocol != "own":
            told = row.truth.onset_ns if row.protocol == "oracle" else alarms[row.episode]
            assert row.given_alarm_ns == told
            assert row.alarm_source == ("truth" if row.protocol == "oracle" else "spot")


@pytest.mark.slow
def test_one_worker_gives_the_same_rows_as_two(evaluated, example_dataset: Path):
    _, rows, _ = evaluated
    alone, _ = run(plan_of(example_dataset, 1), 1)
    assert answers(alone) == answers(rows)


def test_only_healthy_episodes_are_learned_from_and_never_the_scored_one(example_dataset: Path):
    source = DatasetSource.of(open_dataset(example_dataset))
    faulty = {truth.episode for truth in source.truths if truth.faulty}
    folds = cross_folds(source.truths)
    assert sorted(e for fold in folds for e in fold.test) == sorted(t.episode for t in source.truths)
    for fold in folds:
        assert not set(fold.healthy_train) & faulty
        assert not set(fold.healthy_train + fold.faulty_train) & set(fold.test)
    for name in source.splits:
        (fold,) = folds_of_split(name, source.splits, source.truths)
        assert not set(fold.healthy_train) & faulty
        assert not set(fold.healthy_train + fold.faulty_train) & set(fold.test)


@pytest.mark.parametrize("damage", [b"", b"PAR1 nothing", None])
def test_data_that_is_damaged_while_methods_run_is_no_miss_of_a_method(
    example_dataset: Path, tmp_path: Path, damage: bytes | None
):
    copy = tmp_path / "data"
    shutil.copytree(example_dataset, copy)
    plan = plan_of(copy, 1, ("max-z-detector",))
    victim = copy / "episodes" / plan.batches[0].truth.episode / "telemetry" / "metrics.parquet"
    if damage is None:
        content = bytearray(victim.read_bytes())
        content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
        damage = bytes(content)
    victim.write_bytes(damage)
    with pytest.raises(DataError, match=r"metrics\.parquet"), local_client(1) as client:
        run_plan(plan, client)


def test_a_split_that_does_not_exist_is_refused_with_a_suggestion(example_dataset: Path):
    with pytest.raises(UsageError, match="did you mean"):
        plan_of(example_dataset, 1, split="by-episodes")


def test_a_dataset_without_faults_has_nothing_to_localize(example_dataset: Path):
    source = DatasetSource.of(open_dataset(example_dataset))
    calm = dataclasses.replace(source, truths=tuple(t for t in source.truths if not t.faulty))
    with pytest.raises(DataError, match="no fault episodes"):
        make_plan(EvaluationScope(source=calm, settings=EvaluationSettings()), [get_baseline("max-z")], 1)
    plan = make_plan(
        EvaluationScope(source=calm, settings=EvaluationSettings()), [get_baseline("max-z"), get_baseline("ksigma")], 1
    )
    assert {spec.name for spec in plan.specs} == {"ksigma"}


def test_the_named_detector_is_asked_even_when_it_was_not_chosen(example_dataset: Path):
    plan = plan_of(example_dataset, 1, ("max-z",))
    name = {number: subject.name for number, subject in enumerate(plan.context.runs)}
    assert {name[n] for fit in plan.fits for n in fit.runs} == {"max-z", "spot", "max-z-detector"}
    assert {name[n] for batch in plan.batches for n in batch.runs} == {"max-z"}


def test_an_episode_without_spans_gets_its_alarm_elsewhere_and_changes_no_other(example_dataset: Path):
    dataset = open_dataset(example_dataset)

    def alarms() -> dict[str, str]:
        source = DatasetSource.of(dataset)
        settings = EvaluationSettings().with_default_alarm(source)
        plan = make_plan(EvaluationScope(source=source, settings=settings), [get_baseline("max-z")], 1)
        runs = plan.context.runs
        return {batch.truth.episode: runs[batch.alarm_run or 0].name for batch in plan.batches}

    assert set(alarms().values()) == {"trace-errors"}
    first, *others = dataset.files
    files = dict(dataset.files)
    dataset.files[first] = {name: file for name, file in files[first].items() if "spans" not in name}
    assert alarms() == {first: "spot"} | dict.fromkeys(others, "trace-errors")
    source = DatasetSource.of(dataset)
    settings = EvaluationSettings().with_default_alarm(source)
    shown = EvaluationScope(source=source, settings=settings).alarm_description
    assert shown == "trace-errors; spot in the 1 of 4 episodes without spans"
    for episode in others:
        dataset.files[episode] = {name: file for name, file in files[episode].items() if "spans" not in name}
    assert set(alarms().values()) == {"spot"}


def test_the_report_holds_all_that_a_reader_must_see(evaluated):
    plan, rows, _ = evaluated
    board = build_leaderboard(rows, digest=plan.scope.source.digest, settings={"alarm_detector": "ksigma"})
    page = render(board, rows, plan.specs, plan.scope.source.folder)
    for part in ("detection", "localization", "faults", "episodes", "difficulty", "failures", "methods", "provenance"):
        assert f'id="{part}"' in page
    for name in NAMES:
        assert name in page
    assert plan.scope.source.digest in page
    assert "thresholds: reference" in page
    assert "guessing" in page
    assert "manifest" in page
    assert "given the true onset (oracle)" in page
    assert board.code in page


def test_the_report_needs_no_network_and_no_script(evaluated):
    plan, rows, _ = evaluated
    page = render(build_leaderboard(rows), rows, plan.specs, plan.scope.source.folder)
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    assert "url(" not in page
    assert "@import" not in page


def test_a_report_survives_the_loss_of_the_telemetry(evaluated, tmp_path: Path):
    plan, rows, _ = evaluated
    page = render(build_leaderboard(rows), rows, plan.specs, tmp_path)
    assert "time plot" not in page, "no line of telemetry is drawn"
    assert 'id="provenance"' in page


def test_text_of_methods_cannot_become_markup(make):
    row = make.row(make.truth(), "x", status="error", reason="<script>alert(1)</script>")
    page = render(build_leaderboard([row]), [row], [], Path("/nowhere"))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_scheduler_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    from faultset.core import dask_clients as clients
    from faultset.evaluators.execution import scheduling

    monkeypatch.setattr(clients, "_CONNECT_TIMEOUT_S", 1)
    with (
        pytest.raises(PlatformError, match="no dask scheduler answered at"),
        scheduling.remote_client("tcp://127.0.0.1:9", "/"),
    ):
        pass


@pytest.mark.parametrize("address", ["foo", "http://x", "tcp://host", "host:port"])
def test_what_is_no_address_is_not_waited_for(address: str):
    from faultset.evaluators.execution.scheduling import remote_client

    with pytest.raises(UsageError, match="is not the address of a dask scheduler"), remote_client(address, "/"):
        pass


@pytest.mark.slow
def test_an_interrupted_evaluation_leaves_no_process(example_dataset: Path, tmp_path: Path):
    mark = f"mark-{uuid.uuid4()}"
    code = "from faultset.evaluators.cli.evaluate import evaluate; evaluate.main()"
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(example_dataset), "--out", str(tmp_path), "--workers", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"FAULTSET_TEST": mark, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert started.stderr is not None
    with started:
        started.stderr.readline()
        started.send_signal(signal.SIGINT)
        rest = started.stderr.read()
    assert started.returncode == 130
    assert "Traceback" not in rest
    deadline = time.monotonic() + 10
    while _marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _marked(mark) == []


@pytest.mark.slow
def test_a_killed_evaluation_leaves_no_process(example_dataset: Path, tmp_path: Path):
    mark = f"mark-{uuid.uuid4()}"
    code = "from faultset.evaluators.cli.evaluate import evaluate; evaluate.main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(example_dataset), "--out", str(tmp_path), "--workers", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"FAULTSET_TEST": mark, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as started:
        assert started.stderr is not None
        started.stderr.readline()
        assert len(_marked(mark)) > 1
        started.kill()
    deadline = time.monotonic() + 10
    while _marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _marked(mark) == []


def _marked(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


@pytest.mark.slow
def test_a_dask_scheduler_elsewhere_gives_the_same_rows(evaluated, example_dataset: Path):
    from distributed import LocalCluster

    from faultset.evaluators.execution.scheduling import remote_client

    _, rows, _ = evaluated
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as cluster,
        remote_client(vars(cluster)["scheduler"].address, str(example_dataset)) as client,
    ):
        found = run_plan(plan_of(example_dataset, 2), client)
    assert answers(sorted(found, key=lambda row: row.key)) == answers(rows)


@pytest.mark.slow
def test_the_command_writes_all_results(example_dataset: Path, tmp_path: Path):
    copy = tmp_path / "data"
    shutil.copytree(example_dataset, copy)
    from click.testing import CliRunner

    from faultset.evaluators.cli.evaluate import evaluate

    result = CliRunner().invoke(evaluate, [str(copy), "--baselines", "ksigma,max-z"])
    assert result.exit_code == 0, result.output
    written = {path.name for path in (tmp_path / "results" / "data").iterdir()}
    assert written == {"results.parquet", "leaderboard.json", "leaderboard.md", "report.html"}
    assert "ksigma" in result.stdout
    assert "Report:" in result.stdout
    assert "2 baselines, 4 episodes" in result.stderr
