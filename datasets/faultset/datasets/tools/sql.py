"""Run SQL over the tables of a view in a sandboxed DuckDB: without files, settings or writes, and with limited
memory."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.datasets.format.schemas import time_column
from faultset.datasets.kubectl.printing import (
    ToolAnswer,
    answer_empty,
    answer_invalid,
    answer_not_recorded,
    answer_ok,
    answer_refused,
    format_folded_table,
)
from faultset.datasets.tools.recording import VisibleTables

MAX_ROWS = 200
_TIMEOUT_S = 5.0
_HIDDEN_TABLES = frozenset({"requests"})
_INTERNALS = re.compile(
    r"duckdb_\w+|pragma_\w+|current_setting|getenv|which_secret|information_schema|pg_\w+|sqlite_\w+|python_\w+|"
    r"arrow_scan\w*|pandas_scan|getvariable|system|query|query_table|json_execute_serialized_sql|from_substrait\w*",
    re.IGNORECASE,
)
"""Functions, tables and schemas that expose DuckDB itself or run SQL from a string."""
_NAME_KEYS = ("function_name", "table_name", "schema", "schema_name", "catalog", "catalog_name")
"""Keys of DuckDB's syntax tree with the names of functions, tables, schemas and catalogs."""
_CLOCKS = {
    "TIMESTAMP": ("now", "get_current_timestamp", "transaction_timestamp", "current_localtimestamp"),
    "DATE": ("today", "current_date"),
    "TIME": ("get_current_time", "current_localtime"),
}
"""Functions that return the current time; DuckDB maps `current_timestamp` and `localtimestamp` to them."""
_SANDBOX: dict[str, Any] = {
    "threads": 1,
    "memory_limit": "256MB",
    "temp_directory": "",
    "secret_directory": "/nonexistent",
    "extension_directory": "/nonexistent",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_LOCKED = (
    "home_directory='/nonexistent'",
    "python_enable_replacements=false",
    "enable_external_access=false",
    "lock_configuration=true",
)
"""Settings to apply after the tables are registered."""


def sql_is_installed() -> bool:
    """Return whether the extra that `query` needs is installed."""
    return find_spec("duckdb") is not None


def query(recording: VisibleTables, sql: str) -> ToolAnswer:
    """Run one SELECT over the tables of a recording up to its current time, which `now()` returns; times are UTC."""
    import duckdb

    tables = [name for name in recording.view.tables if name not in _HIDDEN_TABLES]
    used = [name for name in tables if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
    for name in used:
        if not recording.has(name):
            return answer_not_recorded(f"the table {name}")
    connection = duckdb.connect(":memory:", config=_SANDBOX)
    try:
        return _answer(connection, recording, sql, used, tables)
    except duckdb.Error as error:
        reason = " ".join(str(error).split())[:300]
        if isinstance(error, duckdb.InterruptException):
            reason = f"the query took longer than {_TIMEOUT_S:g} s; query less data"
        return answer_invalid(reason)
    except (UnicodeError, OverflowError, ValueError):
        return answer_invalid("the query or its result contains text or numbers that cannot be shown")
    finally:
        connection.close()


def _answer(connection: Any, recording: VisibleTables, sql: str, used: list[str], tables: list[str]) -> ToolAnswer:
    import duckdb

    statements = connection.extract_statements(sql)
    [(text,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    tree = json.loads(text)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT or tree["error"]:
        return answer_refused("only a single SELECT is allowed; tables are " + ", ".join(tables))
    if any(_INTERNALS.fullmatch(name) for name in _called_names(tree)):
        return answer_refused("only the tables of the recording can be queried; they are " + ", ".join(tables))
    for name in used:
        connection.register(name, _read_rows(recording, name))
    _set_clock(connection, recording.clock.now_ns)
    for setting in _LOCKED:
        connection.execute(f"SET {setting}")
    timer = threading.Timer(_TIMEOUT_S, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(statements[0])
        columns = [column[0] for column in result.description]
        rows = result.fetchmany(MAX_ROWS + 1)
    finally:
        timer.cancel()
    if not rows:
        return answer_empty("the query has no result")
    text = format_folded_table(columns, rows[:MAX_ROWS], repeats_once=True)
    if len(rows) > MAX_ROWS:
        text += f"\n# more than {MAX_ROWS} rows; aggregate, or use LIMIT and OFFSET"
    return answer_ok(text)


def _called_names(node: Any) -> Iterator[str]:
    """Yield the names of all functions, tables, schemas and catalogs below a node of a syntax tree."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in _NAME_KEYS and isinstance(value, str):
                yield value
            else:
                yield from _called_names(value)
    elif isinstance(node, list):
        for item in node:
            yield from _called_names(item)


def _set_clock(connection: Any, now_ns: int) -> None:
    """Replace all functions that return or use the current time."""
    now = f"make_timestamp({now_ns // 1_000})"
    for kind, names in _CLOCKS.items():
        for name in names:
            connection.execute(f"CREATE MACRO {name}() AS CAST({now} AS {kind})")
    connection.execute(f"CREATE MACRO age(a) AS system.main.age({now}, a), (a, b) AS system.main.age(a, b)")


def _read_rows(recording: VisibleTables, name: str) -> pa.Table:
    if name == "metrics":
        rows = recording.view.table(name).drop_columns(["episode"])
        is_past = pc.less(rows["time"].cast(pa.int64()), recording.clock.now_ns)  # type: ignore[attr-defined]
        rows = rows.filter(is_past)
    else:
        rows = recording.table(name)
    index = rows.column_names.index(time_column(name))
    return rows.set_column(index, time_column(name), rows[time_column(name)].cast(pa.int64()).cast(pa.timestamp("ns")))
