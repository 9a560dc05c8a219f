"""Undoing and removing what a dead collector has left on a cluster."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.platforms.journal import read_journal
from faultset.collector.platforms.kubernetes.access import Api
from faultset.collector.platforms.kubernetes.namespaces import (
    PAIR,
    is_abandoned,
    ours,
    remove_namespaces,
    remove_volumes,
)


def recover_episode(api: Api, journal: Path) -> None:
    """Remove the namespaces that an episode's journal names.

    What was changed inside of them goes with them.
    """
    if not journal.exists():
        return
    for record in read_journal(journal):
        if record["state"] == "note" and record["verb"] == "namespaces":
            pair = record["args"]
            remove_namespaces(api, (pair["app"], pair["control"]))
            remove_volumes(api, pair["app"])


def remove_strays(api: Api) -> list[str]:
    """Remove namespaces of ours that have shown no sign of life for a while, with their volumes; return names."""
    removed = []
    for namespace in ours(api):
        if is_abandoned(namespace):
            name = namespace["metadata"]["name"]
            remove_namespaces(api, (name,))
            remove_volumes(api, namespace["metadata"]["labels"].get(PAIR, name))
            removed.append(f"namespace {name}")
    return removed
