"""The picture of the calls between services."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pandas as pd
import pytest

from faultset.collector.apps import load_app

ROWS = [
    ("1", None, "web", None),
    ("2", "1", "web", "stock"),
    ("3", "2", "stock", None),
    ("4", "3", "stock", "db"),
    ("5", "3", "stock", "db"),
    ("6", None, "web", None),
]


def test_calls_are_counted_for_each_request_and_stores_by_their_clients(call_graph: ModuleType) -> None:
    spans = pd.DataFrame(ROWS, columns=["span_id", "parent_span_id", "service", "peer_service"])
    calls = call_graph.calls_per_request(spans)
    assert calls == {("web", "stock"): 0.5, ("stock", "db"): 1.0}
    assert call_graph.columns(calls) == [["web"], ["stock"], ["db"]]
    titles = [one.text for one in ElementTree.fromstring(call_graph.picture(calls)).iter() if one.tag.endswith("title")]
    assert titles == ["stock calls db: 1 per request", "web calls stock: 0.5 per request"]


def test_what_nobody_calls_is_right_before_what_it_calls(call_graph: ModuleType) -> None:
    calls = {("web", "shop"): 1.0, ("shop", "queue"): 0.1, ("mailer", "queue"): 0.1}
    assert call_graph.columns(calls) == [["web"], ["mailer", "shop"], ["queue"]]


UNREACHED = {
    "hotel": {"consul", "mongodb-geo", "mongodb-recommendation", "mongodb-user"},
    "social": {"url-shorten-memcached"},
    "astronomy": {"flagd", "load-generator"},
    "tidb": {"tidb-operator"},
}
"""Services that no request reaches: they are read at the start only, or not at all."""


@pytest.mark.parametrize("app", UNREACHED)
def test_the_picture_of_an_application_has_the_services_that_its_requests_reach(app: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "images" / f"{app}-calls.svg").read_text(encoding="utf-8")
    drawn = {one.text for one in ElementTree.fromstring(text).iter() if one.tag.endswith("text")}
    assert set(load_app(app).services) - drawn == UNREACHED[app]
