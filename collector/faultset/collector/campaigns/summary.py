"""What `collect` prints at its end: every episode with its verdict, how often the tests fired in vain, what is next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from faultset.collector.campaigns.campaign import Result
from faultset.collector.plans.plan import Plan
from faultset.core.console import show_records
from faultset.datasets.format.truth import read_evidence

SECOND = 1_000_000_000


def _seconds(label: Mapping[str, Any], end: str, start: str) -> str:
    begin, finish = label.get(start), label.get(end)
    if begin is None or finish is None:
        return ""
    return f"{(_ns(finish) - _ns(begin)) / SECOND:.1f}"


def _ns(value: Any) -> int:
    return value if isinstance(value, int) else int(value.value)


def print_summary(
    root: Path,
    version: str,
    plans: Sequence[Plan],
    results: Sequence[Result],
    labels: Mapping[str, Mapping[str, Any]],
    wall_s: float,
) -> None:
    """Print the table of episodes and where the dataset is."""
    ended = {result.plan.episode: result for result in results}
    rows = []
    for plan in sorted(plans, key=lambda p: (p.fault is None, p.fault or p.no_fault_kind or "", p.target or "")):
        label = labels.get(plan.episode, {})
        failure = ended[plan.episode].outcome.failure if plan.episode in ended else "not run"
        rows.append(
            {
                "episode": plan.episode,
                "fault": plan.fault or "none",
                "target": plan.target or plan.no_fault_kind,
                "verdict": "failed" if failure else label.get("verdict"),
                "manifest after s": _seconds(label, "first_manifest", "inject_start"),
                "healthy again after s": _seconds(label, "healthy_again", "recover_start"),
                "why": failure,
            }
        )
    columns = [name for name in rows[0] if name != "why" or any(row["why"] for row in rows)]
    show_records(rows, columns=columns)
    click.echo(_false_alarms(root, labels))
    done = len(labels)
    click.echo(f"{done} of {len(plans)} episodes in {wall_s / 60:.1f} min; dataset {root}, version {version}")
    if done:
        click.echo(f"next: evaluate {root}")


def _false_alarms(root: Path, labels: Mapping[str, Mapping[str, Any]]) -> str:
    healthy = [episode for episode, label in labels.items() if label["fault"] is None]
    fired = {"sli": 0, "latent": 0}
    windows = 0
    for episode in healthy:
        evidence = read_evidence(root / "episodes" / episode)
        fired["sli"] += bool(evidence.loc[evidence["check"] == "sli", "passed"].any())
        latent = evidence.loc[evidence["check"] == "latent", "passed"]
        fired["latent"] += int(latent.sum())
        windows += len(latent)
    return (
        f"on {len(healthy)} no-fault episodes the SLI test fired {fired['sli']} times "
        f"and the latent test on {fired['latent']} of {windows} services"
    )
