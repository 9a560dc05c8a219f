"""Tables of recorded agent runs with intervals."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.agents.imports import ScoredRun
from faultset.evaluators.scoring.intervals import Estimate, clustered_mean, unknown

_HARNESS_ERROR = "harness_error"


@dataclass(frozen=True, kw_only=True)
class AgentRow:
    """The runs of one agent with one model on one task, from one source."""

    source: str
    agent: str
    model: str | None
    task: str
    runs: int
    statuses: Mapping[str, int]
    label_versions: tuple[str, ...]
    recorded: Estimate
    """Success rate recorded by the source, over the runs with a recorded result."""
    success: Estimate
    """Success rate by the source's current labels; runs with a harness error are misses."""
    success_without_harness_errors: Estimate
    """`success` without the runs that had a harness error."""
    value: Estimate
    """Mean of the partial scores."""
    control: str
    """Control that ignores telemetry: `always-yes` or `constant-pair`; empty if there is none."""
    control_success: Estimate
    """Success rate of the control on the same runs."""
    detected: Estimate
    """Detection: share of runs on faulty systems that claim a fault."""
    false_alarms: Estimate
    """Detection: share of runs on healthy systems that claim a fault."""
    agree: int
    compared: int
    """Runs with a recorded and a computed result; `agree` counts the runs in which both are equal."""
    from_text: int
    """Runs whose services were extracted from free text."""
    steps: float
    """Median over the runs."""
    prompt_tokens: float | None
    """Median over the runs that record it."""


@dataclass(frozen=True, kw_only=True)
class ResultDifference:
    """Runs whose recorded result differs from the computed one, for one reason."""

    source: str
    reason: str
    runs: tuple[str, ...]


def summarise_agents(scored: Sequence[ScoredRun]) -> list[AgentRow]:
    """Return one row per source, agent, model and task, in that order."""
    groups: dict[tuple[str, str, str, str], list[ScoredRun]] = {}
    for result in scored:
        run = result.run
        groups.setdefault((run.format, run.agent, run.model or "", run.task), []).append(result)
    return [_build_row(results) for _, results in sorted(groups.items())]


def find_result_differences(scored: Sequence[ScoredRun]) -> list[ResultDifference]:
    """Return why results differ from the recorded ones, by source, most frequent reasons first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for result in scored:
        if result.agrees is False:
            key = (result.run.format, result.difference or "not explained")
            groups.setdefault(key, []).append(result.run.run)
    differences = [ResultDifference(source=k[0], reason=k[1], runs=tuple(runs)) for k, runs in groups.items()]
    return sorted(differences, key=lambda difference: (difference.source, -len(difference.runs), difference.reason))


def _estimate_share(results: Sequence[ScoredRun], value: Callable[[ScoredRun], float | None]) -> Estimate:
    values = [(number, result.truth.cluster) for result in results if (number := value(result)) is not None]
    if not values:
        return unknown("not scored")
    return clustered_mean([float(number) for number, _ in values], [cluster for _, cluster in values])


def _build_row(results: Sequence[ScoredRun]) -> AgentRow:
    runs = [result.run for result in results]
    first = runs[0]
    without_errors = [result for result in results if result.run.status != _HARNESS_ERROR]
    compared = [result for result in results if result.agrees is not None]
    tokens = [run.prompt_tokens for run in runs if run.prompt_tokens is not None]
    control, control_success = _score_control(first.task, results)
    return AgentRow(
        source=first.format,
        agent=first.agent,
        model=first.model,
        task=first.task,
        runs=len(runs),
        statuses=dict(Counter(run.status for run in runs).most_common()),
        label_versions=tuple(sorted({result.truth.label_version for result in results if result.truth.label_version})),
        recorded=_estimate_share(results, lambda result: result.truth.recorded_success),
        success=_estimate_share(results, lambda result: result.success),
        success_without_harness_errors=_estimate_share(without_errors, lambda result: result.success),
        value=_estimate_share(results, lambda result: result.value),
        control=control,
        control_success=control_success,
        detected=_estimate_claim_rate(results, fault=True),
        false_alarms=_estimate_claim_rate(results, fault=False),
        agree=sum(bool(result.agrees) for result in compared),
        compared=len(compared),
        from_text=sum("free text" in run.status_reason and run.status == "ok" for run in runs),
        steps=float(statistics.median(run.steps for run in runs)),
        prompt_tokens=float(statistics.median(tokens)) if tokens else None,
    )


def _get_truth(result: ScoredRun) -> Mapping[str, Any]:
    return (result.truth.truth or {}) if result.success is not None else {}


def _estimate_claim_rate(results: Sequence[ScoredRun], *, fault: bool) -> Estimate:
    """Return the share of detection runs on faulty (or healthy) systems that claim a fault."""
    if results[0].run.task != "detection":
        return unknown("only for detection")
    chosen = [result for result in results if _get_truth(result).get("fault") is fault]
    return _estimate_share(chosen, lambda result: (result.run.answer or {}).get("fault") is True)


def _score_control(task: str, results: Sequence[ScoredRun]) -> tuple[str, Estimate]:
    labelled = [result for result in results if _get_truth(result)]
    if task == "detection":
        return "always-yes", _estimate_share(labelled, lambda result: _get_truth(result).get("fault") is True)
    if task == "diagnosis":
        return "constant-pair", _estimate_share(labelled, lambda result: _score_constant_pair(result, labelled))
    return "", unknown("no control for this task")


def _get_pair(result: ScoredRun) -> tuple[str, str]:
    truth = _get_truth(result)
    return str(truth.get("system_level", "")).lower(), str(truth.get("fault_type", "")).lower()


def _score_constant_pair(result: ScoredRun, labelled: Sequence[ScoredRun]) -> float | None:
    """Score the most frequent pair of all other clusters, averaged over ties; None if there is no other cluster."""
    cluster = result.truth.cluster
    pairs = {other.truth.cluster: _get_pair(other) for other in labelled if other.truth.cluster != cluster}
    if not pairs:
        return None
    counts = Counter(pairs.values())
    highest = max(counts.values())
    best = [pair for pair, count in counts.items() if count == highest]
    return float(_get_pair(result) in best) / len(best)
