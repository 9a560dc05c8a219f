"""Feature flags of a service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.runtime.context import FlagValues, follow_flags
from faultset.collector.runtime.environment import MOUNTS, WatchedText
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.spec.features import format_flags, set_variant

APP = load_app("astronomy")
assert APP.flags is not None
SETTINGS = APP.flags


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MOUNTS, json.dumps({SETTINGS.folder: str(tmp_path)}))
    lines: list[str] = []
    values = FlagValues(SETTINGS, lines.append)
    values.read_file()
    assert values.value("paymentFailure") == 0.0
    file = tmp_path / SETTINGS.file
    for variant, expected in (("100%", 1.0), ("50%", 0.5)):
        file.write_text(set_variant(format_flags(SETTINGS), "paymentFailure", variant))
        values.read_file()
        values.read_file()
        assert values.value("paymentFailure") == expected
    file.write_text("{ half of a file")
    values.read_file()
    assert values.value("paymentFailure") == 0.5
    assert "is invalid, keeping the previous values" in lines.pop()
    assert set(lines) == {"the flag file has changed and was read again"}
    assert len(lines) <= 2
    file.unlink()
    values.read_file()
    assert values.value("paymentFailure") == 0.5


def test_a_silent_provider_leaves_what_was_known_last() -> None:
    values = FlagValues(SETTINGS)
    answers: list[Any] = [{"adFailure": True}, RpcError(Code.UNAVAILABLE, "gone"), asyncio.CancelledError()]

    async def ask(provider: str, operation: str) -> Any:
        assert (provider, operation) == ("flagd", "/flagd.evaluation.v1.Service/ResolveAll")
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    fast = APP.model_copy(update={"flags": SETTINGS.model_copy(update={"poll_s": 0.001})})
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(follow_flags(fast, "ad", values, ask))
    assert not answers
    assert values.value("adFailure") is True
    assert values.value("adHighCpu") is False


def test_a_text_is_none_while_there_is_no_file(tmp_path: Path) -> None:
    text = WatchedText(tmp_path / "a")
    assert text.read() is None
    (tmp_path / "a").write_text("x")
    assert text.read() == "x"
