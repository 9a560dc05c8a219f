"""All programs of SocialNetwork at once: what a client gets, and what failures look like."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Collection

import pytest
from span_receiver import ReceivedSpan, Receiver
from stage import Process, Stage

from faultset.collector.runtime.stores.server import admin_command

POST = {
    "user_id": "5",
    "username": "username_5",
    "text": "to @username_7 and @username_9 about http://pages.example/1",
    "media_ids": '["1"]',
    "media_types": '["png"]',
    "post_type": "0",
}
COMPOSE, HOME, USER = "/wrk2-api/post/compose", "/wrk2-api/home-timeline/read", "/wrk2-api/user-timeline/read"


@pytest.fixture
def running(social: Stage) -> dict[str, Process]:
    """Every program, listening."""
    return social.start_all()


def compose(social: Stage, **changes: str) -> tuple[int, str]:
    return social.ask(COMPOSE, "POST", 20.0, **{**POST, **changes})


def timeline(social: Stage, path: str, user: str) -> list[dict]:
    status, body = social.ask(path, "GET", 20.0, user_id=user, start="0", stop="10")
    assert status == 200
    return json.loads(body)


def spans_of(
    social: Stage,
    receiver: Receiver,
    root: str,
    count: int,
    *,
    index: int = -1,
    traces: int = 1,
    names: Collection[str] = (),
) -> list[ReceivedSpan]:
    """Return the spans of one of the traces with this root, once there are so many of both and these names."""

    def found() -> list[ReceivedSpan]:
        roots = [span for span in receiver.spans if span.name == root and not span.parent]
        return [span for span in receiver.spans if len(roots) >= traces and span.trace == roots[index].trace]

    def complete() -> bool:
        spans = found()
        return len(spans) >= count and {span.name for span in spans} >= set(names)

    social.wait(complete, f"{count} spans of {root}, {', '.join(names)} among them")
    return found()


def test_a_post_reaches_followers_and_those_it_mentions(social: Stage, running: dict[str, Process]) -> None:
    assert compose(social) == (200, '"Successfully upload post"')
    followers = json.loads(social.redis("social-graph-mongodb", "HGET", "social-graph.social-graph", "5"))["followers"]
    for user in (str(followers[0]), "7", "9"):
        newest = timeline(social, HOME, user)[0]
        assert newest["creator"] == {"user_id": "5", "username": "username_5"}
        assert re.fullmatch(r"to @username_7 and @username_9 about http://short-url/\w{10}", newest["text"])
        assert [one["user_id"] for one in newest["user_mentions"]] == [7, 9]
    assert [post["post_id"] for post in timeline(social, USER, "5")][1:] == ["5002", "5001"]
    assert compose(social, media_ids="none") == (400, "Incomplete arguments\n")
    assert social.ask(HOME, "GET", 20.0, user_id="5") == (400, "Incomplete arguments\n")


def test_requests_leave_the_traces_of_the_original(
    social: Stage, receiver: Receiver, running: dict[str, Process]
) -> None:
    for _ in range(2):
        assert compose(social)[0] == 200
        timeline(social, HOME, "5")
        timeline(social, USER, "5")
    spans = spans_of(social, receiver, COMPOSE, 30, traces=2)
    assert len(spans) == 30
    by_id = {span.span: span for span in spans}
    edges = {(by_id[span.parent].name, span.name) for span in spans if span.parent}
    assert {
        (COMPOSE, "compose_post_client"),
        ("compose_post_client", "compose_post_server"),
        *{("compose_post_server", f"compose_{part}_client") for part in ("text", "creator", "media", "unique_id")},
        ("compose_text_server", "compose_urls_client"),
        ("compose_urls_server", "url_mongo_insert_client"),
        ("compose_user_mentions_server", "compose_user_mentions_memcached_get_client"),
        ("compose_post_server", "store_post_client"),
        ("write_user_timeline_server", "write_user_timeline_mongo_insert_client"),
        ("write_user_timeline_server", "write_user_timeline_redis_update_client"),
        ("get_followers_server", "social_graph_redis_get_client"),
        ("write_home_timeline_server", "write_home_timeline_redis_update_client"),
    } <= edges
    ends = {span.name: span for span in spans}
    parts = [ends[f"compose_{part}_client"] for part in ("text", "creator", "media", "unique_id")]
    writes = [ends[name] for name in ("store_post_client", "write_user_timeline_client", "write_home_timeline_client")]
    assert max(span.start_ns for span in parts) < min(span.end_ns for span in parts)
    assert max(span.end_ns for span in parts) <= writes[0].start_ns
    assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(writes))
    home = Counter(span.name for span in spans_of(social, receiver, HOME, 6, traces=2))
    assert home == Counter({
        HOME: 1, "read_home_timeline_client": 1, "read_home_timeline_server": 1,
        "read_home_timeline_redis_find_client": 1, "post_storage_read_posts_server": 1,
        "post_storage_mmc_mget_client": 1,
    })  # fmt: skip
    filled = {"user_timeline_mongo_find_client", "user_timeline_redis_update_client", "post_storage_mmc_set_client"}
    assert spans_of(social, receiver, USER, 10, index=0, names=filled)


def test_lines_name_the_trace_and_metrics_are_exported(
    social: Stage, receiver: Receiver, running: dict[str, Process]
) -> None:
    assert compose(social)[0] == 200
    traces = {
        name: re.search(r"trace_id=([0-9a-f]{32})", running[name].log) for name in ("nginx-thrift", "text-service")
    }
    assert len({found and found[1] for found in traces.values()}) == 1
    assert "<info>: (TextService.cpp:82:main) Starting the text-service server..." in running["text-service"].log
    assert not any("Traceback" in process.log or "Unclosed" in process.log for process in running.values())
    assert 'http_route="/TextService/ComposeText"} 1.0' in social.metrics("text-service")


def test_a_callee_that_is_gone_is_told_by_everybody_above_and_nothing_is_written(
    social: Stage, receiver: Receiver, running: dict[str, Process]
) -> None:
    social.end(running["url-shorten-service"], "url-shorten-service")
    status, text = compose(social)
    assert (status, text) == (500, "compose_post failure: Failed to connect to url-shorten-service\n")
    assert "<Host: url-shorten-service Port: 9090>: Connection refused" in running["text-service"].log
    assert "(ClientPool.h:117:Pop) Failed to connect url-shorten-service" in running["text-service"].log
    assert "Failed to send compose-text to text-service" in running["compose-post-service"].log
    assert "[error]" in running["nginx-thrift"].log
    spans = spans_of(social, receiver, COMPOSE, 12, names={"compose_urls_client"})
    assert not any(span.error or span.events for span in spans)
    assert "compose_urls_server" not in {span.name for span in spans}
    assert social.redis("post-storage-mongodb", "HLEN", "post.post") == str(2 * 962)


def test_a_later_write_that_fails_leaves_the_post(social: Stage, running: dict[str, Process]) -> None:
    social.end(running["home-timeline-service"], "home-timeline-service")
    assert compose(social) == (500, "compose_post failure: Failed to connect to home-timeline-service\n")
    assert social.redis("post-storage-mongodb", "HLEN", "post.post") == str(2 * 962 + 1)
    assert len(timeline(social, USER, "5")) == 3


def test_a_service_waits_for_a_database_that_refuses_it(social: Stage) -> None:
    social.start_all("url-shorten-mongodb")

    def administer(action: str) -> None:
        argv = admin_command("mongodb", action, port=27017, password=False)
        process = social.start("url-shorten-mongodb", argv=argv)
        social.wait(lambda: not process.alive, "the store command")
        assert process.exit_code == 0

    administer("require-password")
    service = social.start("url-shorten-service")
    social.wait(lambda: service.log.count("Failed to create mongodb index, try again") >= 2, "two tries")
    assert service.alive
    assert not social.listens("url-shorten-service")
    administer("set-password")
    social.wait(lambda: social.listens("url-shorten-service"), "the service serves")


def test_a_program_in_anothers_place_does_not_know_the_calls(social: Stage, running: dict[str, Process]) -> None:
    social.end(running["media-service"], "media-service")
    social.start("media-service", argv=["faultset-service", "unique-id-service"])
    social.wait(lambda: social.listens("media-service"), "the wrong program")
    assert compose(social) == (500, "compose_post failure: Invalid method name: 'ComposeMedia'\n")


def test_a_cache_that_is_gone_fails_reads_and_is_told(social: Stage, running: dict[str, Process]) -> None:
    social.end(running["home-timeline-redis"], "home-timeline-redis")
    status, text = social.ask(HOME, "GET", 20.0, user_id="5", start="0", stop="10")
    assert (status, text) == (500, "Get home-timeline failure: Failed to connect to Redis: Connection refused\n")
    assert len(timeline(social, USER, "5")) == 2
