"""What the class of an added source declares is checked before a campaign begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.fake import FakePlatform, FakeSource
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.registry import GROUP, check_together, load_source, load_sources, source_spec
from faultset.collector.sources.sampling import SampledSource
from faultset.collector.testing import check_source
from faultset.core.errors import PlatformError, UsageError
from faultset.core.plugins import plugins
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole

COLUMN = AddedColumn(name="watts", type="double", unit="W", meaning="drawn power")
ROLE = MetricRole(source="meter", metric="drawn_watts", role="other", unit="W", kind="gauge", combine="sum")


class Meter(SampledSource):
    """What the machine draws."""

    table = "power"
    columns = (COLUMN,)

    def sample(self) -> Iterator[dict[str, Any]]:
        yield {"watts": 80.0}


def like(**attributes: Any) -> type:
    return type("Changed", (Meter,), {"__doc__": Meter.__doc__, **attributes})


@pytest.mark.parametrize("name", sorted({*plugins(GROUP)} - {"exemplars"}))
def test_every_installed_source_keeps_what_sources_promise(name: str) -> None:
    check_source(name)


class MetricsWithExemplars(FakeSource):
    """Metrics whose server keeps an exemplar for the start of each window."""

    def exemplars(self, start_ns: int, end_ns: int) -> Iterator[dict[str, Any]]:
        if start_ns < end_ns:
            yield {"time": start_ns, "pod": "geo-0", "metric": "m_bucket", "labels": "{}", "value": 0.2}


def test_exemplars_are_a_table_where_the_metrics_have_them(tmp_path: Path) -> None:
    platform = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    platform.source_kinds = {"metrics": MetricsWithExemplars}
    (row,) = check_source("exemplars", platform=platform, record_s=0.01).to_pylist()
    assert (row["pod"], row["value"], row["trace_id"]) == ("geo-0", 0.2, None)


def test_exemplars_of_a_platform_without_them_are_refused() -> None:
    with pytest.raises(PlatformError, match="this platform have no exemplars; leave --sources exemplars out"):
        check_source("exemplars", record_s=0.01)


def test_what_is_declared_becomes_the_schema_of_its_rows() -> None:
    spec = source_spec("meter", Meter)
    assert spec.schema.names == ["time", "watts"]
    assert spec.added_table is not None
    assert (spec.added_table.meaning, spec.schema.field("watts").metadata[b"unit"]) == ("What the machine draws.", b"W")


@pytest.mark.parametrize(
    ("loaded", "sentence"),
    [
        (3, "it must be a class with table, interval_s, start, snapshot, close, got 3"),
        (dict, "got <class 'dict'>, which lacks table"),
        (like(__doc__="no sentence"), "must start with a sentence"),
        (like(table="Power supply"), "is not a valid name of an added table"),
        (like(columns=()), "must have columns in addition to its time"),
        (like(table="requests", columns=()), "rows cannot be added to requests"),
        (like(table="metrics"), "leave columns out"),
        (like(table="metrics", columns=()), "metric_roles must be declared by sources of metrics"),
        (like(table="logs", columns=(), metric_roles=(ROLE,)), "metric_roles must be declared by sources of metrics"),
        (
            like(table="metrics", columns=(), metric_roles=(MetricRole(**{**vars(ROLE), "metric": "up"}),)),
            "the metrics up must have names without",
        ),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(loaded: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        source_spec("meter", loaded)


def test_two_sources_of_one_table_or_metric_do_not_fit_together() -> None:
    series = like(table="metrics", columns=(), metric_roles=(ROLE,))
    check_together([source_spec("a", Meter), source_spec("b", series), source_spec("c", like(table="more"))])
    with pytest.raises(UsageError, match="the sources a and b both record the table power"):
        check_together([source_spec("a", Meter), source_spec("b", Meter)])
    with pytest.raises(UsageError, match="both record the metric drawn_watts"):
        check_together([source_spec("a", series), source_spec("b", series)])


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(UsageError, match='unknown source "meter"'):
        load_source("meter")
    assert "meter" not in load_sources()
