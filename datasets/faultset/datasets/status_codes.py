"""Read the outcome of a call from span attributes, by current and earlier OpenTelemetry conventions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_GRPC_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
GRPC_CODES = {name: number for number, name in enumerate(_GRPC_NAMES)}
_GRPC_SPELLINGS = {name.replace("_", ""): number for name, number in GRPC_CODES.items()} | {"CANCELED": 1}

_HTTP = ("http.response.status_code", "http.status_code", "response_code", "http.response_code")
_RPC = (
    "rpc.response.status_code",
    "rpc.status_code",
    "rpc.grpc.status_code",
    "grpc.status_code",
    "rpc.connect_rpc.error_code",
)
_DATABASE = "db.response.status_code"
_DATABASE_SYSTEMS = ("db.system.name", "db.system")
OUTCOME_ATTRIBUTES = (*_HTTP, *_RPC, _DATABASE)
_OUTCOME_NAMES = frozenset(OUTCOME_ATTRIBUTES)

_HTTP_DATABASES = frozenset({"azure.cosmosdb", "cosmosdb", "couchdb", "elasticsearch", "opensearch"})
"""Databases that use HTTP status codes."""
_DATABASE_SUCCESS = re.compile(r"|0|ok|0[01][0-9a-z]{3}", re.IGNORECASE)
"""In SQLSTATE, class 00 is success and class 01 a warning."""
_CODE_LIMIT = 2**31


class Outcome(NamedTuple):
    """Outcome of a span, and its attributes except repetitions of `status_code`."""

    status: str
    status_code: int | None
    attributes: dict[str, Any]


def read_outcome(status: str, attributes: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a span from its status ("unset", "ok" or "error") and all of its attributes.

    An unset status becomes "error" if an attribute names an error that `status_code` cannot hold, such as an error of a
    database.
    """
    outcome_names = _OUTCOME_NAMES & attributes.keys()
    if not outcome_names:
        return Outcome(status, None, dict(attributes))
    code = read_status_code(attributes)
    repeated_names = {
        name for name in outcome_names if name != _DATABASE and parse_status_code(attributes[name]) == code
    }
    others = {name: value for name, value in attributes.items() if code is None or name not in repeated_names}
    return Outcome("error" if status == "unset" and _names_other_error(attributes) else status, code, others)


def read_status_code(attributes: Mapping[str, object]) -> int | None:
    """Return the HTTP status or the number of the gRPC status, or None.

    If there are several, the first error wins: a failed gRPC call is also an HTTP request with status 200.
    """
    read = (parse_status_code(attributes[name]) for name in (*_HTTP, *_RPC) if name in attributes)
    codes = [code for code in read if code is not None]
    return next((code for code in codes if is_error_code(code)), codes[0] if codes else None)


def read_failure(attributes: Mapping[str, object]) -> bool | None:
    """Return whether the labels of a metric mark failed calls; None if they hold no outcome.

    HTTP status 0 marks calls without a response.
    """
    if _names_other_error(attributes) or any(parse_status_code(attributes.get(name)) == 0 for name in _HTTP):
        return True
    code = read_status_code(attributes)
    if code is not None:
        return bool(is_error_code(code))
    return False if any(name in attributes for name in OUTCOME_ATTRIBUTES) else None


def is_error_code(code: Any) -> Any:
    """Return whether a status code is an error; for an array, whether each is.

    Of HTTP statuses, only server errors count; of gRPC statuses, all except 0.
    """
    return (code >= 500) | ((code > 0) & (code < 100))


def parse_status_code(value: object) -> int | None:
    """Return the code of a number, a numeric text or the name of a gRPC status; None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and not value.isdecimal():
        name = re.sub(r"[\s_]", "", value).upper()
        if name in _GRPC_SPELLINGS:
            return _GRPC_SPELLINGS[name]
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() and 0 <= number < _CODE_LIMIT else None


def _names_other_error(attributes: Mapping[str, object]) -> bool:
    """Return whether an attribute names an error of a database, or of an RPC system other than gRPC."""
    if any(_clean_text(attributes.get(name)) and parse_status_code(attributes[name]) is None for name in _RPC):
        return True
    code = _clean_text(attributes.get(_DATABASE))
    system = next((_clean_text(attributes[name]).lower() for name in _DATABASE_SYSTEMS if name in attributes), "")
    if system in _HTTP_DATABASES and code.isdigit():
        return int(code) >= 400
    return not _DATABASE_SUCCESS.fullmatch(code)


def _clean_text(value: object) -> str:
    return "" if value is None else str(value).strip()
