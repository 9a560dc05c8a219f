"""Messages of chat models, as lists of OpenAI's shape, as steps of a trajectory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from faultset.agents.trajectories.writing import TrajectoryWriter
from faultset.core.errors import DataError
from faultset.core.printable import quoted

_SPEAKERS = {"system": "system", "developer": "system", "user": "user"}


def add_messages(writer: TrajectoryWriter, messages: Sequence[Any], origin: str) -> None:
    """Add messages to a trajectory; results of tools go to the step that called them.

    Raises
    ------
    DataError
        A message is no object, or of a role that is not known.
    """
    results = {m.get("tool_call_id"): m for m in messages if isinstance(m, dict) and m.get("role") == "tool"}
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            _add_step(writer, message, results)
        elif role in _SPEAKERS:
            writer.said(_SPEAKERS[role], content_text(message.get("content")))
        elif role != "tool":
            raise DataError(f"{origin} has a message of the role {quoted(role)}, which is not known; restore the file")


def _add_step(writer: TrajectoryWriter, message: Mapping[str, Any], results: Mapping[Any, Any]) -> None:
    calls, back, failed = [], [], []
    made = message.get("tool_calls")
    for call in made if isinstance(made, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        calls.append((str(function.get("name", "")), _arguments(function.get("arguments"))))
        key = call.get("id")
        result = results.get(key) if isinstance(key, str) else None
        back.append(content_text(result.get("content")) if result else None)
        failed.append(bool(result and result.get("error")))
    reasoning = message.get("reasoning_content")
    writer.acted(
        content_text(message.get("content")),
        calls=calls,
        results=back,
        errors=failed,
        reasoning=reasoning if isinstance(reasoning, str) else None,
    )


def _arguments(value: Any) -> dict[str, Any]:
    """Return the arguments of a call, which models write as JSON text that may be none."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return {"text": value}
        value = parsed
    return value if isinstance(value, dict) else {"value": value}


def content_text(content: Any) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
