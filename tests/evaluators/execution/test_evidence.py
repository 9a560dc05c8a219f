"""What methods see after the alarm is cut for all alike."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from faultset.baselines.contract import Diagnosis, Ranking, Task, TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec
from faultset.core.errors import UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.recordings.window_view import select_available_rows
from faultset.evaluators import evaluate
from faultset.evaluators.execution.batches import list_expected_answers
from faultset.evaluators.execution.dataset_source import TruncatedCopies
from faultset.evaluators.execution.settings import EvaluationSettings
from faultset.evaluators.leaderboards.formats import choose_columns, markdown
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.scores import Setting, build_curves, score_episodes
from faultset.evaluators.results.rows import ResultRow

SECOND = 1_000_000_000


def time_to_be_right(rows: list[ResultRow]) -> float:
    """The seconds up to which the only episode had to be seen; the last row is that of the whole view."""
    setting = Setting(rows[-1].task, rows[-1].protocol)
    return score_episodes(rows).cases[setting]["method"]["e1"].seen_s


def latest(view: Any) -> int:
    """The last instant of which any table knows."""
    found = [view.table(name)["scheduled" if name == "requests" else "time"] for name in view.tables]
    return max(max(column.cast("int64").to_pylist()) for column in found if len(column))


class Remaining(TrainingFreeBaseline):
    """Names a service after the whole seconds that it sees after the alarm, by the view and by reading the files."""

    name: str = "remaining"
    task: Task = "localization"
    needs: frozenset[str] = frozenset({"sli"})
    tables: tuple[str, ...] = ("metrics", "spans", "logs", "events", "objects")

    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        seen = max(latest(episode), episode.window[1] - 1, latest(type(episode).__mro__[1](episode._path)))
        return Ranking(scores={episode.services[0]: 1.0 + (seen - alarm_ns) // SECOND})


class TypeByLength(TrainingFreeBaseline):
    """Names a level after the whole seconds that it sees after the alarm."""

    name: str = "type-by-length"
    task: Task = "rca"
    needs: frozenset[str] = frozenset()
    tables: tuple[str, ...] = ("metrics",)

    def diagnose(self, episode: Any, alarm_ns: int) -> Diagnosis:
        return Diagnosis(system_level=str((episode.window[1] - alarm_ns) // SECOND), fault_type="x")


def spec_of(cls: type) -> BaselineSpec:
    return BaselineSpec(
        name=cls.name,  # type: ignore[attr-defined]
        task=cls.task,  # type: ignore[attr-defined]
        tables=cls.tables,  # type: ignore[attr-defined]
        needs=cls.needs,  # type: ignore[attr-defined]
        factory=cls,
    )


def test_no_method_sees_more_than_its_budget_whatever_it_reads(example_dataset: Path):
    done = evaluate(example_dataset, [spec_of(Remaining)], evidence=(4, 10), workers=1, protocol="oracle")
    seen = {}
    for row in done.rows:
        assert row.status == "ok", row.reason
        seen.setdefault(row.evidence_s, []).append(next(iter(row.ranking.values())) - 1)
    assert set(seen) == {None, 4.0, 10.0}
    assert set(seen[4.0]) == {3.0}
    assert set(seen[10.0]) == {9.0}
    assert min(seen[None]) > 10
    assert len({row.key for row in done.rows}) == len(done.rows)


def test_every_kind_of_method_and_alarm_has_the_same_budgets(make):
    def asked(task: str, protocols: tuple[str, ...], truth: Any) -> dict[str, list[float | None]]:
        run = SimpleNamespace(task=task, own_detector=None)
        settings = EvaluationSettings(protocols=protocols, evidence=(4.0, 10.0, 90.0))
        found: dict[str, list[float | None]] = {}
        for one in list_expected_answers(run, truth, settings):  # type: ignore[arg-type]
            found.setdefault(one.protocol, []).append(one.evidence_s)
        return found

    # the fault is seen for 40 s
    fault, both = make.truth(), ("detected", "oracle")
    assert asked("detection", both, fault) == {"detected": [None], "evidence": [4.0, 10.0]}
    for task in ("localization", "rca"):
        own = {"detected": [None], "detected_evidence": [4.0, 10.0]}
        assert asked(task, ("detected",), fault) == own
        assert asked(task, both, fault) == {**own, "oracle": [None], "evidence": [4.0, 10.0]}
        assert asked(task, both, make.healthy()) == {"detected": [None]}
    assert asked("detection", both, make.healthy()) == {"detected": [None]}


def test_a_diagnoser_sees_so_much_after_either_alarm(example_dataset: Path):
    chosen = [spec_of(TypeByLength), "always-yes"]
    done = evaluate(example_dataset, chosen, evidence=(4,), alarm="always-yes", workers=1)
    assert {row.status for row in done.rows} == {"ok"}
    budgeted = [row for row in done.rows if row.evidence_s is not None]
    assert {(row.task, row.protocol) for row in budgeted} == {
        ("detection", "evidence"),
        ("rca", "evidence"),
        ("rca", "detected_evidence"),
    }
    assert {row.answer["system_level"] for row in budgeted if row.task == "rca"} == {"4"}
    ends = {row.truth.onset_ns + 4 * SECOND for row in budgeted}  # type: ignore[operator]
    assert all(max(row.answer["times_ns"]) <= max(ends) for row in budgeted if row.task == "detection")
    early = [row for row in budgeted if row.protocol == "detected_evidence"]
    assert all(row.alarm_given_early and row.alarm_source == "always-yes" for row in early)


def test_a_cut_episode_holds_what_was_known_then(example_dataset: Path):
    dataset = open_dataset(example_dataset)
    episode = dataset.episodes[1]
    whole = dataset.view(episode)
    end_ns = whole.reference[1] + 3 * SECOND
    with TruncatedCopies(str(dataset.path(episode))) as copies:
        from faultset.datasets.views import EpisodeView

        folder = Path(copies.until(end_ns))
        cut = EpisodeView(folder)
        assert cut.window == (whole.window[0], end_ns)
        assert latest(cut) < end_ns
        metrics = whole.metrics()
        expected = metrics[metrics["time"] < pd.Timestamp(end_ns, tz="UTC")].reset_index(drop=True)
        pd.testing.assert_frame_equal(cut.metrics(), expected, check_categorical=False)
        assert copies.until(end_ns) == str(folder)
    assert not folder.exists()


def test_spans_and_requests_that_ended_later_are_not_known(example_dataset: Path):
    dataset = open_dataset(example_dataset)
    view = dataset.view(dataset.episodes[1])
    spans, requests = view.table("spans"), view.table("requests")
    started, answered = spans["time"].cast("int64").to_pylist(), requests["scheduled"].cast("int64").to_pylist()
    end_ns = started[len(started) // 2] + 1
    known = select_available_rows("spans", spans, end_ns)
    ends = [
        a + b for a, b in zip(known["time"].cast("int64").to_pylist(), known["duration_ns"].to_pylist(), strict=True)
    ]
    assert 0 < len(known) < len(spans)
    assert max(ends) < end_ns
    end_ns = answered[len(answered) // 2] + 1
    last = select_available_rows("requests", requests, end_ns).to_pylist()[-1]
    assert (last["outcome"], last["latency_ns"], last["status"]) == ("unfinished", None, None)
    assert select_available_rows("requests", requests, end_ns).schema.equals(requests.schema)


def test_the_time_to_localize_is_the_budget_from_which_the_cause_stays_first(make):
    right, wrong = {"b": 2.0, "a": 1.0}, {"a": 2.0, "b": 1.0}

    def times(*answers: dict[str, float]) -> float:
        rows = [
            make.row(make.truth("e1"), ranking=answer, protocol="evidence", evidence_s=10.0 * i)
            for i, answer in enumerate(answers, start=1)
        ]
        rows.append(make.row(make.truth("e1"), ranking=right, protocol="oracle"))
        return time_to_be_right(rows)

    assert times(wrong, right, right) == 20.0
    assert times(right, right, right) == 10.0
    assert times(right, wrong, right) == 30.0
    assert times(right, right, wrong) == float("inf")


def test_curves_over_evidence_and_over_delays_are_apart(make):
    answer = {"b": 1.0}
    rows = [make.row(make.truth("e1"), ranking=answer, protocol="evidence", evidence_s=s) for s in (5.0, 9.0)]
    rows += [make.row(make.truth("e1"), ranking=answer, protocol="delayed", delay_s=s) for s in (0.0, 5.0)]
    rows += [make.row(make.truth("e1"), ranking={"a": 1.0}, protocol="oracle")]
    found = {
        curve.over: [(p.at_s, p.right.value, p.right_otherwise) for p in curve.points]
        for curve in build_curves(score_episodes(rows))
    }
    assert found == {"evidence": [(5.0, 1.0, 0.0), (9.0, 1.0, 0.0)], "delay": [(0.0, 1.0, 0.0), (5.0, 1.0, 0.0)]}


def test_the_time_after_a_detectors_alarm_is_counted_from_the_onset(make):
    truth = make.truth("e1")
    right = {"system_level": "Application", "fault_type": "Code Defect"}
    rows = [
        make.row(
            truth, task="rca", protocol="detected_evidence", evidence_s=budget, answer=answer,
            given_alarm_ns=truth.onset_ns + 7 * SECOND,
        )
        for budget, answer in ((5.0, {}), (20.0, right), (39.0, right))
    ]  # fmt: skip
    rows += [make.row(truth, task="rca", answer=right)]
    assert time_to_be_right(rows) == 27.0
    (curve,) = build_curves(score_episodes(rows))
    assert (curve.title, curve.since) == ("Level and type right by seconds of evidence", "the alarm of a detector")
    assert [(p.at_s, p.right.value, p.right_otherwise) for p in curve.points] == [(5, 0, 1), (20, 1, 1), (39, 1, 1)]
    # the view ends 40 s after the onset: the last budget was not seen in full
    assert time_to_be_right([rows[0], rows[2], rows[-1]]) == 40.0
    silent = make.row(truth, task="rca", protocol="detected_evidence", evidence_s=5.0, status="no_alarm")
    assert time_to_be_right([silent, rows[-1]]) == float("inf")


def test_detectors_have_a_time_and_a_curve_over_what_is_seen(make):
    truth = make.truth("e1")
    rows = [make.detection(truth, range(63, 101)), make.detection(make.healthy(), [])]
    rows += [
        make.detection(truth, flagged, protocol="evidence", evidence_s=budget)
        for budget, flagged in ((5.0, []), (10.0, range(68, 71)), (20.0, range(65, 81)))
    ]
    board = build_leaderboard(rows)
    table = board.table("detection", "detected", app="shop")
    assert table is not None
    assert table.entries[0].metrics["ttd_seen_median"].value == 10.0
    assert "ttd_seen_median" in [metric.name for metric in choose_columns(table)]
    (curve,) = board.curves
    assert [(p.at_s, p.right.value) for p in curve.points] == [(5.0, 0.0), (10.0, 1.0), (20.0, 1.0)]
    text = markdown(board)
    assert "## Share of faults with a true alarm by seconds of evidence" in text
    without = build_leaderboard(rows[:2]).tables[0]
    assert "ttd_seen_median" not in [metric.name for metric in choose_columns(without)]


def test_tables_of_diagnoses_show_the_time_to_diagnose_of_their_own_alarm(make):
    truth = make.truth("e1")
    right = {"system_level": "Application", "fault_type": "Code Defect"}
    rows = [make.row(truth, task="rca", protocol=protocol, answer=right) for protocol in ("detected", "oracle")]
    for protocol, after_s in (("evidence", 0), ("detected_evidence", 9)):
        given_ns = truth.onset_ns + after_s * SECOND
        rows.append(
            make.row(truth, task="rca", protocol=protocol, evidence_s=10.0, answer=right, given_alarm_ns=given_ns)
        )
    board = build_leaderboard(rows)
    for protocol, expected in (("oracle", 10.0), ("detected", 19.0)):
        table = board.table("rca", protocol, app="shop")
        assert table is not None
        assert table.entries[0].metrics["time_to_diagnose_median"].value == expected
        assert [metric.name for metric in choose_columns(table)][:3] == [
            "joint",
            "joint_10s",
            "time_to_diagnose_median",
        ]


def test_no_evidence_is_no_budget(example_dataset: Path):
    with pytest.raises(UsageError, match="an evidence budget must be above 0 s"):
        evaluate(example_dataset, ["max-z"], evidence=(0,))
