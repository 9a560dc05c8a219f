"""The calls from Python give what the commands print, and print nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

import faultset.evaluators
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.evaluators import Evaluation, EvaluationStart, compare, evaluate, score
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.leaderboards.formats import COSTS, KEYS
from faultset.evaluators.results.truth import Truth


@pytest.fixture(scope="module")
def truths(example_dataset: Path) -> tuple[Truth, ...]:
    return DatasetSource.of(open_dataset(example_dataset)).truths


@pytest.fixture(scope="module")
def evaluated(example_dataset: Path) -> Evaluation:
    return evaluate(example_dataset, ["ksigma", "max-z"], workers=1)


def answers_of(truths, ranking) -> pd.DataFrame:
    faulty = [truth for truth in truths if truth.causes]
    names = [truth.episode for truth in faulty]
    return pd.DataFrame(
        {"episode": names, "baseline": "agent", "task": "localization", "ranking": [ranking(t) for t in faulty]}
    )


def test_every_public_name_is_there():
    for name in faultset.evaluators.__all__:
        assert getattr(faultset.evaluators, name).__name__ == name


def test_an_evaluation_prints_nothing_and_reports_its_progress(example_dataset: Path, capfd):
    starts: list[EvaluationStart] = []
    steps: list[tuple[int, int]] = []
    done = evaluate(
        example_dataset,
        ["always-no"],
        tasks=["detection"],
        workers=1,
        started=starts.append,
        progress=lambda finished, total: steps.append((finished, total)),
    )
    assert capfd.readouterr() == ("", "")
    assert starts[0].baselines == ("always-no",)
    assert (starts[0].episodes, starts[0].reused) == (4, 0)
    assert (starts[0].faulty, starts[0].answers, starts[0].workers) == (2, 6, 1)
    assert starts[0].expected_s > 0
    assert 100_000 < starts[0].expected_bytes < 1_000_000
    assert steps[-1][0] == steps[-1][1] > starts[0].answers
    assert len([row for row in done.rows if row.protocol == "detected"]) == 4


def test_a_leaderboard_is_a_frame_with_a_line_for_each_method_in_each_table(evaluated: Evaluation):
    frame = evaluated.leaderboard()
    assert list(frame.columns[: len(KEYS)]) == list(KEYS)
    assert list(frame.columns[-len(COSTS) :]) == list(COSTS)
    assert set(frame["baseline"]) == {"ksigma", "max-z"}
    located = evaluated.leaderboard("localization", intervals=True).set_index("protocol")
    table = evaluated.board.table("localization", "oracle", app=evaluated.tables[0].app)
    assert table is not None
    assert located.loc["oracle", "ac1"] == table.entries[0].metrics["ac1"].value
    assert {"ac1_low", "ac1_high"} <= set(located.columns)
    assert "timed_balanced_accuracy" not in located.columns
    with pytest.raises(UsageError, match='did you mean "detection"'):
        evaluated.leaderboard("detecton")


def test_an_evaluation_writes_what_the_command_writes(evaluated: Evaluation, tmp_path: Path):
    paths = evaluated.write(tmp_path / "results")
    assert [path.name for path in paths] == ["results.parquet", "leaderboard.json", "leaderboard.md", "report.html"]
    assert all(path.stat().st_size for path in paths)


def test_stored_rows_are_scored_as_they_were(evaluated: Evaluation, example_dataset: Path, tmp_path: Path):
    evaluated.write(tmp_path)
    again = score(example_dataset, tmp_path / "results.parquet")
    pd.testing.assert_frame_equal(again.leaderboard(), evaluated.leaderboard())


def test_answers_that_were_made_elsewhere_are_scored(example_dataset: Path, truths):
    right = score(example_dataset, answers_of(truths, lambda truth: [truth.causes[0][0]]))
    assert right.leaderboard("localization")["ac1"].tolist() == [1.0]
    text = score(example_dataset, answers_of(truths, lambda truth: json.dumps({truth.causes[0][0]: 2.0})))
    assert text.leaderboard("localization")["ac1"].tolist() == [1.0]
    empty = score(example_dataset, answers_of(truths, lambda truth: {}))
    assert empty.leaderboard("localization")["ac1"].tolist() == [0.0]
    assert right.tables[0].protocol == "oracle"


def test_alarms_and_diagnoses_that_were_made_elsewhere_are_scored(example_dataset: Path, truths):
    lines = [
        {"episode": t.episode, "baseline": "a", "task": "detection", "alarm_ns": (t.onset_ns or 0) + 10**9}
        if t.faulty
        else {"episode": t.episode, "baseline": "a", "task": "detection"}
        for t in truths
    ]
    lines += [
        {"episode": t.episode, "baseline": "d", "task": "rca", "system_level": t.system_level, "fault_type": "Aging"}
        for t in truths
        if t.faulty
    ]
    scored = score(example_dataset, pd.DataFrame(lines))
    assert scored.leaderboard("detection")["timed_balanced_accuracy"].tolist() == [1.0]
    diagnosed = scored.leaderboard("rca")
    assert (diagnosed["level"].tolist(), diagnosed["joint"].tolist()) == ([1.0], [0.0])


def test_answers_that_cannot_be_scored_are_one_sentence(example_dataset: Path, truths):
    good = answers_of(truths, lambda truth: ["a"])
    with pytest.raises(UsageError, match='has no "task"'):
        score(example_dataset, good.drop(columns="task"))
    with pytest.raises(UsageError, match="must be a list of services or a mapping"):
        score(example_dataset, good.assign(ranking=7))
    with pytest.raises(DataError, match='the episode "nowhere", which is not in example version'):
        score(example_dataset, good.assign(episode="nowhere"))
    with pytest.raises(UsageError, match="no answer to score"):
        score(example_dataset, good.iloc[:0])


def test_two_evaluations_are_compared_without_files(evaluated: Evaluation):
    worse = dataclasses.replace(
        evaluated,
        rows=tuple(
            dataclasses.replace(row, ranking={}) if row.task == "localization" else row for row in evaluated.rows
        ),
    )
    compared = compare(evaluated, worse)
    by_task = {(table.task, table.protocol): table.entries for table in compared.tables}
    assert not by_task["detection", "detected"][0].changed
    assert by_task["localization", "oracle"][0].differences["ac1"].value <= 0


def test_an_option_that_does_not_exist_is_refused(example_dataset: Path) -> None:
    with pytest.raises(UsageError, match='unknown option "task"; did you mean "tasks"'):
        evaluate(example_dataset, ["random"], task=["rca"])  # type: ignore[call-arg]


def test_an_evaluation_listens_on_loopback_only(tmp_path: Path) -> None:
    write_example_dataset(tmp_path / "data", episodes=2, baseline_s=20, fault_s=20)
    words = [
        str(Path(sys.executable).with_name("evaluate")),
        str(tmp_path / "data"),
        "--baselines",
        "max-z,random,baro",
    ]
    process = subprocess.Popen([*words, "--out", str(tmp_path / "results")], stdout=subprocess.DEVNULL, stderr=-1)
    found: set[str] = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            for one in (parent, *parent.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    found |= {connection.laddr.ip for connection in one.net_connections(kind="inet")}
        time.sleep(0.05)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert found, "the status pages of dask were not seen"
    assert all(ipaddress.ip_address(address).is_loopback for address in found), found
