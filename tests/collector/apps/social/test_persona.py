"""Log lines, error texts and steps of SocialNetwork."""

from __future__ import annotations

import pytest
from step_runs import values_after

from faultset.collector.apps import load_app
from faultset.collector.apps.social.operations import LacksPosts, ReplaceUrls, ShortenUrls
from faultset.collector.apps.social.persona import PERSONA
from faultset.collector.runtime.http.client import UnknownHostError
from faultset.collector.runtime.http.status import Code, FailedDial, RpcError
from faultset.datasets.telemetry_formats.log_lines import parse_line

TIME_S = 1_758_739_269.830218
REFUSED = FailedDial("user-service", 9090, ConnectionRefusedError())


def test_lines_have_the_shapes_of_boost_thrift_and_nginx() -> None:
    boost = PERSONA.format_line(TIME_S, "error", "ClientPool.h:117:Pop", "Failed to connect user-service-client")
    stamp = "[2025-Sep-24 18:41:09.830218]"
    assert boost == f"{stamp} <error>: (ClientPool.h:117:Pop) Failed to connect user-service-client"
    thrift = PERSONA.format_line(TIME_S, "error", "thrift", "TSocket::open()")
    assert thrift == "Thrift: Wed Sep 24 18:41:09 2025 TSocket::open()"
    nginx = PERSONA.format_line(TIME_S, "error", "compose.lua:71: ComposePost()", "compose_post failure: x")
    assert nginx.startswith("2025/09/24 18:41:09 [error] ")
    assert nginx.endswith(" [lua] compose.lua:71: ComposePost(): compose_post failure: x")
    assert {parse_line(line).level for line in (boost, thrift, nginx)} == {"error"}


def test_a_failed_connection_is_told_by_thrift_the_pool_and_the_handler_but_not_by_nginx() -> None:
    texts = [line.text for line in PERSONA.lines_of_failed_dial(REFUSED, "ComposePostHandler.h:9:ComposePost")]
    assert texts == [
        "TSocket::open() connect() <Host: user-service Port: 9090>: Connection refused",
        "Failed to connect user-service-client",
        "Failed to connect to user-service",
    ]
    storage = REFUSED._replace(service="post-storage-service", error=UnknownHostError("post-storage-service"))
    lines = PERSONA.lines_of_failed_dial(storage, "a.h:1:F")
    assert lines[0].text.endswith("Could not resolve host for client socket.")
    assert lines[1].text == "Failed to connect post-storage-client"
    assert PERSONA.lines_of_failed_dial(REFUSED, "read.lua:52: ReadHomeTimeline()") == ()


def test_messages_travel_without_a_code() -> None:
    assert PERSONA.format_failure(RpcError(Code.UNAVAILABLE, "Failed to connect to x")) == "Failed to connect to x"
    assert PERSONA.dial_failed("text-service", "Connection refused") == "Failed to connect to text-service"
    assert PERSONA.call_failed(None) == "No more data to read."
    assert PERSONA.unknown_operation("/TextService/ComposeText") == "Invalid method name: 'ComposeText'"


def test_nginx_starts_silently() -> None:
    services = load_app("social").services
    assert PERSONA.lines_of_start("serving", services["nginx-thrift"]) == ()
    (line,) = PERSONA.lines_of_start("serving", services["user-service"])
    assert line.text == "Starting the {service} server..."


def test_addresses_are_shortened_and_replaced_the_longest_first() -> None:
    pairs = values_after(ShortenUrls(urls="$u", save="s"), u=["http://a.b/1", "http://a.b/1/2"])["s"]
    assert [pair["expanded_url"] for pair in pairs] == ["http://a.b/1", "http://a.b/1/2"]
    short = [pair["shortened_url"] for pair in pairs]
    assert len(set(short)) == 2
    text = values_after(ReplaceUrls(text="$t", urls="$u", save="r"), t="x http://a.b/1/2 http://a.b/1 y", u=pairs)["r"]
    assert text == f"x {short[1]} {short[0]} y"


@pytest.mark.parametrize(("posts", "lacks"), [([], True), ([1, 2], True), ([1, 2, 3], False)])
def test_a_timeline_shorter_than_the_range_lacks_posts(posts: list[int], lacks: bool) -> None:
    step = LacksPosts(posts="$p", start="$a", stop="$b", save="l")
    assert values_after(step, p=posts, a="2", b="5")["l"] is lacks
