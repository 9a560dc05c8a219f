"""Texts of ConfigMaps as tools show them, where they were recorded."""

from __future__ import annotations

import json

import pytest
import yaml

from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView

START = 1_760_000_000_000_000_000
SECOND = 1_000_000_000
TEXTS = {"flags.json": '{\n "slow": "off"\n}\n', "level": "info"}


def row(at_s: int, digest: str, texts: dict[str, str] | None) -> dict[str, object]:
    data = None if texts is None else json.dumps(texts)
    state = json.dumps({"digest": digest})
    return {
        "kind": "ConfigMap", "name": "settings", "service": None, "state": state, "data": data,
        "time": START + at_s * SECOND,
    }  # fmt: skip


@pytest.fixture
def tools(write_episode) -> EpisodeTools:
    later = TEXTS | {"level": "debug"}
    path = write_episode("c0", start_ns=START, objects=[row(1, "a", TEXTS), row(11, "a", TEXTS), row(12, "b", later)])
    return EpisodeTools(EpisodeView(path))


def kubectl(tools: EpisodeTools, command: str) -> str:
    answer = tools.call("kubectl", {"command": command})
    assert answer.status == "ok", answer.text
    return answer.text.rpartition("\n[")[0]


def test_kubectl_shows_the_texts_as_blocks_in_yaml(tools: EpisodeTools) -> None:
    shown = kubectl(tools, "kubectl get configmap settings -o yaml")
    assert yaml.safe_load(shown)["data"] == TEXTS | {"level": "debug"}
    assert "  flags.json: |\n" in shown
    assert kubectl(tools, "kubectl get cm settings -o jsonpath='{.data.level}'") == "debug"
    assert kubectl(tools, "kubectl get cm").splitlines()[1].split()[:2] == ["settings", "2"]


def test_kubectl_describes_the_texts(tools: EpisodeTools) -> None:
    described = kubectl(tools, "kubectl describe cm settings")
    assert 'flags.json:\n----\n{\n "slow": "off"\n}' in described
    assert "level:\n----\ndebug" in described


def test_an_object_has_its_texts_of_then_and_lists_leave_them_out(tools: EpisodeTools) -> None:
    now = tools.call("get_object", {"kind": "ConfigMap", "name": "settings"}).text
    assert "level: debug" in now
    left_s = (tools.clock.now_ns - START) / SECOND - 11.5
    before = tools.call("get_object", {"kind": "ConfigMap", "name": "settings", "seconds_ago": left_s}).text
    assert "level: info" in before
    listed = tools.call("list_objects", {"kind": "ConfigMap"}).text
    assert "digest" in listed
    assert "slow" not in listed


def test_what_was_not_recorded_is_not_made_up(write_episode) -> None:
    tools = EpisodeTools(EpisodeView(write_episode("c1", start_ns=START, objects=[row(1, "a", None)])))
    for command in ("kubectl get cm settings -o yaml", "kubectl describe cm settings"):
        assert tools.call("kubectl", {"command": command}).status == "not_recorded"
