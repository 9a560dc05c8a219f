"""The client of chat completions: patient with servers, and never a traceback or a key in what it says."""

from __future__ import annotations

import pytest

from faultset.agents.models.contract import ModelFailure, ModelReply
from faultset.agents.models.openai_server import ModelServer, OpenAIModel
from faultset.core.errors import UsageError
from tests.agents.chat_server import Script, Scripted, chat_server, failed, in_turn, said

ASKED = [{"role": "user", "content": "hello"}]
KEY = "sk-a-key-of-a-test"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)


def asked(script: Script, time_limit_s: float = 20.0) -> tuple[ModelReply, int, list[str | None]]:
    with chat_server(script) as server:
        model = OpenAIModel(
            ModelServer(model="m", base_url=server.base_url, key_variable="TEST_MODEL_KEY", first_wait_s=0.01)
        )
        reply = model.reply(ASKED, [], time_limit_s=time_limit_s)
        return reply, len(server.requests), server.authorizations


def failure(script: Script, time_limit_s: float = 20.0) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        asked(script, time_limit_s)
    return caught.value


def test_a_reply_holds_text_calls_and_the_tokens_that_the_server_counted() -> None:
    reply, count, authorizations = asked(in_turn(said("hm", ("get_logs", {"a": 1}), ("wait", "{bad"), cached=60)))
    assert (reply.text, [(c.name, c.arguments) for c in reply.calls]) == (
        "hm",
        [("get_logs", '{"a": 1}'), ("wait", "{bad")],
    )
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (100, 60, 10)
    assert (count, authorizations) == (1, [f"Bearer {KEY}"])


@pytest.mark.parametrize(
    "first",
    [
        failed(429, "slow down", Retry_After="0.05"),
        failed(500, "broken"),
        failed(503, "busy", Retry_After="Thu, 01 Jan 1970 00:00:00 GMT"),
        Scripted(body=b"<html>"),
        Scripted(body={"choices": []}),
        Scripted(body=b"\xff\xfe"),
    ],
    ids=["429", "500", "date", "html", "no choices", "no text"],
)
def test_what_may_pass_is_tried_again(first: Scripted) -> None:
    reply, count, _ = asked(in_turn(first, said("there")))
    assert (reply.text, count) == ("there", 2)


def test_a_server_that_stays_broken_ends_in_one_sentence_after_six_attempts() -> None:
    caught = failure(in_turn(failed(500, "broken\nin two lines")))
    assert caught.kind == "server"
    assert "gave no reply: 500: broken in two lines" in str(caught)


def test_a_server_that_wants_to_be_left_alone_for_an_hour_is_not_waited_for() -> None:
    assert "could only be in 3600 s" in str(failure(in_turn(failed(429, "quota", Retry_After="3600"))))


def test_a_server_that_hangs_is_given_up_when_the_time_is_over() -> None:
    caught = failure(in_turn(Scripted(body={}, delay_s=1.0)), time_limit_s=0.3)
    assert "did not answer in time" in str(caught)


def test_nobody_at_the_address_is_one_sentence() -> None:
    model = OpenAIModel(ModelServer(model="m", base_url="http://127.0.0.1:9/v1", first_wait_s=0.001))
    with pytest.raises(ModelFailure, match=r"127\.0\.0\.1:9 gave no reply: ConnectionError"):
        model.reply(ASKED, [], time_limit_s=5)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (failed(400, "This model's maximum context length is 8192 tokens"), "context"),
        (failed(400, "this model does not support tools"), "no_tools"),
        (failed(400, "temperature must be a number"), "request"),
        (failed(404, "The model `m` does not exist"), "unknown_model"),
        (failed(401, f"Incorrect API key provided: {KEY}"), "refused_key"),
        (failed(429, "You exceeded your quota: insufficient_quota"), "refused_key"),
        (Scripted(code=302, body={}, headers={"Location": "http://127.0.0.1:1/"}), "request"),
    ],
    ids=["context", "tools", "request", "model", "key", "quota", "redirect"],
)
def test_what_will_not_pass_is_said_at_once_and_without_the_key(response: Scripted, kind: str) -> None:
    served: list[int] = []

    def script(body: dict[str, object], number: int) -> Scripted:
        served.append(number)
        return response

    caught = failure(script)
    assert caught.kind == kind
    assert KEY not in str(caught)
    assert served == [0]


def test_malformed_parts_of_a_reply_are_left_out() -> None:
    message = {
        "content": [{"type": "text", "text": "a"}, 5, {"type": "image"}],
        "tool_calls": [None, {"function": 3}, {"id": 7, "function": {"name": "wait", "arguments": {"seconds": 1}}}],
    }
    body = {"choices": [{"message": message, "finish_reason": "length"}], "usage": {"prompt_tokens": "many"}}
    reply, _, _ = asked(in_turn(Scripted(body=body)))
    assert (reply.text, reply.calls[0].arguments, reply.cut, reply.prompt_tokens) == ("a", '{"seconds": 1}', True, None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"base_url": "ftp://x"}, "no address of a server"),
        ({"base_url": "https://user:secret@x/v1"}, "keys come from the environment"),
        ({"base_url": "https://x/v1?api_key=secret"}, "keys come from the environment"),
        ({"key_variable": "sk-secret"}, "name of an environment variable"),
        ({"model": " "}, "name of the model is empty"),
    ],
)
def test_an_address_that_holds_a_secret_or_is_none_is_refused_without_repeating_it(
    given: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        ModelServer(**({"model": "m"} | given))  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
