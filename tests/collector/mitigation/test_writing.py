"""Patches of every type, against examples of the Kubernetes documentation."""

from __future__ import annotations

import random

import pytest

from faultset.collector.mitigation.live_state import CommandRefused
from faultset.collector.mitigation.writing import (
    apply_patch,
    strategic_merge,
    with_environment,
    with_images,
    with_resources,
)
from faultset.collector.platforms.objects import merge, merge_patch

PATCH_DEMO = {
    "kind": "Deployment",
    "spec": {"template": {"spec": {"containers": [{"name": "patch-demo-ctr", "image": "nginx"}], "tolerations": [1]}}},
}


def _random_object(rng: random.Random, depth: int = 3) -> dict[str, object]:
    made: dict[str, object] = {}
    for key in rng.sample("abcde", rng.randrange(5)):
        kind = rng.randrange(4 if depth else 2)
        made[key] = (rng.randrange(3), "x", [rng.randrange(2), {"k": 1}], None)[kind] if kind < 3 else {}
        if kind == 3:
            made[key] = _random_object(rng, depth - 1)
    return made


def test_a_merge_patch_makes_the_one_of_the_other() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        current, wanted = _random_object(rng), _random_object(rng)
        assert merge(current, merge_patch(current, wanted)) == wanted


def test_a_strategic_patch_adds_a_container_and_replaces_an_atomic_list() -> None:
    change = {
        "spec": {
            "template": {"spec": {"containers": [{"name": "patch-demo-ctr-2", "image": "redis"}], "tolerations": [2]}}
        }
    }
    made = strategic_merge(PATCH_DEMO, change)["spec"]["template"]["spec"]
    assert [one["name"] for one in made["containers"]] == ["patch-demo-ctr", "patch-demo-ctr-2"]
    assert made["tolerations"] == [2]


def test_a_strategic_patch_changes_the_element_of_its_name_and_deletes_one() -> None:
    current = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    assert strategic_merge(current, {"env": [{"name": "B", "value": "3"}]})["env"][1] == {"name": "B", "value": "3"}
    assert strategic_merge(current, {"env": [{"name": "A", "$patch": "delete"}]}) == {"env": current["env"][1:]}


def test_ports_of_a_service_are_merged_by_their_number() -> None:
    current = {"ports": [{"name": "http", "port": 80, "targetPort": 9999}]}
    made = strategic_merge(current, {"ports": [{"port": 80, "targetPort": 8080}]})
    assert made == {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}


def test_a_json_patch_replaces_one_place() -> None:
    text = '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "nginx:1"}]'
    assert apply_patch(PATCH_DEMO, text, "json")["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1"


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("{", "merge", "must be JSON or YAML"),
        ("[]", "merge", "a merge patch must be a mapping"),
        ("3", "strategic", "a strategic patch must be a mapping"),
        ('[{"op": "remove", "path": "/no/such"}]', "json", "cannot be applied"),
        ('[{"op": "fly", "path": "/spec"}]', "json", "cannot be applied"),
        ("{}", "json", "must be a list of operations"),
        ('["x"]', "json", "cannot be applied"),
        ("7", "json", "must be a list of operations"),
    ],
)
def test_a_patch_that_cannot_be_meant_is_one_sentence(text: str, kind: str, sentence: str) -> None:
    with pytest.raises(CommandRefused, match=sentence):
        apply_patch(PATCH_DEMO, text, kind)


def test_images_environment_and_resources_of_a_template_are_changed() -> None:
    template = PATCH_DEMO["spec"]["template"]
    assert with_images(template, {"*": "a:1"})["spec"]["containers"][0]["image"] == "a:1"
    with pytest.raises(CommandRefused, match='container named "x"; expected one of patch-demo-ctr'):
        with_images(template, {"x": "a:1"})
    once = with_environment(template, {"A": "1", "B": "2"})
    again = with_environment(once, {"A": None, "C": "3"})
    assert again["spec"]["containers"][0]["env"] == [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
    limited = with_resources(template, [], {"limits": {"cpu": "1"}})
    assert limited["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert "resources" not in template["spec"]["containers"][0]
