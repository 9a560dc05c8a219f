"""What a leaderboard holds: tables of entries, entries of named estimates, and what makes them readable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.statistics.comparison import PairedDifference
from faultset.evaluators.statistics.intervals import Estimate

ALL_APPS = "all apps"
SIGNIFICANCE = 0.05
"""Below it a corrected p shows a difference."""
HEADLINE = "manifest"
UNKNOWN = "unknown"
"""Verdict of imported faults whose source does not say whether clients felt them."""


def is_headline(truth: Truth) -> bool:
    """Whether an episode counts in headlines: a fault that clients felt, or of which that is not known."""
    return truth.faulty and truth.verdict in (HEADLINE, UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One baseline in one table."""

    baseline: str
    kind: str
    given: tuple[str, ...]
    """What it was given beyond telemetry: labels, sli, references (healthy parts of training episodes with a fault), or
    threshold (one that was set on training episodes)."""
    rank: int
    """1 is best by the table's first metric; equal values share the better rank."""
    metrics: Mapping[str, Estimate]
    rows: int
    failed: Mapping[str, int]
    """Rows by status other than ok."""
    seconds: float
    """Median processor time of one answer; elapsed time of rows that were ended."""
    fit_seconds: float
    peak_bytes: float
    seeds: int = 1
    seed_spread: float | None = None
    """Standard deviation of the first metric over seeds, for methods that draw random numbers."""
    against: PairedDifference | None = None
    """Difference to the strongest control on the same episodes."""
    adjusted_p: float | None = None
    """Holm-corrected over the comparisons of the table."""
    across: Estimate | None = None
    """In the table of all applications: mean over applications of the first metric, with the interval in which it is
    expected to lie for one more application."""

    @property
    def against_text(self) -> str:
        """The difference to the strongest control with its interval and corrected p; empty without a control."""
        if self.against is None:
            return ""
        difference = self.against.difference
        if not difference.known:
            return number_formats.NONE
        text = f"{difference.value:+.2f}"
        if difference.interval_known:
            text += f" [{difference.low:+.2f}, {difference.high:+.2f}]"
        if self.adjusted_p is not None and not math.isnan(self.adjusted_p):
            text += f" {number_formats.p_value(self.adjusted_p)}"
        return text

    @property
    def is_better(self) -> bool:
        """Whether it is shown to be better than the strongest control."""
        if self.against is None or self.adjusted_p is None:
            return False
        return self.adjusted_p < SIGNIFICANCE and self.against.difference.value > 0


@dataclass(frozen=True, kw_only=True)
class Table:
    """Baselines that were given the same information, on the same episodes."""

    task: str
    protocol: str
    app: str
    verdict: str
    group: str
    """"telemetry", "sli" for methods that see the clients' request results, or "alarm_place" for methods that are told
    where the alarm was seen."""
    metrics: tuple[Metric, ...]
    entries: tuple[Entry, ...]
    floor: Mapping[str, Estimate]
    """What guessing scores here, in closed form where there is one."""
    episodes: int
    clusters: int
    no_fault_episodes: int = 0
    strongest_control: str | None = None
    note: str = ""
    no_p: str = ""
    """Why no difference has a p; empty where there is one."""
    threshold_rule: str = ""
    """Of detection: the threshold policy behind all metrics that name none."""

    @property
    def header(self) -> str:
        """Say which metric ranks which episodes, and by which threshold policy."""
        faults = f"{self.episodes} {self.verdict} fault episodes in {self.clusters} clusters"
        parts = [f"ranked by {self.metrics[0].title}", faults]
        if self.task == "detection":
            parts += [f"{self.no_fault_episodes} no-fault episodes", f"thresholds: {self.threshold_rule}"]
        return ", ".join(parts)

    @property
    def standing(self) -> str:
        """Say how the best method compares with the strongest control, and how many are better than it."""
        compared = [entry for entry in self.entries if entry.against is not None]
        if self.strongest_control is None:
            evaluated = any(entry.kind == "control" for entry in self.entries)
            why = "no control has a score here" if evaluated else "none was evaluated; add one to --baselines"
            return f"no method is compared with a control: {why}"
        if not compared:
            return "no method is compared with a control: only controls have a score here"
        best = compared[0]
        text = f"best method {best.baseline}: {best.against_text} over the control {self.strongest_control}"
        if self.no_p:
            return f"{text}; no p: {self.no_p}"
        better = sum(entry.is_better for entry in compared)
        if not better:
            return f"{text}; none is better than {self.strongest_control} at {SIGNIFICANCE}"
        return f"{text}; {better} of {len(compared)} are better than {self.strongest_control} at {SIGNIFICANCE}"

    @property
    def title(self) -> str:
        """Say in a few words what the table is about."""
        name = "root cause" if self.task == "rca" else self.task
        parts = [name] if self.task == "detection" else [name, f"given: {GIVEN_ALARMS[self.protocol]}"]
        parts += [self.app, self.verdict]
        if self.group != "telemetry":
            parts.append(f"methods that see {SEEN_BY[self.group]}")
        return " · ".join(parts)


SEEN_BY = {"sli": "sli", "alarm_place": "where the alarm was seen"}
GIVEN_ALARMS = {"detected": "alarm of a detector", "oracle": "true onset"}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A row without an answer."""

    baseline: str
    episode: str
    task: str
    protocol: str
    seed: int
    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """Episodes of one difficulty, and what every localizer gets on them."""

    name: str
    meaning: str
    episodes: tuple[str, ...]
    ac1: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """How often a method is right when the alarm, or the end of what it sees, comes some seconds later."""

    at_s: float
    """Seconds after the onset; of what is seen after a detector's alarm, seconds after that."""
    right: Estimate
    """Share of faults with a true alarm, AC@1, or share of diagnoses of which both parts are right."""
    right_otherwise: float
    """The same on the same episodes when the alarm is not delayed and the whole view is seen."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How one method does on headline episodes of one application as the alarm comes later, or it sees more."""

    over: str
    """"delay" of the alarm, or "evidence" that is seen after it."""
    task: str
    protocol: str
    """Of the table that the curve belongs to."""
    baseline: str
    kind: str
    app: str
    points: tuple[CurvePoint, ...]

    @property
    def title(self) -> str:
        """Say what the curve shows."""
        right = {
            "detection": "Share of faults with a true alarm",
            "localization": "AC@1",
            "rca": "Level and type right",
        }
        later = "the alarm comes later" if self.over == "delay" else "only so much of the view is seen"
        return f"{right[self.task]} when {later}"

    @property
    def since(self) -> str:
        """Say from when on its seconds are counted."""
        of_alarm = self.over == "evidence" and self.task != "detection" and self.protocol == "detected"
        return "the alarm of a detector" if of_alarm else "the onset"


@dataclass(frozen=True, kw_only=True)
class Misses:
    """What a localizer puts first on headline episodes: shares that add up to one, and how far off it is."""

    baseline: str
    protocol: str
    episodes: int
    hit: float
    symptom: float
    """A service that depends on the cause."""
    unrelated: float
    none: float
    """No answer."""
    hops: Mapping[str, int]
    """Calls between answer and cause -> episodes; "inf" where no way leads, "none" without an answer."""


@dataclass(frozen=True, kw_only=True)
class AgentLine:
    """One agent at one task and protocol, on headline episodes (in detection those without a fault too)."""

    agent: str
    kind: str
    task: str
    protocol: str
    episodes: int
    trials: int
    """Most attempts at one episode."""
    runs: int
    """Attempts that were made."""
    pass_1: Estimate
    """How right one attempt is: mean over trials, then over episodes."""
    pass_all: Estimate
    """Share of episodes on which every trial is right."""
    without_harness_errors: Estimate
    """`pass_1` of the attempts that did not end in an error of the harness."""
    fully_recorded: Estimate
    """`pass_1` of the attempts that asked for nothing which was not recorded."""
    seconds: float
    """Median of an answered attempt, model and tools."""
    steps: float
    """Median, as the tokens."""
    prompt_tokens: float
    completion_tokens: float
    tokens_estimated: bool
    """Whether the server did not report some of them."""
    cost_usd: float
    """Mean of an attempt."""
    total_cost_usd: float
    not_recorded: float
    """Share of requests, as `refused` and `repeats`."""
    refused: float
    repeats: float
    statuses: Mapping[str, int]
    """Answers by status."""
    calls: Mapping[str, int]
    """Tool -> calls in all attempts, most first."""
    cause_asked: float
    """Share of attempts about a fault in which a call named a root cause."""
    cause_shown: float
    """The same for observations."""
    best_algorithm: str | None = None
    best_value: float = math.nan
    """Of the algorithm that is right most often on the same episodes."""
    difference: Estimate | None = None
    """To it."""
    solved: Mapping[str, int] = field(default_factory=dict)
    """Episodes that "both", the "agent alone", the "algorithm alone" or "neither" gets right more often than not."""
    strongest_control: str | None = None
    control_value: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All tables of an evaluation with what a reader must know to judge them."""

    dataset: str
    version: str
    digest: str
    split: str
    quick: bool
    counts: Mapping[str, int]
    """Episodes by verdict: manifest, latent, silent, no fault."""
    profiles: Mapping[str, int]
    tables: tuple[Table, ...]
    strata: tuple[Stratum, ...]
    failures: tuple[Failure, ...]
    early_alarms: Mapping[str, int]
    """Fault episodes in which the alarm of the named detector stood before the onset, or there was none."""
    settings: Mapping[str, Any]
    code: str
    libraries: Mapping[str, str]
    method_codes: Mapping[str, str] = field(default_factory=dict)
    """Baseline -> distribution, version and hash of its code."""
    curves: tuple[Curve, ...] = ()
    """Methods whose alarm came later, or whose view ended earlier, where that was chosen."""
    thresholds: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """Policy -> baseline -> "fold/seed" -> threshold that was set on training episodes."""
    misses: tuple[Misses, ...] = ()
    agents: tuple[AgentLine, ...] = ()
    """What agents took and looked at, beyond their entries in the tables."""
    several_causes: int = 0
    """Headline episodes with more than one root cause."""
    reference_s: tuple[float, float] = (math.nan, math.nan)
    """Shortest and longest reference window of the episodes."""
    seen_s: tuple[float, float] = (math.nan, math.nan)
    """Least and most of a fault that methods see."""
    unscored: Mapping[str, int] = field(default_factory=dict)
    """Fault episodes that are no case for a task, by reason."""

    @property
    def threshold_rule(self) -> str:
        """What sets the thresholds of detectors in all tables."""
        return next((table.threshold_rule for table in self.tables if table.threshold_rule), "none")

    @property
    def other_rules(self) -> tuple[str, ...]:
        """Threshold policies that have columns of their own."""
        names = (metric.name for table in self.tables for metric in table.metrics)
        return tuple(dict.fromkeys(name.partition("[")[2].removesuffix("]") for name in names if "[" in name))

    def table(
        self, task: str, protocol: str, *, app: str, verdict: str = HEADLINE, group: str = "telemetry"
    ) -> Table | None:
        """Find one table; None when the evaluation has no such."""
        for table in self.tables:
            found = (table.task, table.protocol, table.app, table.verdict, table.group)
            if found == (task, protocol, app, verdict, group):
                return table
        return None
