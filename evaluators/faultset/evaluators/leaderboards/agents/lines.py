"""Per-agent results: pass@1, pass^k and cost, compared with the best algorithm or control."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from faultset.agents.runs.looks import RunLook
from faultset.agents.runs.record import AgentRun
from faultset.evaluators.leaderboards.records import AgentLine, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.registry import TASK_METRICS, right_of
from faultset.evaluators.statistics.clusters import clustered_mean
from faultset.evaluators.statistics.comparison import paired_difference
from faultset.evaluators.statistics.estimates import Estimate, unknown

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
