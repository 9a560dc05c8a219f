"""A local server that speaks OpenAI's chat completions and answers as a test's script says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """One response."""

    code: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass
class ChatServer:
    """A running server: its address, and the requests that it got."""

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)


Script = Callable[[dict[str, Any], int], Scripted]
"""Takes the body of a request and its number from 0."""


def said(
    text: str = "", *calls: tuple[str, Any], usage: tuple[int, int] | None = (100, 10), cached: int = 0
) -> Scripted:
    """Return a reply with a text and calls; arguments that are text are sent as they are."""
    made = [
        {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text or None} | ({"tool_calls": made} if made else {})
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if made else "stop"}
    body: dict[str, Any] = {"id": "r", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    if usage is not None:
        details = {"cached_tokens": cached}
        body["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
            "prompt_tokens_details": details,
        }
    return Scripted(body=body)


def failed(code: int, message: str, **headers: str) -> Scripted:
    """Return an error as OpenAI's servers write it."""
    return Scripted(
        code=code, body={"error": {"message": message}}, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


def in_turn(*replies: Scripted) -> Script:
    """Answer one after the other; the last one again and again."""
    return lambda body, number: replies[min(number, len(replies) - 1)]


@contextmanager
def chat_server(script: Script) -> Iterator[ChatServer]:
    """Serve a script on loopback for as long as the block lasts."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(served.requests)
                served.requests.append(body)
                served.authorizations.append(self.headers.get("Authorization"))
            reply = script(body, number) if self.path == "/v1/chat/completions" else failed(404, "no such path")
            time.sleep(reply.delay_s)
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            try:
                self.send_response(reply.code)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = ChatServer(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
