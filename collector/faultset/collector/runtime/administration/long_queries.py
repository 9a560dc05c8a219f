"""What keeps a store from answering anybody else for a while, again and again: locks, and long queries."""

from __future__ import annotations

import time
from pathlib import Path

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.background.processes import IsWanted, begin_work

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
"""Compares so many pairs of documents, as a join without an index does."""

_FIRST_PAIRS, _MOST_PAIRS = 5_000, 20_000_000


def begin_locking(access: StoreAccess, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
    """Begin to hold everything in the store locked for a time, again and again; return at once."""

    def lock(is_wanted: IsWanted) -> None:
        client = access.administrator()
        while is_wanted():
            client.execute_command("CLIENT", "PAUSE", on_ms)
            time.sleep((on_ms + off_ms) / 1000)

    begin_work(lock, workers=1, seconds=seconds, pid_file=pid_file)


def begin_reporting(access: StoreAccess, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
    """Begin to run a query that takes all of the server's time for a while, again and again; return at once."""

    def report(is_wanted: IsWanted) -> None:
        client, pairs = access.administrator(), _FIRST_PAIRS
        while is_wanted():
            begun = time.monotonic()
            client.eval(_COMPARE_PAIRS, 0, str(pairs))
            took_ms = 1000 * (time.monotonic() - begun)
            # no clock is to be had inside the query, so that its length is found by trying
            pairs = min(_MOST_PAIRS, max(_FIRST_PAIRS, round(pairs * min(4.0, on_ms / took_ms))))
            time.sleep(off_ms / 1000)

    begin_work(report, workers=1, seconds=seconds, pid_file=pid_file)
