"""Per-agent results: pass@1, pass^k and cost beside the best algorithm or control, and the same as cells of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from faultset.agents.runs.looks import RunLook
from faultset.agents.runs.record import AgentRun
from faultset.evaluators.leaderboards.grids import Grid, GridColumn
from faultset.evaluators.leaderboards.number_formats import NONE
from faultset.evaluators.leaderboards.records import GIVEN_ALARMS, AgentLine, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.results.rows import NO_FAILURES, ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.registry import TASK_METRICS, right_of
from faultset.evaluators.statistics.comparison import paired_difference
from faultset.evaluators.statistics.intervals import Estimate, clustered_mean, unknown

_RIGHT = 1.0 - 1e-9
_OFTEN = 0.5
_SOLVED = {
    (True, True): "both",
    (True, False): "agent alone",
    (False, True): "algorithm alone",
    (False, False): "neither",
}
ByEpisode = Mapping[str, Sequence[ResultRow]]


def agent_lines(
    scores: EpisodeScores, runs: Iterable[AgentRun], looks: Mapping[str, RunLook], seed: int = 0
) -> tuple[AgentLine, ...]:
    """Return a line for each agent at each task and protocol, best first within those.

    Parameters
    ----------
    runs
        All runs; rows name theirs.
    looks
        Run -> what it looked at, where that is known.
    """
    by_name = {run.run: run for run in runs}
    lines: list[AgentLine] = []
    for setting, by_case in sorted(scores.cases.items()) if by_name else ():
        if setting.protocol not in ("detected", "oracle"):
            continue
        found = {name: {e: case.rows for e, case in cases.items()} for name, cases in by_case.items()}
        agents = {name: rows for name, rows in found.items() if _is_agent(rows)}
        others = {name: rows for name, rows in found.items() if name not in agents}
        best = _best(others, setting, others)
        control = _best(found, setting, {name for name in found if scores.kinds[name] == "control"})
        made = [_line(name, rows, setting, by_name, looks, scores) for name, rows in agents.items()]
        made = [_compared(line, found, setting, best, control, seed) for line in made]
        lines += sorted(made, key=lambda line: (-line.pass_1.value, line.agent))
    return tuple(lines)


def _is_agent(episodes: ByEpisode) -> bool:
    return any("agent_run" in row.answer for rows in episodes.values() for row in rows)


def _counted(episodes: ByEpisode, task: str) -> dict[str, Sequence[ResultRow]]:
    """Return the episodes that count: headline faults, and without a fault where detection is asked."""
    return {e: rows for e, rows in sorted(episodes.items()) if _counts(rows[0].truth, task)}


def _counts(truth: Truth, task: str) -> bool:
    if task == "detection":
        return not truth.faulty or is_headline(truth)
    return is_headline(truth) and TASK_METRICS[task].poses(truth)


def _means(episodes: ByEpisode, task: str) -> dict[str, float]:
    return {e: _mean_right(rows) for e, rows in _counted(episodes, task).items()}


def _mean_right(rows: Sequence[ResultRow]) -> float:
    return float(np.mean([right_of(row) for row in rows]))


def _best(found: Mapping[str, ByEpisode], setting: Setting, names: Iterable[str]) -> str | None:
    values = {name: list(_means(found[name], setting.task).values()) for name in names}
    known = {name: float(np.mean(own)) for name, own in values.items() if own}
    return min(known, key=lambda name: (-known[name], name)) if known else None


def _line(
    name: str,
    episodes: ByEpisode,
    setting: Setting,
    runs: Mapping[str, AgentRun],
    looks: Mapping[str, RunLook],
    scores: EpisodeScores,
) -> AgentLine:
    counted = _counted(episodes, setting.task)
    rows = [row for own in counted.values() for row in own]
    keys = [str(row.answer.get("agent_run")) for row in rows]
    made = [runs[key] for key in keys if key in runs]
    seen = [(looks[key], row.truth) for key, row in zip(keys, rows, strict=True) if key in looks]
    calls: Counter[str] = Counter()
    for look, _ in seen:
        calls.update(look.calls)
    tool_calls = sum(run.tool_calls for run in made)
    costs = [run.cost_usd for run in made if run.cost_usd is not None]
    return AgentLine(
        agent=name,
        kind=scores.kinds[name],
        task=setting.task,
        protocol=setting.protocol,
        episodes=len(counted),
        trials=max((len(own) for own in counted.values()), default=0),
        runs=len(made),
        pass_1=_share(counted, _mean_right),
        pass_all=_share(counted, lambda own: float(all(right_of(row) >= _RIGHT for row in own))),
        without_harness_errors=_kept(counted, lambda row: row.status != "harness_error"),
        fully_recorded=_kept(counted, lambda row: _all_recorded(row, runs)),
        seconds=_median(run.seconds for run in made if run.status == "ok"),
        steps=_median(run.steps for run in made),
        prompt_tokens=_median(run.prompt_tokens for run in made),
        completion_tokens=_median(run.completion_tokens for run in made),
        tokens_estimated=any(run.tokens_source == "estimated" for run in made),
        cost_usd=float(np.mean(costs)) if costs else math.nan,
        total_cost_usd=float(sum(costs)) if costs else math.nan,
        not_recorded=_part(sum(run.not_recorded or 0 for run in made), tool_calls),
        refused=_part(sum(run.refused or 0 for run in made), tool_calls),
        repeats=_part(sum(run.repeats for run in made), tool_calls),
        statuses=dict(Counter(row.status for row in rows)),
        calls=dict(calls.most_common()),
        cause_asked=_looked(seen, lambda look: look.asked),
        cause_shown=_looked(seen, lambda look: look.shown),
    )


def _compared(
    line: AgentLine,
    found: Mapping[str, ByEpisode],
    setting: Setting,
    best: str | None,
    control: str | None,
    seed: int,
) -> AgentLine:
    """Add the best algorithm or control and the strongest control on the same episodes, and the difference."""
    own = _means(found[line.agent], setting.task)
    against = _means(found[best], setting.task) if best is not None else {}
    common = sorted(own.keys() & against.keys())
    keys = [found[line.agent][e][0].truth.cluster for e in common]
    pair = paired_difference([own[e] for e in common], [against[e] for e in common], keys, seed) if common else None
    floor = list(_means(found[control], setting.task).values()) if control is not None else []
    return replace(
        line,
        best_algorithm=best,
        best_value=float(np.mean([against[e] for e in common])) if common else math.nan,
        difference=None if pair is None else pair.difference,
        solved=dict(Counter(_SOLVED[own[e] > _OFTEN, against[e] > _OFTEN] for e in common)),
        strongest_control=control,
        control_value=float(np.mean(floor)) if floor else math.nan,
    )


def _share(episodes: ByEpisode, value: Callable[[Sequence[ResultRow]], float]) -> Estimate:
    keys = [rows[0].truth.cluster for rows in episodes.values()]
    return clustered_mean([value(rows) for rows in episodes.values()], keys)


def _kept(episodes: ByEpisode, keep: Callable[[ResultRow], bool]) -> Estimate:
    """Return the share of right answers among the rows that are kept; each episode counts once."""
    kept = {e: own for e, rows in episodes.items() if (own := [row for row in rows if keep(row)])}
    if not kept:
        return unknown("no such run")
    return _share(kept, _mean_right)


def _all_recorded(row: ResultRow, runs: Mapping[str, AgentRun]) -> bool:
    run = runs.get(row.answer.get("agent_run", ""))
    return run is not None and not run.not_recorded


def _looked(seen: Sequence[tuple[RunLook, Truth]], of: Callable[[RunLook], frozenset[str]]) -> float:
    """Return the share of runs about a fault in which a cause is among what was looked at."""
    faulty = [(of(look), {name for cause in truth.causes for name in cause}) for look, truth in seen if truth.causes]
    return float(np.mean([bool(found & causes) for found, causes in faulty])) if faulty else math.nan


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else math.nan


def _part(count: int, whole: int) -> float:
    return count / whole if whole else math.nan


TASKS = {"detection": "detection", "localization": "localization", "rca": "root cause"}
KIND_STYLES = {"control": "dim", "named": "bold"}
TIMES = {"detection": "TTD", "localization": "TTL", "rca": "TTA"}
COLUMNS = (
    ("agent", "name, with the model"),
    ("pass@1", "how right one attempt is: mean over trials, then over episodes, with a 95 % interval"),
    ("all trials", "share of episodes on which every trial is right; with three trials pass^3"),
    ("best algorithm or control", "the method that is right most often on the same episodes, and the difference to it"),
    ("time", "TTD, TTL or TTA as AIOpsLab counts: median seconds of model and tools from the question to an answer"),
    ("steps", "median of messages that act"),
    ("tokens", "medians of prompt and completion tokens of a run; ≈ where the server did not report them"),
    ("USD", "mean cost of a run, as the log states it"),
    ("not recorded", "share of requests that the recording could not answer; refused ones behind it"),
    ("repeats", "share of requests that were made before at the same moment"),
    ("no answer", "attempts without a scorable answer, by status"),
    ("clean runs", "pass@1 without errors of the harness, and of runs that asked for nothing which was not recorded"),
    ("solved by", "episodes that the agent and the best algorithm or control get right more often than not"),
    ("strongest control", "what the best control reaches on the same episodes"),
)
"""Head of each column, and what it means."""


def title_of(line: AgentLine) -> str:
    """Say what a group of lines is about."""
    if line.task == "detection":
        return TASKS[line.task]
    return f"{TASKS[line.task]}, given the {GIVEN_ALARMS[line.protocol]}"


def agent_grids(lines: Sequence[AgentLine]) -> list[Grid]:
    """Return a grid for each task and protocol."""
    groups: dict[str, list[AgentLine]] = {}
    for line in lines:
        groups.setdefault(title_of(line), []).append(line)
    return [
        Grid(
            title=title,
            columns=tuple(
                GridColumn(
                    title=TIMES[group[0].task] if name == "time" else name,
                    meaning=meaning,
                    justify="left" if name == "agent" else "right",
                    wraps=name.startswith("best"),
                )
                for name, meaning in COLUMNS
            ),
            rows=tuple(tuple(cells(line)) for line in group),
            styles=tuple(KIND_STYLES.get(line.kind) for line in group),
        )
        for title, group in groups.items()
    ]


def cells(line: AgentLine) -> list[str]:
    """Return a text for each column."""
    without = {status: n for status, n in sorted(line.statuses.items()) if status not in NO_FAILURES}
    return [
        line.agent,
        estimate_text(line.pass_1),
        estimate_text(line.pass_all, interval=False) + (f" of {line.trials}" if line.trials > 1 else ""),
        best_text(line),
        f"{line.seconds:.1f} s" if line.seconds == line.seconds else NONE,
        amount(line.steps),
        tokens_text(line),
        NONE if math.isnan(line.cost_usd) or line.prompt_tokens != line.prompt_tokens else f"{line.cost_usd:.4f}",
        f"{percent(line.not_recorded)} / {percent(line.refused)}",
        percent(line.repeats),
        ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in without.items()),
        f"{estimate_text(line.without_harness_errors, interval=False)} / "
        f"{estimate_text(line.fully_recorded, interval=False)}",
        ", ".join(f"{name} {count}" for name, count in sorted(line.solved.items())),
        NONE if line.strongest_control is None else f"{line.strongest_control} {line.control_value:.2f}",
    ]


def best_text(line: AgentLine) -> str:
    """Name the best algorithm or control with its value and the difference."""
    if line.best_algorithm is None:
        return "none was run"
    difference = line.difference
    behind = "" if difference is None or not difference.known else f" ({difference.value:+.2f})"
    return f"{line.best_algorithm} {line.best_value:.2f}{behind}"


def tokens_text(line: AgentLine) -> str:
    """Return prompt and completion tokens; nothing for agents without a model."""
    if math.isnan(line.prompt_tokens):
        return NONE
    mark = "≈" if line.tokens_estimated else ""
    return f"{mark}{amount(line.prompt_tokens)} + {mark}{amount(line.completion_tokens)}"


def estimate_text(estimate: Estimate, *, interval: bool = True) -> str:
    """Write a share with its interval."""
    if not estimate.known:
        return NONE
    brackets = f" [{estimate.low:.2f}, {estimate.high:.2f}]" if interval and estimate.interval_known else ""
    return f"{estimate.value:.2f}{brackets}"


def amount(value: float) -> str:
    """Write a count."""
    return NONE if math.isnan(value) else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    """Write a share in per cent."""
    return NONE if math.isnan(share) else f"{share:.0%}"


def markdown_lines(lines: Sequence[AgentLine]) -> list[str]:
    """Return the tables in Markdown; nothing without an agent."""
    if not lines:
        return []
    text = ["## Agents", ""]
    for grid in agent_grids(lines):
        text += [f"### {grid.title[0].upper()}{grid.title[1:]}", "", *grid.markdown(), ""]
    return [*text, *(f"- **{name}**: {meaning}." for name, meaning in COLUMNS[1:]), ""]
