"""What methods see after the alarm is cut for all alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from faultset.baselines.api.contract import Ranking, Untrained
from faultset.baselines.api.registry import BaselineSpec
from faultset.core.errors import UsageError
from faultset.datasets.dataset import open_dataset
from faultset.evaluators import evaluate
from faultset.evaluators.execution.cut_episodes import CutCopies, known_at
from faultset.evaluators.leaderboards.curves import curves_of, times_to_localize

SECOND = 1_000_000_000


def latest(view: Any) -> int:
    """The last instant of which any table knows."""
    found = [view.table(name)["scheduled" if name == "requests" else "time"] for name in view.tables]
    return max(max(column.cast("int64").to_pylist()) for column in found if len(column))


class Remaining(Untrained):
    """Names a service after the whole seconds that it sees after the alarm, by the view and by reading the files."""

    name: str = "remaining"
    needs: frozenset[str] = frozenset({"sli"})
    tables: tuple[str, ...] = ("metrics", "spans", "logs", "events", "objects")

    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        seen = max(latest(episode), episode.view[1] - 1, latest(type(episode).__mro__[1](episode._path)))
        return Ranking(scores={episode.services[0]: 1.0 + (seen - alarm_ns) // SECOND})


def spec_of(cls: type) -> BaselineSpec:
    return BaselineSpec(
        name="remaining",
        title="",
        task="localization",
        paper="",
        kind="method",
        tables=cls.tables,  # type: ignore[attr-defined]
        needs=cls.needs,  # type: ignore[attr-defined]
        stochastic=False,
        speed="instant",
        departures=(),
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


def test_a_cut_episode_holds_what_was_known_then(example_dataset: Path):
    dataset = open_dataset(example_dataset)
    episode = dataset.episodes[1]
    whole = dataset.view(episode)
    end_ns = whole.reference[1] + 3 * SECOND
    with CutCopies(str(dataset.path(episode))) as copies:
        from faultset.datasets.views import EpisodeView

        folder = Path(copies.until(end_ns))
        cut = EpisodeView(folder)
        assert cut.view == (whole.view[0], end_ns)
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
    known = known_at("spans", spans, end_ns)
    ends = [
        a + b for a, b in zip(known["time"].cast("int64").to_pylist(), known["duration_ns"].to_pylist(), strict=True)
    ]
    assert 0 < len(known) < len(spans)
    assert max(ends) < end_ns
    end_ns = answered[len(answered) // 2] + 1
    last = known_at("requests", requests, end_ns).to_pylist()[-1]
    assert (last["outcome"], last["latency_ns"], last["status"]) == ("unfinished", None, None)
    assert known_at("requests", requests, end_ns).schema.equals(requests.schema)


def test_the_time_to_localize_is_the_budget_from_which_the_cause_stays_first(make):
    right, wrong = {"b": 2.0, "a": 1.0}, {"a": 2.0, "b": 1.0}

    def times(*answers: dict[str, float]) -> float:
        rows = [
            make.row(make.truth("e1"), ranking=answer, protocol="evidence", evidence_s=10.0 * i)
            for i, answer in enumerate(answers, start=1)
        ]
        return times_to_localize(rows)["method"]["e1"]

    assert times(wrong, right, right) == 20.0
    assert times(right, right, right) == 10.0
    assert times(right, wrong, right) == 30.0
    assert times(right, right, wrong) == float("inf")


def test_curves_over_evidence_and_over_delays_are_apart(make):
    answer = {"b": 1.0}
    rows = [make.row(make.truth("e1"), ranking=answer, protocol="evidence", evidence_s=s) for s in (5.0, 9.0)]
    rows += [make.row(make.truth("e1"), ranking=answer, protocol="delayed", delay_s=s) for s in (0.0, 5.0)]
    rows += [make.row(make.truth("e1"), ranking={"a": 1.0}, protocol="oracle")]
    found = {curve.over: [(p.at_s, p.ac1.value, p.ac1_otherwise) for p in curve.points] for curve in curves_of(rows)}
    assert found == {"evidence": [(5.0, 1.0, 0.0), (9.0, 1.0, 0.0)], "delay": [(0.0, 1.0, 0.0), (5.0, 1.0, 0.0)]}


def test_no_evidence_is_no_budget(example_dataset: Path):
    with pytest.raises(UsageError, match="leaves nothing to see"):
        evaluate(example_dataset, ["max-z"], evidence=(0,))
