"""The HTML report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.evaluators.leaderboards import wording, writing
from faultset.evaluators.leaderboards.records import HEADLINE, Leaderboard, Table
from faultset.evaluators.reports import figures
from faultset.evaluators.reports.episodes import drawings
from faultset.evaluators.reports.facts import KIND_ORDER, facts_of
from faultset.evaluators.reports.machine import machine
from faultset.evaluators.rows import ResultRow

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec

_FAILURES_SHOWN = 200


def write_report(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    specs: Sequence[BaselineSpec],
    dataset: Path,
    path: Path,
    *,
    now: datetime | None = None,
) -> None:
    """Write one page that needs nothing else: no script, no fonts, no network.

    Parameters
    ----------
    dataset
        Dataset folder, for the telemetry of the episodes that are drawn.
    now
        Time stamp of the page; the current time by default.
    """
    path.write_text(render(board, rows, specs, dataset, now=now), encoding="utf-8")


def render(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    specs: Sequence[BaselineSpec],
    dataset: Path,
    *,
    now: datetime | None = None,
) -> str:
    """Return the report as HTML."""
    from jinja2 import Environment, StrictUndefined

    source = resources.files("faultset.evaluators.reports")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"number": wording.number, "interval": wording.interval, "counts": wording.counts}
    environment.globals |= {"seconds": wording.seconds, "against": writing.against, "p_value": wording.p_value}
    environment.globals |= {"mebibytes": wording.mebibytes}
    template = environment.from_string((source / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        css=(source / "page.css").read_text(encoding="utf-8"),
        **_content(board, rows, specs, dataset, now or datetime.now(UTC)),
    )


def _content(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    specs: Sequence[BaselineSpec],
    dataset: Path,
    now: datetime,
) -> dict[str, Any]:
    facts = facts_of(rows)
    headline = [table for table in board.tables if table.verdict == HEADLINE]
    return {
        "board": board,
        "facts": writing.facts(board),
        "detection": [_detection(table, facts) for table in headline if table.task == "detection"],
        "localization": [_localization(table) for table in headline if table.task == "localization"],
        "others": [table for table in board.tables if table.verdict != HEADLINE],
        "columns_of": writing.columns_of,
        "tiles": _tiles(board, rows),
        "heats": figures.heats(facts),
        "drawings": drawings(board, facts, dataset),
        "failures": board.failures[:_FAILURES_SHOWN],
        "more_failures": max(0, len(board.failures) - _FAILURES_SHOWN),
        "cards": _cards(specs, rows),
        "provenance": _provenance(board, rows, now),
        "strata_names": facts.ordered({n for stratum in board.strata for n in stratum.ac1}),
        "kinds": facts.kinds,
    }


def _detection(table: Table, facts: Any) -> dict[str, Any]:
    lines, longest = figures.delays(facts, table)
    return {
        "table": table,
        "forests": [figures.forest(table, name) for name in ("balanced_accuracy", "event_recall")],
        "points": figures.tradeoff(table),
        "grid": [(figures.inset(n / 4), f"{25 * n} %") for n in range(5)],
        "delays": lines,
        "longest": longest,
        "ticks": [(25 * i, f"{longest * i / 4:.0f} s") for i in range(5)],
    }


def _localization(table: Table) -> dict[str, Any]:
    return {"table": table, "forests": [figures.forest(table, name) for name in ("ac1", "avg5")]}


def _tiles(board: Leaderboard, rows: Sequence[ResultRow]) -> list[dict[str, str]]:
    counts = board.counts
    tiles = [
        {
            "title": "episodes",
            "value": str(sum(counts.values())),
            "text": f"{counts['manifest']} manifest, {counts['latent']} latent, {counts['silent']} silent, "
            f"{counts['no fault']} without a fault",
        },
        {
            "title": "answers",
            "value": f"{len(rows):,}",
            "text": f"of {len({row.baseline for row in rows})} methods and controls; {len(board.failures)} failed",
        },
    ]
    tiles += [_best(table) for table in board.tables if table.verdict == HEADLINE and table.group == "telemetry"]
    return tiles[:5]


def _best(table: Table) -> dict[str, str]:
    metric = table.metrics[0]
    real = [entry for entry in table.entries if entry.kind != "control"]
    best = (real or list(table.entries))[0]
    estimate = best.metrics[metric.name]
    level = [entry.baseline for entry in real if entry.place == best.place and entry is not best]
    name = best.baseline + (f" and {len(level)} more" if level else "")
    control = next((e for e in table.entries if e.baseline == table.strongest_control), None)
    text = f"{name} {wording.interval(estimate, metric)}"
    if control is not None:
        text += f"; best control {control.baseline} {wording.number(control.metrics[metric.name].value, metric)}"
    told = f", {table.protocol}" if table.task == "localization" else ""
    return {
        "title": f"best {metric.title}{told}",
        "value": wording.number(estimate.value, metric),
        "text": text,
    }


def _cards(specs: Sequence[BaselineSpec], rows: Sequence[ResultRow]) -> list[dict[str, Any]]:
    cards = []
    order = {kind: i for i, kind in enumerate(KIND_ORDER)}
    for spec in sorted(specs, key=lambda spec: (spec.task, order.get(spec.kind, 9), spec.name)):
        own = [row.cpu_seconds for row in rows if row.baseline == spec.name and row.cpu_seconds is not None]
        cards.append(
            {
                "spec": spec,
                "seconds": wording.seconds(sorted(own)[len(own) // 2] if own else float("nan")),
                "needs": ", ".join(sorted(spec.needs)) or "nothing beyond telemetry",
                "tables": ", ".join(spec.tables) or "none",
            }
        )
    return cards


def _provenance(board: Leaderboard, rows: Sequence[ResultRow], now: datetime) -> list[tuple[str, str]]:
    seeds = sorted({row.seed for row in rows})
    facts = [
        ("dataset", board.dataset),
        ("version", board.version),
        ("sha256 of the version", board.digest or "unknown"),
        ("split", board.split),
        ("phase lengths", ", ".join(f"{n} {name}" for name, n in sorted(board.profiles.items()))),
        ("code", board.code),
        ("seeds", ", ".join(map(str, seeds))),
        ("written", now.strftime("%Y-%m-%d %H:%M UTC")),
    ]
    facts += list(machine().items())
    facts += sorted(board.libraries.items())
    settings = {key: value for key, value in board.settings.items() if key != "split"}
    return [*facts, ("settings", json.dumps(settings, sort_keys=True))]
