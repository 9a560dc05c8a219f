"""Agents with a model in an evaluation: nothing is paid twice, no key is written, and budgets hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from faultset.agents.models.openai_server import ModelServer
from faultset.agents.runs.storage import read_runs
from faultset.core.errors import PlatformError, UsageError
from faultset.evaluators import evaluate
from faultset.evaluators.agent_evaluation.choice import AgentSettings
from faultset.evaluators.evaluation import Evaluation
from tests.agents.chat_server import ChatServer, Script, Scripted, chat_server, failed, said

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
KEY = "sk-a-key-of-a-test"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)


def blames_geo(body: dict[str, Any], number: int) -> Scripted:
    """Look once, then blame geo, whatever is seen."""
    name = next(t["function"]["name"] for t in body["tools"] if t["function"]["name"].startswith("submit"))
    if len(body["messages"]) < 4:
        return said("look", ("kubectl", {"command": "kubectl get pods"}))
    answer: dict[str, Any] = {"fault": True}
    if name == "submit_all":
        answer |= {"services": ["geo"], "system_level": "application", "fault_type": "code defect"}
    return said("", (name, answer))


def evaluated(
    script: Script, out: Path | None, prices: Path | None = None, trials: int = 1, **settings: Any
) -> tuple[Evaluation, int]:
    with chat_server(script) as server:
        return asked_of(server, out, prices, trials, **settings)


def asked_of(
    server: ChatServer,
    out: Path | None,
    prices: Path | None = None,
    trials: int = 1,
    scheduler: str | None = None,
    **settings: Any,
) -> tuple[Evaluation, int]:
    before = len(server.requests)
    address = ModelServer(model="tiny", base_url=server.base_url, key_variable="TEST_MODEL_KEY", first_wait_s=0.01)
    chosen = AgentSettings(trials=trials, server=address, prices=prices, **settings)
    agents = ["gpt-w-shell"]
    where: dict[str, Any] = {"workers": 1} if scheduler is None else {"scheduler": scheduler}
    done = evaluate(SAMPLE, ["spot", "max-z"], alarm="spot", agents=agents, agent_settings=chosen, out=out, **where)
    return done, len(server.requests) - before


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.json"
    price = {"as_of": "2026-01-01", "prompt": 1000, "completion": 10_000}
    file.write_text(json.dumps({"models": {"tiny": price}}))
    return file


def test_an_agent_with_a_model_is_of_kind_agent_in_every_table(tmp_path: Path, prices: Path) -> None:
    done, count = evaluated(blames_geo, tmp_path / "out", prices)
    lines = [e for t in done.tables for e in t.entries if e.baseline == "gpt-w-shell (tiny)"]
    assert {entry.kind for entry in lines} == {"agent"}
    assert len(lines) == 10
    runs = read_runs(tmp_path / "out" / "agent-runs")
    assert (len(runs), count) == (24, 48)
    assert sum(run.cost_usd or 0 for run in runs) == pytest.approx(48 * (100 * 1000 + 10 * 10_000) / 1e6)


def test_nothing_is_paid_twice_and_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    closed = [True]

    def closes(body: dict[str, Any], number: int) -> Scripted:
        return failed(401, "the account was closed") if closed[0] and number >= 20 else blames_geo(body, number)

    with chat_server(closes) as server:
        with pytest.raises(PlatformError, match=r"refuses the key in TEST_MODEL_KEY.*the same command goes on"):
            asked_of(server, tmp_path / "out")
        replies = tmp_path / "out" / "agent-runs" / "replies"
        assert sum(len(file.read_text().splitlines()) for file in replies.iterdir()) == 20
        closed[0] = False
        done, count = asked_of(server, tmp_path / "out")
        assert count == 28
        again, nothing = asked_of(server, tmp_path / "out")
    assert nothing == 0
    assert [t.entries[0].metrics for t in again.tables] == [t.entries[0].metrics for t in done.tables]


@pytest.mark.slow
def test_nothing_is_paid_twice_on_the_workers_of_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster

    closed = [True]

    def closes(body: dict[str, Any], number: int) -> Scripted:
        return failed(401, "the account was closed") if closed[0] and number >= 20 else blames_geo(body, number)

    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1", "processes": True}
    with LocalCluster(n_workers=1, threads_per_worker=2, **options) as cluster, chat_server(closes) as server:
        address = vars(cluster)["scheduler"].address
        with Client(address, set_as_default=False) as client:
            client.run(os.chdir, "/")
        with pytest.raises(PlatformError, match="the same command goes on"):
            asked_of(server, Path("out"), scheduler=address)
        replies = tmp_path / "out" / "agent-runs" / "replies"
        assert sum(len(file.read_text().splitlines()) for file in replies.iterdir()) == 20
        closed[0] = False
        assert asked_of(server, Path("out"), scheduler=address)[1] == 28
        assert asked_of(server, Path("out"), scheduler=address)[1] == 0


def test_workers_that_cannot_keep_what_they_pay_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    # as a worker on another machine answers
    monkeypatch.setattr(Client, "run", lambda *_: {"tcp://elsewhere:1": False})
    with chat_server(blames_geo) as server:
        with pytest.raises(PlatformError, match=r"tcp://elsewhere:1 does not see the results in .*choose an --out"):
            asked_of(server, tmp_path / "out")
        assert server.requests == []


def test_the_key_is_in_no_file_and_no_setting(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def repeats_the_key(body: dict[str, Any], number: int) -> Scripted:
        return failed(400, f"bad request with {KEY}") if number % 5 == 4 else blames_geo(body, number)

    done, _ = evaluated(repeats_the_key, tmp_path / "out")
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    assert KEY not in repr(done.settings)
    assert KEY not in "".join(capfd.readouterr())


def test_no_attempt_is_begun_when_the_budget_is_spent(tmp_path: Path, prices: Path) -> None:
    done, count = evaluated(blames_geo, tmp_path / "out", prices, max_cost_usd=1.0)
    assert count < 48
    left_out = [row for row in done.rows if row.status == "cost_limit"]
    assert left_out
    assert "1.0 US dollars were spent" in left_out[0].reason
    asked = {(r.episode, r.task, r.protocol) for r in done.rows if r.protocol in ("detected", "oracle")}
    scored = {(r.episode, r.task, r.protocol) for r in done.rows if r.baseline == "gpt-w-shell (tiny)"}
    assert scored == asked


@pytest.mark.slow
def test_what_was_paid_for_counts_whatever_the_budget_of_the_next_evaluation(tmp_path: Path, prices: Path) -> None:
    with chat_server(blames_geo) as server:
        first, paid = asked_of(server, tmp_path / "out", prices, max_cost_usd=1.0)
        again, more = asked_of(server, tmp_path / "out", prices, max_cost_usd=0.1)
    assert paid
    assert more == 0
    assert [(run.run, run.answer) for run in again.agent_runs] == [(run.run, run.answer) for run in first.agent_runs]


def test_costs_of_an_unknown_model_cannot_be_limited() -> None:
    with pytest.raises(UsageError, match='nobody knows what "tiny" costs'):
        AgentSettings(server=ModelServer(model="tiny"), max_cost_usd=1.0)


def test_an_agent_that_needs_a_model_asks_for_one() -> None:
    with pytest.raises(UsageError, match="name it with --model"):
        evaluate(SAMPLE, ["spot", "max-z"], agents=["react"], workers=1)
