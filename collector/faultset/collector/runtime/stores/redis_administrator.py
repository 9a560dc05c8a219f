"""The administrator of stores that run on Redis."""

from __future__ import annotations

import hashlib
import json
import resource
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from faultset.collector.runtime.processes import ShouldContinue, begin_work
from faultset.collector.runtime.stores.driver import AdminAction, StoreAccess, StoreAdministrator
from faultset.collector.runtime.stores.users import open_file_sizes
from faultset.core.errors import PlatformError

ADMINISTRATOR = "root"
UNREADABLE = '{"order_id": '
_TIMEOUT_S = 10.0
_MISSING_KEY = "faultset:none"
"""Key that exists in no store."""
_COMPARE_PAIRS = """
local documents = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local found = {}
  if kind == 'hash' then found = redis.call('HVALS', key)
  elseif kind == 'list' then found = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then found = redis.call('ZRANGE', key, 0, -1)
  elseif kind == 'string' then found = {redis.call('GET', key)} end
  for _, document in ipairs(found) do documents[#documents + 1] = document end
end
local equal = 0
for pair = 1, #documents > 0 and tonumber(ARGV[1]) or 0 do
  local first, second = documents[pair % #documents + 1], documents[(pair * 7919) % #documents + 1]
  if first:lower() == second then equal = equal + 1 end
end
return equal
"""
"""Script that compares ARGV[1] pairs of documents, like a join without an index."""
_FIRST_PAIRS, _MAX_PAIRS = 5_000, 20_000_000


class RedisAdministrator(StoreAdministrator):
    """See `StoreAdministrator`.

    Parameters
    ----------
    rights
        Rights of the application's account, as arguments of `ACL SETUSER`.
    """

    system = "redis"

    def __init__(self, access: StoreAccess, rights: Sequence[str]):
        super().__init__(access)
        self._rights = rights

    @contextmanager
    def as_administrator(self, purpose: str) -> Iterator[redis.Redis]:
        """Yield a client with the administrator's account; raise PlatformError if the server refuses a request."""
        with self._client(ADMINISTRATOR, self.access.credentials.administrator, purpose) as client:
            yield client

    @contextmanager
    def as_application(self, purpose: str) -> Iterator[redis.Redis]:
        """Yield a client with the application's account; raise PlatformError if the server refuses a request."""
        with self._client(self.access.account, self.access.credentials.application, purpose) as client:
            yield client

    @contextmanager
    def _client(self, account: str, password: str, purpose: str) -> Iterator[redis.Redis]:
        address, port = self.access.address, self.access.port
        client = redis.Redis(
            host=address,
            port=port,
            username=account,
            password=password,
            protocol=2,
            decode_responses=True,
            socket_timeout=_TIMEOUT_S,
        )
        try:
            yield client
        except (redis.RedisError, OSError) as error:
            raise PlatformError(f"the store at {address}:{port} refused to {purpose}: {error}") from None
        finally:
            client.close()

    def perform(self, action: AdminAction) -> None:
        """Run the Redis command of an action, and save changes of accounts."""
        account = self.access.account
        with self.as_administrator(action) as client:
            exists = account in client.acl_users()
            if action == "create-account" and exists:
                return
            self.require_account(action, exists)
            command = self._build_command(action)
            client.execute_command(*command)
            if command[0] == "ACL":
                client.execute_command("ACL", "SAVE")

    def _build_command(self, action: AdminAction) -> tuple[str, ...]:
        account, password = self.access.account, digest(self.access.credentials.application)
        match action:
            case "grant-rights":
                return ("ACL", "SETUSER", account, *self._rights)
            case "revoke-rights":
                return ("ACL", "SETUSER", account, "-@all")
            case "revoke-writing":
                return ("ACL", "SETUSER", account, "-@write")
            case "revoke-consuming":
                return ("ACL", "SETUSER", account, "-xreadgroup", "-xautoclaim")
            case "create-account":
                return ("ACL", "SETUSER", account, "reset", "on", password, *self._rights)
            case "remove-account":
                return ("ACL", "DELUSER", account)
            case "require-password":
                return ("ACL", "SETUSER", account, "resetpass", digest(secrets.token_hex()))
            case "set-password":
                return ("ACL", "SETUSER", account, "resetpass", password)
            case "empty-store":
                return ("FLUSHALL",)

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Repeatedly pause all clients."""

        def work(should_continue: ShouldContinue) -> None:
            with self.as_administrator("lock") as client:
                while should_continue():
                    client.execute_command("CLIENT", "PAUSE", on_ms)
                    time.sleep((on_ms + off_ms) / 1000)

        begin_work(work, workers=1, seconds=seconds, pid_file=pid_file)

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Repeatedly compare documents in a script, which blocks all other clients."""

        def work(should_continue: ShouldContinue) -> None:
            with self.as_administrator("report") as client:
                pairs = _FIRST_PAIRS
                while should_continue():
                    start_s = time.monotonic()
                    client.eval(_COMPARE_PAIRS, 0, str(pairs))
                    duration_ms = 1000 * (time.monotonic() - start_s)
                    # scripts cannot measure time, so adjust the number of pairs to the last duration
                    pairs = min(_MAX_PAIRS, max(_FIRST_PAIRS, round(pairs * min(4.0, on_ms / duration_ms))))
                    time.sleep(off_ms / 1000)

        begin_work(work, workers=1, seconds=seconds, pid_file=pid_file)

    def limit_files(self, leave: int) -> None:
        """Limit the growth of the append-only file to `leave` bytes; raise PlatformError if there is no such file."""
        pid = self._server_pid()
        sizes = open_file_sizes(pid, ".aof")
        if not sizes:
            raise PlatformError(
                "the store writes no file that could be limited; choose a store that keeps its data on a volume"
            )
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(sizes) + leave, hard))

    def free_files(self) -> None:
        """Restore the file size limit that the server started with."""
        pid = self._server_pid()
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def _server_pid(self) -> int:
        with self.as_administrator("report its process") as client:
            return int(client.info("server")["process_id"])

    def publish_unreadable(self, stream: str) -> None:
        """Add a message with truncated JSON to a stream."""
        with self.as_administrator("publish-unreadable") as client:
            client.xadd(stream, {"body": UNREADABLE})
            client.incr(f"{stream}:published")

    def remove_unreadable(self, stream: str) -> None:
        """Delete the unreadable messages of a stream."""
        with self.as_administrator("remove-unreadable") as client:
            if identities := _list_unreadable_messages(client, stream):
                client.xdel(stream, *identities)

    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Report what the server refuses, by trying commands that change nothing."""
        limit, hard = resource.prlimit(self._server_pid(), resource.RLIMIT_FSIZE)
        consume_command = ("XREADGROUP", "GROUP", "none", "none", "COUNT", "1", "STREAMS", _MISSING_KEY, ">")
        with self.as_application("state") as application, self.as_administrator("state") as administrator:
            state: dict[str, Any] = {
                "write_refused": _find_refusal(application, "DEL", _MISSING_KEY),
                "consume_refused": _find_refusal(application, *consume_command),
                "file_limit": None if limit == hard else limit,
                "file_write": administrator.info("persistence").get("aof_last_write_status", "ok"),
            }
            if stream is not None:
                state["unreadable"] = len(_list_unreadable_messages(administrator, stream))
        return state


def digest(password: str) -> str:
    """Return the digest of a password for Redis' list of accounts."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _find_refusal(client: redis.Redis, *command: str) -> str:
    """Return why a command is refused; empty if it is allowed."""
    try:
        client.execute_command(*command)
    except redis.ResponseError as error:
        return "" if str(error).startswith("NOGROUP") else str(error)
    return ""


def _list_unreadable_messages(client: redis.Redis, stream: str) -> list[str]:
    entries: Any = client.xrange(stream) or []
    return [identity for identity, fields in entries if fields and not is_readable(fields.get("body", "{}"))]


def is_readable(body: str) -> bool:
    """Return whether the body of a message is valid JSON.

    >>> is_readable('{"order_id": "1"}'), is_readable("{order")
    (True, False)
    """
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
