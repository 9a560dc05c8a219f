"""Removal of namespaces: what is waited for at the end of an episode, and what at the end of a campaign."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from object_server import ObjectServer

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.objects import (
    EPISODE,
    await_removal_of_episodes,
    create_namespace,
    delete_namespaces,
    list_namespaces,
    remove_namespaces,
)
from faultset.core.errors import PlatformError


@pytest.fixture
def api(object_server: ObjectServer, connect: Callable[..., Api]) -> Api:
    return connect(object_server)


def left(api: Api) -> set[str]:
    return {found["metadata"]["name"] for found in list_namespaces(api)}


def test_an_episode_deletes_its_namespaces_and_its_campaign_waits_for_their_end(
    api: Api, object_server: ObjectServer
) -> None:
    object_server.removal_s = 0.6
    create_namespace(api, "hotel-1", {EPISODE: "one"})
    delete_namespaces(api, ["hotel-1"])
    assert left(api) == {"hotel-1"}
    await_removal_of_episodes(api, {"one"})
    assert left(api) == set()


def test_a_campaign_waits_for_no_other_episode(api: Api, object_server: ObjectServer) -> None:
    object_server.removal_s = 30.0
    create_namespace(api, "hotel-1", {EPISODE: "of-another-campaign"})
    create_namespace(api, "hotel-2", {EPISODE: "one"})
    delete_namespaces(api, ["hotel-1"])
    began = time.monotonic()
    await_removal_of_episodes(api, {"one"})
    assert time.monotonic() - began < 10.0
    assert left(api) == {"hotel-1", "hotel-2"}


def test_a_namespace_that_does_not_end_is_named(api: Api, object_server: ObjectServer) -> None:
    object_server.removal_s = 30.0
    create_namespace(api, "hotel-1", {EPISODE: "one"})
    with pytest.raises(PlatformError, match=r"hotel-1 is still terminating after 0.3 s .*faultset recover"):
        remove_namespaces(api, ("hotel-1",), timeout_s=0.3)
