"""The steps that only a TiDB cluster needs."""

from __future__ import annotations

from faultset.collector.apps.tidb.placement import AllocateTimestamp, FindRegion, RegisterStore
from faultset.collector.apps.tidb.storage import AccessRows, SendHeartbeat
from faultset.collector.apps.tidb.transactions import ChangeRows, SelectRow, SumRows

STEPS = (AllocateTimestamp, FindRegion, RegisterStore, SendHeartbeat, AccessRows, SelectRow, SumRows, ChangeRows)
"""All steps of this application."""
