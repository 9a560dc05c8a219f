"""What the spec of SocialNetwork says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.collector.spec.app import AppSpec


@pytest.fixture(scope="module")
def social() -> AppSpec:
    return load_app("social")


def test_social_has_the_services_of_the_original_that_its_workloads_use(social: AppSpec) -> None:
    kinds: dict[str, set[str]] = {}
    for service in social.services.values():
        kinds.setdefault(service.kind, set()).add(service.name)
    original = load_app("social-deathstarbench")
    for kind in ("frontend", "logic", "cache", "database"):
        unused = {"media-frontend", "media-memcached", "media-mongodb"}
        expected = {name for name, service in original.services.items() if service.kind == kind} - unused
        assert kinds[kind] == expected, kind
    assert len(kinds["logic"]) == 11
    assert (social.label_key, social.entry) == ("service", original.entry)


def test_the_call_graph_is_that_of_the_original_where_the_workloads_go(social: AppSpec) -> None:
    original = load_app("social-deathstarbench")
    assert set(social.calls) < set(original.calls)
    unused = {"user-service", "social-graph-service", "media-mongodb", "media-memcached"}
    assert {callee for _, callee in set(original.calls) - set(social.calls)} == unused


def test_faults_of_what_the_application_has_not_have_no_target_and_all_others_have_one(social: AppSpec) -> None:
    missing = {name for name, spec in faults().items() if unavailable_reason(spec, social)}
    of_flags = {name for name, spec in faults().items() if ".faults.flags" in spec.inject.__module__}
    of_operators = {name for name, spec in faults().items() if ".faults.operator" in spec.inject.__module__}
    assert (len(of_flags), len(of_operators)) == (11, 6)
    of_passwords_and_settings = {"revoke-auth", "user-unregistered", "wrong-secret", "wrong-config-key"}
    of_brokers = {"consumer-stopped", "poison-message"}
    assert missing == of_passwords_and_settings | of_brokers | of_flags | of_operators
    assert faults()["auth-missing"].targets(social) == tuple(
        name for name, service in social.services.items() if service.kind == "database"
    )


def test_962_users_have_friends_posts_and_timelines(social: AppSpec) -> None:
    def documents(store: str, name: str) -> list[dict]:
        return list(social.services[store].collections[name].all())

    users = documents("user-mongodb", "user")
    assert [user["user_id"] for user in users] == list(range(1, 963))
    followers = {one["user_id"]: one["followers"] for one in documents("social-graph-mongodb", "social-graph")}
    assert sum(map(len, followers.values())) == 2 * 18_812
    posts = {post["post_id"]: post["creator"]["user_id"] for post in documents("post-storage-mongodb", "post")}
    assert len(posts) == 2 * 962
    written = [(one["post_id"], one["user_id"]) for one in documents("user-timeline-mongodb", "user-timeline")]
    assert dict(written) == posts
    for timeline in documents("home-timeline-redis", "home-timeline"):
        friends = followers[int(timeline["user_id"])]
        assert [posts[post] for post in timeline["members"]] == friends[:10]


def test_requests_are_drawn_within_their_bounds_and_the_mixes_are_the_original_ones(social: AppSpec) -> None:
    rng = np.random.default_rng(7)
    for _ in range(100):
        post = social.requests["compose-post"].draw(rng)
        assert 1 <= int(post["user_id"]) <= 962
        assert post["username"] == f"username_{post['user_id']}"
        assert post["text"].count("@username_") == 2
        assert post["text"].count("http://") == 2
        assert len(json.loads(post["media_ids"])) == len(json.loads(post["media_types"])) == 1
    assert social.default_mix == "mixed"
    assert list(social.mixes["mixed"].shares.values()) == [0.6, 0.3, 0.1]
    assert social.mixes["compose"].shares == {"compose-post": 1.0}
