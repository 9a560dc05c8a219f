"""Print a table of faults and the repairs that worked, from mitigation campaigns.

    python benchmarks/mitigation_table.py FOLDER...

A time runs from the start of the repair until the application stayed healthy. "no" is followed by the failed checks.
An empty field was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from faultset.collector.campaigns.mitigations import Mitigation, read_mitigations
from faultset.collector.mitigation.repairs import REPAIRS


def field_of(attempt: Mitigation | None) -> str:
    """Describe the result of an attempt in a few words."""
    if attempt is None or attempt.result is None:
        return ""
    if attempt.result.success:
        return f"{attempt.result.repair_s:.0f} s"
    return f"no: {', '.join(check.part for check in attempt.result.parts if not check.ok)}"


def lines(attempts: Iterable[Mitigation], repairs: Sequence[str] = REPAIRS) -> list[str]:
    """Return the lines of a Markdown table, one for each fault and target, and the totals."""
    rows: dict[tuple[str, str, str], dict[str, Mitigation]] = {}
    for attempt in attempts:
        key = (attempt.plan.fault or "", attempt.plan.app, attempt.plan.target or "")
        rows.setdefault(key, {})[attempt.order.name] = attempt
    table = [f"| fault | application: target | {' | '.join(repairs)} |", "|---|---|" + "---|" * len(repairs)]
    for (fault, app, target), by_repair in sorted(rows.items()):
        fields = " | ".join(field_of(by_repair.get(name)) for name in repairs)
        table.append(f"| {fault} | {app}: {target} | {fields} |")
    results = {name: [by_repair[name].result for by_repair in rows.values() if name in by_repair] for name in repairs}
    sums = [
        f"{sum(bool(result and result.success) for result in repair_results)} of {len(repair_results)}"
        for repair_results in results.values()
    ]
    return [*table, f"| **repaired** | | {' | '.join(sums)} |"]


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(folders: tuple[Path, ...]) -> None:
    """Print the table."""
    click.echo("\n".join(lines([attempt for folder in folders for attempt in read_mitigations(folder)])))


if __name__ == "__main__":
    main()
