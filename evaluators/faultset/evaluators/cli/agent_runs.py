"""`faultset agents score`: tables of imported runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import command, json_option
from faultset.core.output import show_json, show_records
from faultset.core.printable import count_text

if TYPE_CHECKING:
    from faultset.agents import ScoredRun
    from faultset.evaluators.agent_runs import AgentRow
    from faultset.evaluators.scoring.intervals import Estimate

_COLUMNS = {
    "agent": "agent",
    "model": "model",
    "task": "task",
    "runs": "runs",
    "recorded": "recorded",
    "success": "rescored",
    "without_harness_errors": "without harness errors",
    "control": "control",
    "detection": "detected / false alarms",
    "agreement": "agreement",
    "steps": "steps",
    "prompt_tokens": "prompt tokens",
    "statuses": "statuses",
}


@command("score", short_help="Score imported runs against their source's labels.")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def score_agents(folder: Path, as_json: bool) -> None:
    """Score the runs in FOLDER, written by "faultset agents import", with one table per source.

    Shows the result that the source recorded and the result by the source's current labels, with 95 % intervals over
    problems. Runs with a harness error count as misses in one column and are left out in the next. Results of different
    sources are not comparable.

    \b
    Example:
      faultset agents score runs/
    """
    from faultset.agents import score_runs
    from faultset.evaluators.agent_runs import find_result_differences, summarise_agents
    from faultset.evaluators.leaderboards.formats import to_json

    scored = score_runs(folder)
    rows, differences = summarise_agents(scored), find_result_differences(scored)
    if as_json:
        show_json(
            {
                "rows": to_json(rows),
                "differences": to_json(differences),
                "runs": [_run_to_json(result) for result in scored],
            }
        )
        return
    for source in dict.fromkeys(row.source for row in rows):
        source_rows = [row for row in rows if row.source == source]
        versions = sorted({version for row in source_rows for version in row.label_versions})
        title = f"{source}: labels {'; '.join(versions)}" if versions else f"{source}: no labels"
        show_records([_format_row(row) for row in source_rows], columns=_COLUMNS, title=title)
        for difference in differences:
            if difference.source == source:
                more = f" and {len(difference.runs) - 3} more" if len(difference.runs) > 3 else ""
                names = f"{', '.join(difference.runs[:3])}{more}"
                runs = count_text(len(difference.runs), "run")
                click.echo(f"Differs from the recorded result in {runs}: {difference.reason} ({names})")
    failed_runs = [result.run for result in scored if result.run.status == "harness_error"]
    if failed_runs:
        click.echo("Harness errors:")
        for run in failed_runs:
            click.echo(f"  {run.run}: {run.status_reason}")


def _format_row(row: AgentRow) -> dict[str, Any]:
    detection = (
        "" if row.task != "detection" else f"{_format_counts(row.detected)} / {_format_counts(row.false_alarms)}"
    )
    return {
        "agent": row.agent,
        "model": row.model,
        "task": row.task,
        "runs": row.runs,
        "recorded": _format_counts(row.recorded),
        "success": _format_interval(row.success),
        "without_harness_errors": _format_interval(row.success_without_harness_errors),
        "control": f"{row.control} {_format_counts(row.control_success)}".strip() if row.control else "",
        "detection": detection,
        "agreement": f"{row.agree}/{row.compared}" if row.compared else "-",
        "steps": row.steps,
        "prompt_tokens": row.prompt_tokens,
        "statuses": ", ".join(f"{count} {status}" for status, count in row.statuses.items()),
    }


def _format_counts(estimate: Estimate) -> str:
    return f"{estimate.k:.4g}/{estimate.n}" if estimate.known and estimate.k is not None else "-"


def _format_interval(estimate: Estimate) -> str:
    if not estimate.known:
        return "-"
    bounds = f" [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]" if estimate.interval_known else ""
    return f"{_format_counts(estimate)} = {100 * estimate.value:.2f} %{bounds}"


def _run_to_json(result: ScoredRun) -> dict[str, Any]:
    run = result.run
    return {
        "run": run.run,
        "format": run.format,
        "agent": run.agent,
        "model": run.model,
        "episode": run.episode,
        "task": run.task,
        "status": run.status,
        "status_reason": run.status_reason,
        "answer": run.answer,
        "recorded_success": result.truth.recorded_success,
        "success": result.success,
        "value": result.value,
        "parts": dict(result.parts),
        "label_version": result.truth.label_version,
        "difference": result.difference,
    }
