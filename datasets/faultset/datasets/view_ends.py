"""Remove telemetry that became available only after the end of a view."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as arrow_compute

from faultset.datasets.format.schemas import TIME, time_column

pc: Any = arrow_compute
# type checkers do not see its functions, which are created at import
UNFINISHED = "unfinished"


def select_available_rows(name: str, table: pa.Table, end_ns: int) -> pa.Table:
    """Return the rows of a table that were available at `end_ns`, UTC nanoseconds.

    Requests that were answered later become unfinished.
    """
    end = pa.scalar(end_ns, type=TIME)
    times = table[time_column(name)]
    table = table.filter(pc.less(times, end))
    if name == "spans":
        ended = pc.add(table["time"].cast(pa.int64()), table["duration_ns"])
        return table.filter(pc.less(ended, end_ns))
    if name != "requests":
        return table
    scheduled = table["scheduled"].cast(pa.int64())
    answered = pc.add(scheduled, pc.fill_null(table["latency_ns"], 0))
    is_late = pc.fill_null(pc.greater_equal(answered, end_ns), False)
    for column in ("latency_ns", "status"):
        table = _replace_column(
            table, column, pc.if_else(is_late, pa.scalar(None, table.schema.field(column).type), table[column])
        )
    table = _replace_column(
        table, "sent", pc.if_else(pc.less(table["sent"], end), table["sent"], pa.scalar(None, TIME))
    )
    outcome = pc.if_else(is_late, UNFINISHED, table["outcome"].cast(pa.string()))
    return _replace_column(table, "outcome", outcome)


def _replace_column(table: pa.Table, column: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    field = table.schema.field(column)
    if pa.types.is_dictionary(field.type):
        encoded = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        values = encoded.cast(field.type.value_type).dictionary_encode()
    return table.set_column(table.schema.get_field_index(column), field, values.cast(field.type))
