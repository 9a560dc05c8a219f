"""The persona of a TiDB cluster: the unified log format of tidb, tikv and pd, and the messages of grpc-go."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from types import MappingProxyType

from faultset.collector.apps.tidb.operations import COMMIT, PREWRITE, READ, ROLL_BACK, SUM, TIMESTAMP
from faultset.collector.apps.tidb.operator import serve
from faultset.collector.runtime.http.status import GoErrorTexts, RpcError
from faultset.collector.runtime.persona import Event, Line, Persona, Program
from faultset.collector.runtime.signals import Level, RequestHistogram

_LEVELS: dict[Level, str] = {
    "trace": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "fatal": "FATAL", "panic": "FATAL",
}  # fmt: skip

_LINES: dict[Event, tuple[Line, ...]] = {
    "starting": (Line("info", "{location}:211", "Welcome to {service}"),),
    "opening-store": (Line("info", "{location}:302", "open the engine, engine {store}"),),
    "login-failed": (Line("error", "{location}:310", "failed to open the engine, error {error}"),),
    "filling-failed": (Line("error", "{location}:318", "failed to prepare the engine, error {error}"),),
    "store-ready": (Line("info", "{location}:322", "engine is open, engine {store}"),),
    "serving": (Line("info", "{location}:418", "server is running, port {port}"),),
    "port-taken": (Line("fatal", "{location}:420", "failed to listen, port {taken_port}, error {error}"),),
}


def _doubling_from(lowest_s: float, count: int) -> tuple[float, ...]:
    return tuple(lowest_s * 2**power for power in range(count))


_HISTOGRAMS = {
    # pkg/metrics/server.go of TiDB
    "tidb": RequestHistogram(
        "tidb_server_handle_query_duration_seconds",
        "Time of handling queries.",
        "sql_type",
        {"/account/{id}": "Select", "/branch/{id}/total": "Select", "/deposit": "Update", "/transfer": "Commit"},
        _doubling_from(0.0005, 29),
    ),
    # src/server/metrics.rs of TiKV
    "tikv": RequestHistogram(
        "tikv_grpc_msg_duration_seconds",
        "Time of handling gRPC messages.",
        "type",
        {
            READ: "kv_batch_get",
            SUM: "coprocessor",
            PREWRITE: "kv_prewrite",
            COMMIT: "kv_commit",
            ROLL_BACK: "kv_batch_rollback",
        },
        _doubling_from(0.00005, 22),
    ),
    # server/metrics.go of PD
    "pd": RequestHistogram(
        "pd_server_handle_tso_duration_seconds",
        "Time of handling requests for timestamps.",
        "group",
        {TIMESTAMP: "default"},
        _doubling_from(0.0005, 13),
    ),
}


class TidbPersona(GoErrorTexts, Persona):
    """Lines as `[time] [LEVEL] [file:line] ["text"]`."""

    lines = MappingProxyType(_LINES)
    programs: Mapping[str, Program] = MappingProxyType({"tidb-operator": serve})
    login_pause_s = 1.0
    request_histograms = MappingProxyType(_HISTOGRAMS)
    request_level: Level = "info"
    """Like `tidb_general_log`, which logs every statement."""

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', time.gmtime(time_s))}.{int(time_s * 1000) % 1000:03d} +00:00"
        return f"[{stamp}] [{_LEVELS[level]}] [{location}] [{json.dumps(message)}]"

    def format_failure(self, error: RpcError) -> str:
        """Return the text that a client of MySQL's protocol would see."""
        is_formatted = error.description.startswith("ERROR ")
        return error.description if is_formatted else f"ERROR 1105 (HY000): {error}"

    def call_timed_out(self, timeout_s: float) -> str:
        return "context deadline exceeded"


PERSONA = TidbPersona()
