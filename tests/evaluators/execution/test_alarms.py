"""Where an alarm was seen reaches methods that declare that they use it, and no other."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.baselines import baseline
from faultset.baselines.contract import Ranking, TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec
from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import read_context
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.format.versions import create_version
from faultset.evaluators import evaluate
from faultset.evaluators.leaderboards.formats import markdown, summary_lines


class NamesAlarmService(TrainingFreeBaseline):
    """Names the service where the alarm was seen; nobody where it is not told."""

    name: str = "names-the-place"
    needs: frozenset[str] = frozenset({"alarm_location"})
    tables: tuple[str, ...] = ("metrics",)

    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        place = episode.alarm_location
        return Ranking.abstain() if place is None else Ranking(scores={place.service: 1.0})


class Undeclared(NamesAlarmService):
    """Asks for the place without declaring it."""

    name = "undeclared"
    needs: frozenset[str] = frozenset()


def spec_of(cls: type[NamesAlarmService]) -> BaselineSpec:
    return BaselineSpec(name=cls.name, task="localization", tables=cls.tables, needs=cls.needs, factory=cls)


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose labels say where the alarm was seen: on the front end."""
    root = tmp_path_factory.mktemp("data") / "shop"
    write_example_dataset(root, episodes=2, seed=3, baseline_s=20, fault_s=20)
    opened = open_dataset(root)
    for episode in opened.episodes:
        path = opened.path(episode) / "truth" / "label.parquet"
        table = pq.read_table(path)
        known = dict(opened.label(episode).parameters)
        text = canonical_json(known | {"alarm": {"service": opened.view(episode).context.workload_entry}})
        place = table.schema.get_field_index("parameters")
        pq.write_table(table.set_column(place, table.schema.field(place), pa.array([text])), path)
    shutil.rmtree(root / "versions")
    create_version(root, provenance={})
    return root


def test_only_a_method_that_declares_it_sees_where_the_alarm_was_seen(placed: Path):
    done = evaluate(placed, [spec_of(NamesAlarmService), spec_of(Undeclared)], evidence=(5,), delays=(5,), workers=1)
    front = open_dataset(placed).view(open_dataset(placed).episodes[0]).context.workload_entry
    named = {(row.baseline, row.protocol): tuple(row.ranking) for row in done.rows if row.truth.faulty}
    localized = {key: names for key, names in named.items() if key[0] in ("names-the-place", "undeclared")}
    assert {key: names for key, names in localized.items() if names} == {
        ("names-the-place", "oracle"): (front,),
        ("names-the-place", "evidence"): (front,),
    }
    assert ("undeclared", "oracle") in localized
    assert ("names-the-place", "detected") in localized


def test_methods_that_are_told_the_place_are_ranked_apart(placed: Path):
    done = evaluate(placed, [spec_of(NamesAlarmService), spec_of(Undeclared)], protocol="oracle", workers=1)
    groups = {entry.baseline: table.group for table in done.tables for entry in table.entries}
    assert groups["names-the-place"] == "alarm_location"
    assert groups["undeclared"] == "telemetry"


@pytest.mark.parametrize("given", ["front", {"metric": "latency"}, {"service": 3}])
def test_a_place_that_is_none_is_refused_with_its_episode(placed: Path, given: object):
    label = open_dataset(placed).label(open_dataset(placed).episodes[0])
    with pytest.raises(DataError, match=f"the parameter alarm of {label.episode}"):
        _ = dataclasses.replace(label, parameters={"alarm": given}).alarm_location


def test_a_place_keeps_the_metric_that_the_source_names(placed: Path):
    label = open_dataset(placed).label(open_dataset(placed).episodes[0])
    given = {"service": "front", "metric": "latency_*"}
    assert dataclasses.replace(label, parameters={"alarm": given}).alarm_location == AlarmLocation(
        service="front", metric="latency_*"
    )


@pytest.fixture(scope="module")
def unreferenced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose metrics begin after the reference."""
    return _with_late_metrics(tmp_path_factory.mktemp("data") / "shop", healthy_s=0.0)


def _with_late_metrics(root: Path, healthy_s: float) -> Path:
    write_example_dataset(root, episodes=2, seed=3, baseline_s=20, fault_s=20)
    opened = open_dataset(root)
    for folder in map(opened.path, opened.episodes):
        path = folder / "telemetry" / "metrics.parquet"
        table = pq.read_table(path)
        begin_ns = read_context(folder).reference_end_ns - round(healthy_s * SECOND_NS)
        late = table["time"].cast(pa.int64()).to_numpy() >= begin_ns
        pq.write_table(table.filter(pa.array(late)), path)
    shutil.rmtree(root / "versions")
    create_version(root, provenance={})
    return root


class NamesNobody(TrainingFreeBaseline):
    """Has spans to compare with, and says nothing."""

    def localize(self, episode, alarm_ns) -> Ranking:
        return Ranking.abstain()


class ReadsProfiles(NamesNobody):
    """Needs a table that a source of another distribution records."""

    def localize(self, episode, alarm_ns) -> Ranking:
        return Ranking.of({episode.table("profiles")["service"][0].as_py(): 1.0}, episode.services)


class LooksForProfiles(ReadsProfiles):
    """Says nothing where they are not recorded."""

    def localize(self, episode, alarm_ns) -> Ranking:
        return super().localize(episode, alarm_ns) if "profiles" in episode.tables else Ranking.abstain()


class LearnsFromProfiles(NamesNobody):
    """Reads them when it is fitted."""

    def fit(self, healthy):
        for view in healthy:
            view.table("profiles")
        return self


class AnswersAnyway(ReadsProfiles):
    """Does without them."""

    def localize(self, episode, alarm_ns) -> Ranking:
        return Ranking.of({episode.services[0]: 1.0}, episode.services)


@pytest.mark.usefixtures("own_registries")
def test_a_method_none_of_whose_tables_is_recorded_cannot_answer_and_misses(example_dataset: Path):
    methods = []
    for name, cls in (
        ("reads", ReadsProfiles),
        ("looks", LooksForProfiles),
        ("learns", LearnsFromProfiles),
        ("answers", AnswersAnyway),
    ):
        announce = baseline(
            name, title="Of profiles", task="localization", paper="Of a test", kind="rule", tables=("profiles",),
            speed="instant",
        )  # fmt: skip
        methods.append(announce(cls))
    done = evaluate(example_dataset, methods, protocol="oracle", workers=1)
    statuses = {row.baseline: (row.status, row.reason) for row in done.rows}
    missing = ("cannot", "the table profiles is missing")
    fitted = ("cannot", "fit: the table profiles is missing")
    assert statuses == {"reads": missing, "looks": missing, "learns": fitted, "answers": ("ok", "")}
    board = done.leaderboard("localization").set_index("baseline")
    assert board.loc["reads", "episodes"] == 2
    assert board.loc[["reads", "learns"], ["cannot", "failed", "ac1"]].to_numpy().tolist() == [[2, 0, 0.0]] * 2
    assert board.loc["answers", "cannot"] == 0


@pytest.mark.usefixtures("own_registries")
def test_only_methods_without_anything_to_compare_with_answer_cannot(unreferenced: Path):
    announce = baseline(
        "names-nobody",
        title="Empty",
        task="localization",
        paper="Of a test",
        kind="rule",
        tables=("spans",),
        speed="instant",
    )
    methods = ["nsigma", announce(NamesNobody), "most-frequent", "ksigma"]
    done = evaluate(unreferenced, methods, protocol="oracle", workers=1)
    by_status = {(row.baseline, row.status) for row in done.rows}
    assert ("nsigma", "cannot") in by_status
    assert ("names-nobody", "ok") in by_status
    assert ("ksigma", "cannot") in by_status
    assert {row.reason for row in done.rows if row.status == "cannot"} == {"no metrics in the reference"}
    assert not done.failures
    board = done.leaderboard("localization").set_index("baseline")
    assert board.loc["nsigma", "cannot"] == 1
    assert board.loc["nsigma", "failed"] == 0
    assert board.loc["nsigma", "ac1"] == 0.0
    assert board.loc["names-nobody", "cannot"] == 0
    assert done.leaderboard("detection").set_index("baseline").loc["ksigma", "timed_balanced_accuracy"] == 0.0
    assert any("no metric sample in the reference" in line for line in summary_lines(done.board))
    assert "| cannot |" in markdown(done.board)


@pytest.mark.usefixtures("own_registries")
def test_a_method_without_a_table_that_it_requires_cannot_answer(unreferenced: Path):
    announce = baseline(
        "needs-metrics", title="Needs both", task="localization", paper="Of a test", kind="rule",
        tables=("metrics", "spans"), requires=("spans", "metrics"), speed="instant",
    )  # fmt: skip
    done = evaluate(unreferenced, [announce(NamesNobody)], protocol="oracle", workers=1)
    assert {(row.status, row.reason) for row in done.rows} == {("cannot", "no metrics in the reference")}


def test_a_single_healthy_sample_is_no_reference_and_methods_on_metrics_say_so(tmp_path: Path):
    done = evaluate(_with_late_metrics(tmp_path / "shop", healthy_s=1.0), ["nsigma"], protocol="oracle", workers=1)
    (row,) = [row for row in done.rows if row.truth.faulty]
    assert row.status == "cannot"
    assert row.reason.startswith("no series varies and has two healthy samples; ")
