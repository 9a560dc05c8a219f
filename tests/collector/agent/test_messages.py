"""Every message to and from a node agent survives its way, and what is no message is refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.messages import AGENT_MESSAGES, AgentMessage, KillContainer, ReadNode, read_message

EXAMPLES = {
    "str": "a",
    "str | None": "b",
    "tuple[str, ...]": ("c", "d"),
    "float": 1.5,
    "int": 7,
    "bool": True,
    "dict[str, Any]": {"kind": "loss", "probability": 0.1},
}
KINDS = AGENT_MESSAGES.values()


@pytest.mark.parametrize("kind", KINDS, ids=AGENT_MESSAGES)
def test_every_message_survives_its_way(kind: type[AgentMessage]) -> None:
    message = kind(**{one.name: EXAMPLES[str(one.type)] for one in fields(kind)})
    assert read_message(kind, json.loads(json.dumps(message.as_record()))) == message


@pytest.mark.parametrize("kind", KINDS, ids=AGENT_MESSAGES)
@pytest.mark.parametrize("record", [[], 7, None, {"unknown_field": 1}])
def test_what_is_no_message_is_refused(kind: type[AgentMessage], record: object) -> None:
    with pytest.raises(AgentError, match=kind.__name__):
        read_message(kind, record)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if fields(kind)], ids=lambda kind: kind.__name__)
def test_a_field_of_another_type_is_named(kind: type[AgentMessage]) -> None:
    for one in fields(kind):
        record = {other.name: EXAMPLES[str(other.type)] for other in fields(kind)} | {one.name: object()}
        with pytest.raises(AgentError, match=f"^{one.name} is needed, as "):
            read_message(kind, record)


def test_a_field_without_a_default_is_needed() -> None:
    with pytest.raises(AgentError, match="container_id is needed, as a text; found None"):
        read_message(KillContainer, {"pod_uid": "u"})


def test_truth_values_of_a_query_are_texts() -> None:
    assert read_message(ReadNode, {"reset": "true"}).reset
    assert not read_message(ReadNode, {}).reset


def test_requests_have_paths_of_their_own() -> None:
    paths = [(kind.method, kind.path) for kind in KINDS if kind.path]
    assert len(paths) == len(set(paths)) == 9
