"""Agents of other distributions: their code cannot read the dataset, and however it ends, there is a status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from faultset.agents.interface.session import AgentSession
from faultset.agents.models.openai_server import ModelServer, OpenAIModel
from faultset.agents.registry import reference_agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.run import run_agent
from faultset.agents.runs.record import AgentRun
from faultset.core.landlock import landlock_version
from faultset.datasets import open_dataset
from faultset.evaluators.agent_evaluation.guests import GuestAgent, is_guest
from tests.agents.chat_server import chat_server, in_turn, said

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODE = "a5edb68659bc"
MODULE = """
import os, time

class Guest:
    title, version, kind = "a guest", "1", "agent"
    needs_model = stochastic = False
    def __init__(self):
        self.name = self.registered

class Looks(Guest):
    registered = "looks"
    def act(self, attempt):
        attempt.call("list_objects", {"kind": "Pod"})
        attempt.call("submit_localization", {"services": ["geo"]})
        assert attempt.answered

class Asks(Guest):
    registered = "asks"
    needs_model = True
    def act(self, attempt):
        reply = attempt.ask([{"role": "user", "content": "which?"}], attempt.problem.tools)
        attempt.call(reply.calls[0].name, reply.calls[0].arguments)

class Peeks(Guest):
    registered = "peeks"
    def act(self, attempt):
        for folder in ("FOLDER/episodes/EPISODE/truth", "FOLDER/episodes/EPISODE/telemetry", "FOLDER"):
            try:
                names = os.listdir(folder)
                open(os.path.join(folder, names[0]), "rb").read()
            except OSError:
                continue
            raise RuntimeError("read " + folder)
        raise RuntimeError("nothing read, and " + str(os.environ.get("TEST_MODEL_KEY")))

class Hangs(Guest):
    registered = "hangs"
    def act(self, attempt):
        time.sleep(1000)

class Dies(Guest):
    registered = "dies"
    def act(self, attempt):
        os._exit(7)

class Scribbles(Guest):
    registered = "scribbles"
    def act(self, attempt):
        attempt._requests.send_bytes(b"[1, 2")
        time.sleep(1000)

class Loops(Guest):
    registered = "loops"
    def act(self, attempt):
        while True:
            try:
                attempt.call("wait", {"seconds": 1})
            except Exception:
                raise
"""
NAMES = ("looks", "asks", "peeks", "hangs", "dies", "scribbles", "loops")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    info = tmp_path / "guests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guests\nVersion: 1.0\n")
    points = "\n".join(f"{name} = guest_agents:{name.title()}" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[faultset.agents]\n{points}\n")
    text = MODULE.replace("FOLDER", str(SAMPLE)).replace("EPISODE", EPISODE)
    (tmp_path / "guest_agents.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TEST_MODEL_KEY", "sk-secret")
    yield
    sys.modules.pop("guest_agents", None)


def ran(name: str, *, silence_s: float = 60.0, model: OpenAIModel | None = None) -> AgentRun:
    dataset = open_dataset(SAMPLE)
    session = AgentSession(dataset[EPISODE].tools(), "localization")
    folder = str(SAMPLE / "episodes" / EPISODE)
    guest = GuestAgent(inner=reference_agent(name), episode=folder, silence_s=silence_s)
    return run_agent(guest, session, AttemptLimits(steps=5), model=model).run


def test_only_agents_of_other_distributions_are_guests() -> None:
    assert is_guest("looks")
    assert not is_guest("scripted")


def test_a_guest_uses_tools_and_answers_over_its_pipe() -> None:
    run = ran("looks")
    assert (run.status, run.answer, run.tool_calls) == ("ok", {"services": ["geo"], "ordered": True}, 2)


def test_a_guest_asks_the_model_without_having_the_key() -> None:
    with chat_server(in_turn(said("", ("submit_localization", {"services": ["rate"]})))) as server:
        address = ModelServer(model="m", base_url=server.base_url, key_variable="TEST_MODEL_KEY")
        run = ran("asks", model=OpenAIModel(address))
    assert (run.status, run.answer) == ("ok", {"services": ["rate"], "ordered": True})
    assert server.authorizations == ["Bearer sk-secret"]


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_guest_can_read_no_file_of_the_dataset_and_no_key() -> None:
    run = ran("peeks")
    assert run.status == "harness_error"
    assert "nothing read, and None" in run.status_reason


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("hangs", "timeout", "no word from the agent's code for 3 s"),
        ("dies", "harness_error", "ended with code 7"),
        ("scribbles", "harness_error", "something else than a request"),
        ("loops", "step_limit", "5 calls without an answer"),
    ],
)
def test_a_guest_that_does_not_answer_ends_in_a_status_and_leaves_no_process(
    name: str, status: str, words: str
) -> None:
    before = {*psutil.Process().children()}
    run = ran(name, silence_s=3.0)
    assert run.status == status
    assert words in run.status_reason
    assert not {*psutil.Process().children()} - before
