"""The steps that a TiDB cluster needs and no other application."""

from __future__ import annotations

from faultset.collector.apps.tidb.placement import AllocateTimestamp, FindRegion, NoteStore
from faultset.collector.apps.tidb.storage import SendHeartbeat, UseRows
from faultset.collector.apps.tidb.transactions import ChangeRows, SelectRow, SumRows

STEPS = (AllocateTimestamp, FindRegion, NoteStore, SendHeartbeat, UseRows, SelectRow, SumRows, ChangeRows)
"""All of them."""
