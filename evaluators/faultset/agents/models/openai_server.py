"""A server that speaks OpenAI's chat completions: requests with patience, replies that may be malformed."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from faultset.agents.models.contract import FailureKind, Message, ModelFailure, ModelReply
from faultset.agents.models.replies import reply_of
from faultset.core.errors import UsageError
from faultset.core.printable import printable

OPENAI = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
_ATTEMPTS = 6
_LONGEST_WAIT_S = 120.0
_CONNECT_S = 15.0
_MOST_BYTES = 16 << 20
_RETRIED = frozenset({408, 409, 425, 429})
_CONTEXT = re.compile(r"context[ _]length|maximum context|context window|too many tokens|prompt is too long", re.I)
_TOOLS = re.compile(r"\btools?\b[^.]*(?:not support|unsupported|unrecognized|unknown|not allowed|does not)|"
                    r"(?:not support|unsupported|unrecognized|unknown)[^.]*\btools?\b", re.I)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelServer:
    """Which model at which server. The key is no part of it: it is read from the environment when it is needed."""

    model: str
    base_url: str = OPENAI
    key_variable: str = KEY_VARIABLE
    """Name of the environment variable that holds the key."""
    first_wait_s: float = field(default=1.0, compare=False)
    """Before the second attempt; it doubles from there."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f'"{self.base_url[:80]}" is no address of a server; give for instance {OPENAI}')
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UsageError(
                "the address of the server holds more than scheme, host and path; keys come from the environment "
                f"alone, by {self.key_variable} or --key-variable"
            )
        if not self.model.strip():
            raise UsageError("the name of the model is empty; give one that the server knows")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_variable):
            raise UsageError("--key-variable takes the name of an environment variable, not a key")


def model_server(model: str | None, base_url: str | None = None, key_variable: str | None = None) -> ModelServer | None:
    """Return the server that options name, which are None where they were not given; None without a model.

    Raises
    ------
    UsageError
        Options say where the model is, and not which one.
    """
    if model is None:
        if base_url or key_variable:
            raise UsageError("--base-url and --key-variable say where the model is; name it with --model")
        return None
    return ModelServer(model=model, base_url=base_url or OPENAI, key_variable=key_variable or KEY_VARIABLE)


class _Key(AuthBase):
    """Sends the key, and keeps requests from taking another one from a netrc file."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class _Again(Exception):
    """An attempt that another one may follow, after so many seconds where the server says how many."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class OpenAIModel:
    """A model at a server; see `faultset.agents.models.contract.ChatModel`."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._url = f"{server.base_url.rstrip('/')}/chat/completions"
        self._key = os.environ.get(server.key_variable, "").strip()
        self._session = requests.Session()

    @property
    def name(self) -> str:
        return self._server.model

    def reply(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, time_limit_s: float) -> ModelReply:
        """See `ChatModel.reply`. Streaming is off; overload, broken connections and silence are tried again."""
        body: dict[str, Any] = {"model": self._server.model, "messages": list(messages), "stream": False}
        if tools:
            body |= {"tools": list(tools), "tool_choice": "auto"}
        deadline = time.monotonic() + max(time_limit_s, 0.0)
        wait_s, problem = self._server.first_wait_s, "there was no time to ask it"
        for attempt in range(_ATTEMPTS):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            started = time.monotonic()
            try:
                content = self._sent(body, left_s)
                return reply_of(content, time.monotonic() - started)
            except _Again as again:
                problem = str(again)
                pause_s = min(wait_s, _LONGEST_WAIT_S) if again.after_s is None else again.after_s
                if pause_s > deadline - time.monotonic() or pause_s > _LONGEST_WAIT_S:
                    problem = f"{problem}, and the next attempt could only be in {pause_s:g} s"
                    break
                if attempt < _ATTEMPTS - 1:
                    time.sleep(pause_s)
                wait_s *= 2
        raise self._failure("server", f"gave no reply: {problem}")

    def _sent(self, body: Mapping[str, Any], left_s: float) -> Mapping[str, Any]:
        """Return the content of one response."""
        limit_s = time.monotonic() + left_s
        timeout = (min(_CONNECT_S, left_s), max(left_s, 0.001))
        try:
            with self._session.post(
                self._url, json=body, auth=_Key(self._key), timeout=timeout, stream=True, allow_redirects=False
            ) as response:
                content = bytearray()
                for piece in response.iter_content(1 << 16):
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise self._failure("request", f"answered with more than {_MOST_BYTES >> 20} MiB")
                    if time.monotonic() > limit_s:
                        raise _Again("it was too slow")
                return self._content(response, bytes(content))
        except requests.Timeout:
            raise _Again("it did not answer in time") from None
        except (requests.RequestException, UnicodeError) as error:
            raise _Again(f"{type(error).__name__} at {urlsplit(self._url).netloc}") from None

    def _content(self, response: requests.Response, raw: bytes) -> Mapping[str, Any]:
        code = response.status_code
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if code == 200:
            if isinstance(found, dict) and isinstance(found.get("choices"), list) and found["choices"]:
                return found
            raise _Again("its response holds no choices")
        text = _error_text(found, raw)
        if code in (401, 403) or "insufficient_quota" in text:
            raise self._failure("refused_key", f"refuses the key in {self._server.key_variable} ({code}: {text})")
        if code in _RETRIED or code >= 500:
            raise _Again(f"{code}: {self._public(text)}", _retry_after_s(response.headers.get("Retry-After")))
        if code == 404:
            raise self._failure("unknown_model", f'does not know "{self._server.model}" or its path ({code}: {text})')
        kind: FailureKind = "context" if _CONTEXT.search(text) else "no_tools" if _TOOLS.search(text) else "request"
        raise self._failure(kind, f"refuses a request ({code}: {text})")

    def _failure(self, kind: FailureKind, text: str) -> ModelFailure:
        return ModelFailure(kind, f"the model server {urlsplit(self._url).netloc} {self._public(text)}")

    def _public(self, text: str) -> str:
        """Return a text without the key, which servers repeat in their errors."""
        return text.replace(self._key, "***") if self._key else text


def _error_text(found: Any, raw: bytes) -> str:
    error = found.get("error", found) if isinstance(found, dict) else None
    parts = [error.get("message"), error.get("code")] if isinstance(error, dict) else [error]
    text = " ".join(str(part) for part in parts if part) or raw[:200].decode("utf-8", "replace")
    return printable(" ".join(text.split()))[:300] or "no reason"


def _retry_after_s(value: str | None) -> float | None:
    """Read the header Retry-After: seconds, or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
