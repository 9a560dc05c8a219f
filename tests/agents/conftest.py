from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

START_S = 1_755_700_000.0
"""In August 2025: the old grammar, and labels before their changes."""


def said(call: str) -> str:
    """A message of an AIOpsLab agent with one action."""
    return f"I look.\n```\n{call}\n```"


def session_document(
    *messages: str, problem_id: str = "misconfig_app_hotel_res-detection-1", replies: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    trace: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        trace.append({"role": "assistant", "content": message})
        reply = replies[place] if place < len(replies) else "1" if "submit(" in message else "some output"
        trace.append({"role": "env", "content": reply})
    document = {
        "agent": "shell",
        "session_id": "5a1d0f5e-0000-4000-8000-000000000001",
        "problem_id": problem_id,
        "start_time": START_S,
        "end_time": START_S + 30,
        "trace": trace,
        "results": {"steps": len(messages), "in_tokens": 10, "out_tokens": 5},
    }
    return document | more


Session = Callable[..., Path]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Write an AIOpsLab session made of messages, and return its file."""

    def write(*messages: str, name: str = "one.json", **more: Any) -> Path:
        folder = tmp_path / "sessions"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(session_document(*messages, **more), indent=4))
        return folder / name

    return write
