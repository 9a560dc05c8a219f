"""Undoing and removing what a dead collector has left on a cluster."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.apps import load_app
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.api.namespaces import (
    APP_NAMESPACE,
    INJECTOR,
    is_abandoned,
    ours,
    remove_namespaces,
    remove_volumes,
)
from faultset.collector.platforms.kubernetes.api.objects import DEFINITION, remove_unused
from faultset.collector.platforms.kubernetes.app_objects import AppObjects
from faultset.collector.platforms.kubernetes.chaos_mesh.lifecycle import remove_all

INJECTOR_NOTE = "injector"
"""Note in the journal of an episode whose disturbances another injector than our own makes."""


def recover_episode(api: Api, path: Path) -> None:
    """Undo what an episode did to an application that is not ours, and remove the namespaces that it made.

    What was changed in a namespace of ours goes with it. Impairments by agents end by themselves, with their lease;
    experiments of Chaos Mesh are removed, lest their finalizers hold the namespace.
    """
    if not path.exists():
        return
    journal = Journal(path)
    try:
        notes = {record["verb"]: record["args"] for record in journal.records if record["state"] == "note"}
        if "namespaces" not in notes:
            return
        namespaces = notes["namespaces"]
        if INJECTOR_NOTE in notes:
            remove_all(api, namespaces["control"])
        if namespaces["made"]:
            remove_namespaces(api, (namespaces["app"], namespaces["control"]))
            remove_volumes(api, namespaces["app"])
            if namespaces.get("definition"):
                remove_unused(api, namespaces["definition"])
            return
        plan = notes["plan"]
        AppObjects(load_app(plan.get("app_file") or plan["app"]), journal, api, namespaces["app"]).undo()
        remove_namespaces(api, (namespaces["control"],))
    finally:
        journal.close()


def remove_orphans(api: Api) -> list[str]:
    """Remove namespaces of ours that have had no heartbeat for a while, with what they alone used; return names."""
    removed = []
    for namespace in ours(api):
        if is_abandoned(namespace):
            name = namespace["metadata"]["name"]
            if INJECTOR in namespace["metadata"]["labels"]:
                remove_all(api, name)
            remove_namespaces(api, (name,))
            labels = namespace["metadata"]["labels"]
            remove_volumes(api, labels.get(APP_NAMESPACE, name))
            removed.append(f"namespace {name}")
            if DEFINITION in labels and remove_unused(api, labels[DEFINITION]):
                removed.append(f"definition {labels[DEFINITION]}")
    return removed
