"""Messages between processes, and processes that were stopped."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
import random
import signal
import subprocess
import time
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

import faultset.collector
from faultset.collector.episodes.messages import (
    EpisodeAssignment,
    EpisodeOutcome,
    PhaseReport,
    decode_message,
    encode_message,
)
from faultset.collector.ipc.channel import (
    InvalidMessage,
    Message,
    Request,
    decode,
    encode,
    encode_error,
    encode_request,
    encode_result,
    message_types,
    read_request,
    read_response,
)
from faultset.collector.ipc.launcher import HelperProcess
from faultset.core.errors import PlatformError

for found in pkgutil.walk_packages(faultset.collector.__path__, "faultset.collector."):
    if found.name.rpartition(".")[2] in ("messages", "episode_load", "impairments"):
        importlib.import_module(found.name)

TYPES = {kind.__name__: kind for kind in message_types() if kind.__module__.startswith("faultset.")}
REQUESTS = {name: kind for name, kind in TYPES.items() if issubclass(kind, Request)}


def example(kind: Any, rng: random.Random) -> Any:
    """Return an example of a field type of messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return next(value for _ in range(100) if _is_valid(kind, value := example(arguments[0], rng)))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: example(hints[name], rng) for name in names})  # type: ignore[operator]
    if origin in (typing.Union, types.UnionType):
        return example(rng.choice(arguments), rng)
    if origin is typing.Literal:
        return rng.choice(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(example(arguments[0], rng) for _ in range(rng.randrange(3)))
    if origin is tuple:
        return tuple(example(one, rng) for one in arguments)
    if origin in (dict, Mapping):
        return {example(arguments[0], rng): example(arguments[1], rng) for _ in range(rng.randrange(3))}
    simple = {
        str: lambda: "".join(rng.choice('aé"\n\u2028 \\') for _ in range(rng.randrange(5))),
        int: lambda: rng.randrange(-(2**63), 2**63),
        float: lambda: rng.choice([0.0, -1.5, 1e300]),
        bool: lambda: rng.random() < 0.5,
        Path: lambda: Path("/a b/c"),
        type(None): lambda: None,
        Any: lambda: "anything",
    }
    return simple[kind]()


def _is_valid(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def test_the_messages_of_every_process_are_registered() -> None:
    expected = {
        "SpawnContainer",
        "ConfigureRelay",
        "WriteSnapshot",
        "ChangeLoad",
        "EpisodeAssignment",
        "ContainerExited",
    }
    assert expected <= TYPES.keys()
    assert len(TYPES) == len([kind for kind in message_types() if kind.__module__.startswith("faultset.")])


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES.keys())
def test_every_message_survives_its_way(kind: type[Message]) -> None:
    rng = random.Random(kind.__name__)
    for _ in range(20):
        message = example(kind, rng)
        line = encode(message)
        assert b"\n" not in line
        assert decode(kind, line) == message


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=REQUESTS.keys())
def test_every_request_and_its_answer_survive_their_way(kind: type[Request[Any]]) -> None:
    rng = random.Random(kind.__name__)
    handlers = {one: lambda request: None for one in REQUESTS.values()}
    for _ in range(20):
        request, answer = example(kind, rng), example(kind.answer_type(), rng)
        assert read_request(encode_request(request), handlers) == request
        assert read_response(request, encode_result(request, answer), "node") == answer


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b'{"unknown_field": 1}', b"\xff\xfe"])
def test_what_is_no_message_is_refused_in_one_sentence(data: bytes) -> None:
    for name, kind in TYPES.items():
        with pytest.raises(InvalidMessage, match=f"the message is not a valid {name}: ") as caught:
            decode(kind, data)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", [b"", b"Nothing {}", b"\xff {}", b"ChangeLoad", b'ChangeLoad {"factor": "2"}'])
def test_a_line_that_is_no_request_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidMessage):
        read_request(line, {REQUESTS["ChangeLoad"]: lambda request: None})


@pytest.mark.parametrize("line", [b"", b"maybe 1", b"result", b'result "2"', b"error 7"])
def test_a_line_that_is_no_answer_is_refused(line: bytes) -> None:
    request = TYPES["ChangeLoad"](factor=1.0)  # type: ignore[call-arg]
    with pytest.raises(InvalidMessage):
        read_response(request, line, "load")  # type: ignore[arg-type]


def test_an_error_of_the_other_process_names_process_request_and_reason() -> None:
    request = TYPES["ChangeLoad"](factor=1.0)  # type: ignore[call-arg]
    with pytest.raises(PlatformError, match=r"^load failed to handle ChangeLoad: ValueError: no such factor$"):
        read_response(request, encode_error(ValueError("no such factor")), "load")  # type: ignore[arg-type]


def test_messages_of_an_episode_are_told_apart_by_their_fields() -> None:
    phase, outcome = PhaseReport(phase="fault"), EpisodeOutcome(episode="e-0001", logs=Path("/tmp/x"))
    for message in (phase, outcome):
        assert decode_message(encode_message(message)) == message
    assert encode_message(outcome).endswith("\n")


def test_values_are_checked_as_strictly_as_messages() -> None:
    assert decode(tuple[int, ...], b"[1,2]") == (1, 2)
    with pytest.raises(InvalidMessage):
        decode(int, b'"1"')


def test_an_assignment_that_lacks_a_field_names_it() -> None:
    with pytest.raises(InvalidMessage, match="plan: field required"):
        decode(EpisodeAssignment, b'{"root": "/x", "parent": 1, "parallel": 1, "settings": {}}')


@pytest.mark.parametrize(
    ("number", "sentence"), [(signal.SIGSTOP, "was stopped by a signal"), (signal.SIGKILL, "ended with code -9")]
)
def test_a_process_that_was_stopped_or_killed_is_named_and_ends(
    number: signal.Signals, sentence: str, tmp_path: Path
) -> None:
    process: Any = HelperProcess("relay", "time:sleep", [], sockets=tmp_path, logs=tmp_path)
    process._process.terminate()
    process._process.wait()
    process._process = subprocess.Popen(["sleep", "60"])
    process.check()
    os.kill(process._process.pid, number)
    time.sleep(0.3)
    with pytest.raises(PlatformError, match=sentence):
        process.check()
    assert process._process.poll() is not None
