"""Every text of a record changed in the same way, before it is shown where some characters have a meaning."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from faultset.core.printable import printable
from faultset.evaluators.scorers.contract import Metric

_Record = TypeVar("_Record")


def for_markdown(record: _Record) -> _Record:
    """Return a record whose texts are no markup and break no table."""
    return with_texts(record, lambda text: html.escape(printable(text), quote=False).replace("|", "\\|"))


def for_terminal(record: _Record) -> _Record:
    """Return a record whose texts move no cursor and set no colour."""
    return with_texts(record, printable)


def with_texts(record: Any, change: Callable[[str], str]) -> Any:
    """Return a record with every text below it changed; declarations of metrics stay as they are."""
    if isinstance(record, str):
        return change(record)
    if isinstance(record, Metric):
        return record
    if isinstance(record, Mapping):
        return {with_texts(key, change): with_texts(value, change) for key, value in record.items()}
    if isinstance(record, tuple):
        values = [with_texts(value, change) for value in record]
        return type(record)(*values) if hasattr(record, "_fields") else tuple(values)
    if isinstance(record, list):
        return [with_texts(value, change) for value in record]
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = {f.name: with_texts(getattr(record, f.name), change) for f in dataclasses.fields(record) if f.init}
        return dataclasses.replace(record, **fields)
    return record
