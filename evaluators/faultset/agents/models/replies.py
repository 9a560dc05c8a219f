"""Replies of chat completions as they come, and replies that were paid for, kept so that they are paid for once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faultset.agents.models.contract import ChatModel, Message, ModelFailure, ModelReply, RequestedCall
from faultset.agents.trajectories.writing import plain_text
from faultset.core.json_text import canonical_json
from faultset.core.reading.regular_files import read_regular

_MOST_CALLS = 64
_MOST_BYTES = 1 << 28
_MOST_TOKENS = 2**40


def reply_of(content: Mapping[str, Any], seconds: float) -> ModelReply:
    """Return the reply in a response; whatever is malformed in it is left out."""
    choice = content["choices"][0]
    choice = choice if isinstance(choice, dict) else {}
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    usage = content.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return ModelReply(
        text=_text(message.get("content")),
        calls=tuple(_calls(message.get("tool_calls"))),
        reasoning=plain_text(reasoning) if isinstance(reasoning, str) else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        completion_tokens=_count(usage.get("completion_tokens")),
        seconds=round(seconds, 3),
        cut=choice.get("finish_reason") == "length",
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return plain_text("\n".join(part for part in parts if isinstance(part, str)))
    return plain_text(content) if isinstance(content, str) else ""


def _calls(found: Any) -> list[RequestedCall]:
    calls: list[RequestedCall] = []
    for one in found[:_MOST_CALLS] if isinstance(found, list) else ():
        function = one.get("function") if isinstance(one, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str):
            continue
        arguments = function.get("arguments")
        # some servers give an object where the protocol has its text
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        call_id = one.get("id")
        known = {call.call_id for call in calls}
        call_id = call_id if isinstance(call_id, str) and call_id and call_id not in known else f"call_{len(calls)}"
        calls.append(RequestedCall(call_id=plain_text(call_id), name=plain_text(name), arguments=plain_text(text)))
    return calls


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _MOST_TOKENS else None


class KeptReplies:
    """A model whose replies are written to a file as they come, and are taken from it in a run that goes on.

    A request that is not the one that the file has at its place ends what can be used of the file.

    Parameters
    ----------
    inner
        Asked for what the file does not have; None for a replay, in which nothing is asked.
    path
        File of one run.
    """

    def __init__(self, inner: ChatModel | None, path: Path, name: str) -> None:
        self._inner, self._path, self._name = inner, path, name
        self._kept = _read(path)
        self._place = 0

    @property
    def name(self) -> str:
        return self._name

    def reply(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, time_limit_s: float) -> ModelReply:
        """See `ChatModel.reply`."""
        request = canonical_json({"model": self._name, "messages": list(messages), "tools": list(tools)})
        key = hashlib.sha256(request.encode("utf-8", "replace")).hexdigest()
        if self._place < len(self._kept) and self._kept[self._place][0] == key:
            self._place += 1
            return self._kept[self._place - 1][1]
        if self._inner is None:
            raise ModelFailure("server", "nothing more was recorded of the model")
        reply = self._inner.reply(messages, tools, time_limit_s=time_limit_s)
        del self._kept[self._place :]
        self._kept.append((key, reply))
        self._place += 1
        self._write()
        return reply

    def _write(self) -> None:
        """Write the last reply, on disk before it is used; what does not fit to this run is dropped before."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"request": key, **asdict(reply)}) + "\n" for key, reply in self._kept]
        mode = "ab" if self._on_disk() == len(self._kept) - 1 else "wb"
        with self._path.open(mode) as file:
            file.write("".join(lines[-1:] if mode == "ab" else lines).encode())
            file.flush()
            os.fsync(file.fileno())

    def _on_disk(self) -> int:
        """Count whole lines; a file that was cut within one is written anew."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return 0
        return content.count(b"\n") if content.endswith(b"\n") else -1


def _read(path: Path) -> list[tuple[str, ModelReply]]:
    """Return what a file holds up to the first line that cannot be read."""
    if not path.is_file():
        return []
    kept = []
    for line in read_regular(path, limit_bytes=_MOST_BYTES).splitlines():
        try:
            record = json.loads(line)
            key = record.pop("request")
            calls = tuple(RequestedCall(**call) for call in record.pop("calls"))
            kept.append((str(key), ModelReply(calls=calls, **record)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            break
    return kept
