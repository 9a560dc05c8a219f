"""The picture of the calls between services."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pandas as pd

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
    assert titles == ["stock calls db: 1 a request", "web calls stock: 0.5 a request"]


def test_the_picture_of_social_network_has_the_services_that_its_requests_reach() -> None:
    text = (Path(__file__).parents[2] / "docs" / "images" / "social-calls.svg").read_text(encoding="utf-8")
    drawn = {one.text for one in ElementTree.fromstring(text).iter() if one.tag.endswith("text")}
    assert set(load_app("social").services) - drawn == {"url-shorten-memcached"}
