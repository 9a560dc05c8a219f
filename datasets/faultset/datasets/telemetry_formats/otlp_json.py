"""Values, attributes and ids in OTLP's JSON format, in both directions."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

SPAN_KIND_NUMBERS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
STATUS_NUMBERS = {"unset": 0, "ok": 1, "error": 2}
SEVERITY_NUMBERS = {"trace": 1, "debug": 5, "info": 9, "warning": 13, "error": 17, "fatal": 21}
"""First of the four numbers of each level."""
OUR_SERVICE = "faultset.service"
"""Attribute of our export with the workload, which may be empty or differ from the name that the process reports."""
OUR_FIELDS = "faultset."
"""Prefix of fields of our format for which OpenTelemetry has no name."""
OUR_EVENTS = "faultset.table."
"""Prefix of the names of events that hold rows of our tables."""
EVENT_NAME = "event.name"
_KINDS = {number: kind for kind, number in SPAN_KIND_NUMBERS.items()}
_STATUSES = {number: status for status, number in STATUS_NUMBERS.items()}
_HEX = re.compile(r"[0-9a-fA-F]+")
_SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])")
_T = TypeVar("_T")


def get_field(record: Mapping[str, Any], name: str) -> Any:
    """Return a field by its name in camel case; some programs write snake case.

    >>> get_field({"start_time_unix_nano": "7"}, "startTimeUnixNano")
    '7'
    """
    value = record.get(name)
    return value if value is not None else record.get(_SNAKE.sub(r"_\1", name).lower())


def read_attributes(pairs: Any) -> dict[str, Any]:
    """Return a list of keys and values as a mapping; a plain mapping is returned as it is."""
    if isinstance(pairs, Mapping):
        return dict(pairs)
    if not isinstance(pairs, list):
        return {}
    return {
        str(pair["key"]): read_value(pair.get("value"))
        for pair in pairs
        if isinstance(pair, Mapping) and pair.get("key") is not None
    }


def read_value(value: Any) -> Any:
    """Return a value as plain JSON data; numbers that are not finite become text."""
    if not isinstance(value, Mapping):
        return value
    for name, content in value.items():
        match name.replace("_", "").lower():
            case "stringvalue" | "boolvalue":
                return content
            case "intvalue":
                return read_int(content)
            case "doublevalue":
                number = read_float(content)
                return number if number is not None and math.isfinite(number) else str(content)
            case "arrayvalue":
                items = content.get("values") if isinstance(content, Mapping) else content
                return [read_value(item) for item in items or ()]
            case "kvlistvalue":
                return read_attributes(content.get("values") if isinstance(content, Mapping) else content)
            case "bytesvalue":
                return content
    return None if not value else {str(name): read_value(item) for name, item in value.items()}


def _read_number(value: Any, kind: Callable[[Any], _T]) -> _T | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        return None


def read_int(value: Any) -> int | None:
    """Return an integer, which JSON may hold as text; None for other values."""
    return _read_number(value, int)


def read_float(value: Any) -> float | None:
    """Return a number, which JSON may hold as text; None for other values."""
    return _read_number(value, float)


def read_id(value: Any, width: int) -> str:
    """Return a trace or span id as lower-case hex digits; empty if it is missing or zero.

    Parameters
    ----------
    width
        Number of bytes, which distinguishes Base64 (of protobuf's JSON) from hex digits.

    >>> read_id("5B8EFFF798038103D269B633813FC60C", 16), read_id("Sc130fnc2TY=", 8)
    ('5b8efff798038103d269b633813fc60c', '49cd77d1f9dcd936')
    """
    text = "" if value is None else str(value).strip()
    if len(text) == -(-width // 3) * 4 and not (_HEX.fullmatch(text) and len(text) == 2 * width):
        with contextlib.suppress(binascii.Error, ValueError):
            text = base64.b64decode(text, validate=True).hex()
    text = text.lower() if _HEX.fullmatch(text) else text
    return "" if not text.strip("0") else text


def read_kind(value: Any) -> str:
    """Return the kind of a span from its number or name.

    >>> read_kind(2), read_kind("SPAN_KIND_CLIENT"), read_kind("Server"), read_kind(None)
    ('server', 'client', 'server', 'internal')
    """
    if isinstance(value, str) and not value.isdecimal():
        kind = value.rpartition("SPAN_KIND_")[2].lower()
        return kind if kind in SPAN_KIND_NUMBERS else "internal"
    return _KINDS.get(read_int(value) or 0, "internal")


def read_status(value: Any) -> str:
    """Return the status of a span from its number or name."""
    if isinstance(value, str) and not value.isdecimal():
        status = value.rpartition("STATUS_CODE_")[2].lower()
        return status if status in STATUS_NUMBERS else "unset"
    return _STATUSES.get(read_int(value) or 0, "unset")


def encode_attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping as keys and values, without missing values."""
    return [{"key": key, "value": encode_value(value)} for key, value in facts.items() if value is not None]


def encode_value(value: Any) -> dict[str, Any]:
    """Return plain JSON data as a value."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": encode_attributes(value)}}
    if isinstance(value, Iterable):
        return {"arrayValue": {"values": [encode_value(item) for item in value]}}
    return {"stringValue": json.dumps(value)}
