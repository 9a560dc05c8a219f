"""Where an alarm was seen reaches methods that declare that they use it, and no other."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.baselines.api.contract import Ranking, TrainingFreeBaseline
from faultset.baselines.api.registry import BaselineSpec
from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.format.versions import create_version
from faultset.evaluators import evaluate


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
    return BaselineSpec(
        name=cls.name,
        task="localization",
        tables=cls.tables,
        needs=cls.needs,
        factory=cls,
    )


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
