"""Replies are paid for once: what was kept is used again, and what no longer fits is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from faultset.agents.models.contract import Message, ModelFailure, ModelReply, RequestedCall
from faultset.agents.models.replies import KeptReplies


class Counting:
    """Replies with the number of its replies."""

    name = "m"

    def __init__(self) -> None:
        self.asked = 0

    def reply(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, time_limit_s: float) -> ModelReply:
        self.asked += 1
        call = RequestedCall(call_id="1", name="wait", arguments="{}")
        return ModelReply(text=f"{messages[-1]['content']} {self.asked}", calls=(call,), prompt_tokens=5)


def said(model: KeptReplies, *texts: str) -> list[str]:
    return [model.reply([{"role": "user", "content": t}], [], time_limit_s=1).text for t in texts]


def test_a_run_that_goes_on_asks_only_for_what_it_does_not_have(tmp_path: Path) -> None:
    inner, file = Counting(), tmp_path / "deep" / "run.jsonl"
    assert said(KeptReplies(inner, file, "m"), "a", "b") == ["a 1", "b 2"]
    assert said(KeptReplies(inner, file, "m"), "a", "b", "c") == ["a 1", "b 2", "c 3"]
    assert inner.asked == 3
    again = KeptReplies(None, file, "m").reply([{"role": "user", "content": "a"}], [], time_limit_s=1)
    assert (again.calls[0].name, again.prompt_tokens) == ("wait", 5)


def test_what_follows_another_request_is_dropped(tmp_path: Path) -> None:
    inner, file = Counting(), tmp_path / "run.jsonl"
    said(KeptReplies(inner, file, "m"), "a", "b", "c")
    assert said(KeptReplies(inner, file, "m"), "a", "x") == ["a 1", "x 4"]
    assert said(KeptReplies(inner, file, "m"), "a", "x", "c") == ["a 1", "x 4", "c 5"]


@pytest.mark.parametrize("tail", [b'{"request": "abc", "te', b"\x00\xff\n", b"[]\n", b'{"request": 1}\n'])
def test_a_file_that_was_cut_or_damaged_is_used_up_to_there(tmp_path: Path, tail: bytes) -> None:
    inner, file = Counting(), tmp_path / "run.jsonl"
    said(KeptReplies(inner, file, "m"), "a")
    file.write_bytes(file.read_bytes() + tail)
    assert said(KeptReplies(inner, file, "m"), "a", "b") == ["a 1", "b 2"]
    assert said(KeptReplies(None, file, "m"), "a", "b") == ["a 1", "b 2"]


def test_a_replay_asks_nobody(tmp_path: Path) -> None:
    with pytest.raises(ModelFailure, match="nothing more was recorded"):
        said(KeptReplies(None, tmp_path / "none.jsonl", "m"), "a")
