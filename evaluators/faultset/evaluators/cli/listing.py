"""`faultset list baselines` and `faultset list agents`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from faultset.core.console import command, json_option
from faultset.core.output import show_records


@command("baselines", short_help="List the detection, localization and root cause methods.")
@click.option("--task", help="Show only this task: detection, localization or rca.")
@json_option
def baselines(task: str | None, as_json: bool) -> None:
    """List the methods and controls that `evaluate` can run; --json adds titles, papers, inputs, costs and departures.

    The column core-2 shows the result on the dataset core-2: for detection, how far the recall exceeds the recall of
    random alarms; for localization, AC@1; for rca, how often both level and type are right. "best" marks results
    within the interval of the best method; "beats the control" marks results significantly above the strongest control
    (paired test, Holm). --json has the results of localizers on other systems, too.

    \b
    Example:
      faultset list baselines --task localization
    """
    from faultset.baselines.registry import list_baselines
    from faultset.evaluators.execution.plan import inputs_beyond_telemetry
    from faultset.evaluators.leaderboards.scores import kind_rank
    from faultset.evaluators.leaderboards.track_records import MAIN_DATASET, read_track_records

    if task is not None:
        from faultset.core.errors import unknown_name
        from faultset.evaluators.results.rows import TASKS

        if task not in TASKS:
            raise unknown_name("task", task, TASKS)
    specs = [spec for spec in list_baselines().values() if task in (None, spec.task)]
    specs.sort(key=lambda spec: (spec.task, kind_rank(spec.kind), spec.name))
    track_records = read_track_records()
    records: list[dict[str, Any]] = [
        {
            "name": spec.name,
            "task": spec.task,
            "kind": spec.kind,
            "title": spec.title,
            "tables": list(spec.tables),
            "needs": list(inputs_beyond_telemetry(spec)),
            "speed": spec.speed,
            "stochastic": spec.stochastic,
            "complexity": spec.complexity,
            "paper": spec.paper,
            "departures": list(spec.departures),
            "results": [asdict(record) for record in track_records.get(spec.name, ())],
            MAIN_DATASET: next((str(r) for r in track_records.get(spec.name, ()) if r.dataset == MAIN_DATASET), ""),
            "developed_on": None if spec.developed_on is None else list(spec.developed_on),
        }
        for spec in specs
    ]
    columns = ("name", "task", "kind", "tables", "speed", MAIN_DATASET)
    show_records(records, columns=columns, as_json=as_json, wrap_at=100)


@command("agents", short_help="List the agents and controls that Inspect can run on faultset tasks.")
@json_option
def agents(as_json: bool) -> None:
    """List the solvers for "inspect eval --solver faultset/NAME". Controls need no model.

    \b
    Example:
      faultset list agents
    """
    import inspect_ai  # noqa: F401  reports a missing extra in one sentence

    from faultset.agents.solvers import agent_records

    show_records(agent_records(), columns=("name", "kind", "model", "title"), as_json=as_json)
