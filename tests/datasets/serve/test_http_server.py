"""Clients reach the three APIs at one address, and only clients of this machine."""

from __future__ import annotations

from typing import Any
from urllib.request import Request, urlopen

import pytest

SERVICES = ["frontend", "geo", "profile", "rate", "recommendation", "reservation", "search", "user"]


def test_one_address_has_the_three_apis(served_address: str, fetch: Any) -> None:
    _, prometheus = fetch(f"{served_address}/api/v1/query", query="count(up)")
    _, jaeger = fetch(f"{served_address}/api/services")
    _, loki = fetch(f"{served_address}/loki/api/v1/label/app/values")
    assert prometheus["data"]["result"][0]["value"][1] == "8"
    assert jaeger["data"] == loki["data"] == SERVICES


def test_parameters_may_be_a_form(served_address: str, fetch: Any) -> None:
    status, document = fetch(f"{served_address}/api/v1/query", {"query": "vector(2)"})
    assert (status, document["data"]["result"][0]["value"][1]) == (200, "2")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("api/v1/query?query=up{", 400, "invalid PromQL"),
        ("api/v1/query", 400, '"query" is missing'),
        ("api/v1/write", 404, "is not served"),
        ("api/traces", 400, '"service" is missing'),
        ("api/traces/ff", 404, "does not exist"),
        ("loki/api/v1/query_range?query={app=~", 400, "LogQL query"),
        ("loki/api/v1/push", 404, "is not served"),
        ("metrics", 404, "this server has paths"),
    ],
)
def test_errors_are_sentences(served_address: str, fetch: Any, path: str, status: int, message: str) -> None:
    answer = fetch(f"{served_address}/{path}".replace("{", "%7B"))
    assert answer[0] == status
    assert message in str(answer[1])


def test_the_root_answers_clients_that_test_the_connection(served_address: str, fetch: Any) -> None:
    assert fetch(f"{served_address}/")[0] == 200


def test_each_episode_of_a_dataset_has_its_own_path(served_dataset: str, fetch: Any) -> None:
    for episode in ("01084746c57a", "a5edb68659bc"):
        _, document = fetch(f"{served_dataset}/{episode}/api/v1/label/namespace/values")
        assert document["data"] == ["hotel"]
    status, message = fetch(f"{served_dataset}/nothing/api/services")
    assert status == 404
    assert "no episode" in message


def test_pages_of_other_sites_cannot_read_the_data(served_address: str) -> None:
    request = Request(f"{served_address}/api/services", headers={"Host": "evil.example:9090"})
    with pytest.raises(OSError, match="403"):
        urlopen(request, timeout=10)
