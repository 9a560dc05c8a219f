"""Which repair has repaired which fault: a table from the results of mitigation campaigns.

    python benchmarks/mitigation_table.py FOLDER...

A time is that from the begin of the repair until the application stayed healthy, "no" is followed by the parts that
were still wrong, and an empty field was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from faultset.collector.campaigns.mitigations import Mitigation, read_mitigations
from faultset.collector.mitigation.repairs import REPAIRS


def field_of(attempt: Mitigation | None) -> str:
    """Return what came of an attempt in a few words."""
    if attempt is None or attempt.result is None:
        return ""
    if attempt.result.success:
        return f"{attempt.result.repair_s:.0f} s"
    return f"no: {', '.join(part.part for part in attempt.result.parts if not part.ok)}"


def lines(attempts: Iterable[Mitigation], repairs: Sequence[str] = REPAIRS) -> list[str]:
    """Return the lines of a Markdown table, one for each fault and target, with the sums of all."""
    rows: dict[tuple[str, str, str], dict[str, Mitigation]] = {}
    for one in attempts:
        key = (one.plan.fault or "", one.plan.app, one.plan.target or "")
        rows.setdefault(key, {})[one.order.name] = one
    table = [f"| fault | application: target | {' | '.join(repairs)} |", "|---|---|" + "---|" * len(repairs)]
    for (fault, app, target), made in sorted(rows.items()):
        fields = " | ".join(field_of(made.get(name)) for name in repairs)
        table.append(f"| {fault} | {app}: {target} | {fields} |")
    results = {name: [made[name].result for made in rows.values() if name in made] for name in repairs}
    sums = [f"{sum(bool(one and one.success) for one in found)} of {len(found)}" for found in results.values()]
    return [*table, f"| **repaired** | | {' | '.join(sums)} |"]


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(folders: tuple[Path, ...]) -> None:
    """Print the table."""
    click.echo("\n".join(lines([one for folder in folders for one in read_mitigations(folder)])))


if __name__ == "__main__":
    main()
