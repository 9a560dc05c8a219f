"""The records of a leaderboard: tables, their entries, curves, agents and failures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultset.core.printable import count_text
from faultset.core.times import duration_text
from faultset.evaluators.leaderboards.texts import NONE, format_p
from faultset.evaluators.results.truth import Loudness, Truth
from faultset.evaluators.scoring.intervals import Estimate
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.scoring.paired_tests import PairedDifference

ALL_APPS = "all apps"
SIGNIFICANCE = 0.05
"""Corrected p below which a difference is significant."""
HEADLINE = "manifest"
UNKNOWN = "unknown"
"""Verdict of imported faults if the source does not say whether clients noticed them."""
TELEMETRY = "telemetry"
"""The group of methods that see only telemetry."""
RECORDED = "recorded"
"""Protocol of tables of detectors that run online over recordings."""
GROUP_MEANINGS = {"sli": "the clients' requests", "alarm_location": "the location of the alarm"}
GIVEN_ALARMS = {"detected": "alarm of a detector", "oracle": "true onset"}


def is_headline(truth: Truth) -> bool:
    """Return whether an episode counts in headlines: its fault is manifest or has no verdict."""
    return truth.faulty and truth.verdict in (HEADLINE, UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class SettingsRange:
    """Range of a metric over the settings that a paper leaves open, including the default."""

    low: float
    high: float
    settings: int
    """Number of settings, including the default."""

    @classmethod
    def of(cls, values: Iterable[float]) -> SettingsRange | None:
        """Return the range of the known values of a metric, one for each setting; None if fewer than two are known."""
        numbers = [value for value in values if not math.isnan(value)]
        return cls(low=min(numbers), high=max(numbers), settings=len(numbers)) if len(numbers) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One method in one table."""

    baseline: str
    kind: str
    extra_inputs: tuple[str, ...]
    """Inputs beyond telemetry: labels, sli, alarm_location, references (healthy parts of training episodes with a
    fault), or threshold (set on training episodes)."""
    rank: int
    """1 is best by the metric that ranks the table; equal values share the better rank."""
    metrics: Mapping[str, Estimate]
    rows: int
    failed: Mapping[str, int]
    """Status -> number of rows, without `ok`."""
    seconds: float
    """Median processor time of an answer; elapsed time if the process was ended."""
    fit_seconds: float
    peak_bytes: float
    seeds: int = 1
    seed_spread: float | None = None
    """Standard deviation of the first metric over seeds, for methods that draw random numbers."""
    against: PairedDifference | None = None
    """Difference from the strongest control on the same episodes."""
    adjusted_p: float | None = None
    """Holm-corrected over the comparisons of the table."""
    across: Estimate | None = None
    """In the table of all applications: mean of the first metric over applications, with the prediction interval for
    one more application."""
    reconstruction: bool = False
    """Whether the paper leaves parts of the method undefined."""
    settings_range: SettingsRange | None = None
    """Range of the first metric over declared settings, if they were run."""

    @property
    def difference_text(self) -> str:
        """Difference from the strongest control, without its interval; empty without a control."""
        if self.against is None:
            return ""
        difference = self.against.difference
        if not difference.known:
            return NONE
        p = "" if self.adjusted_p is None else format_p(self.adjusted_p)
        return f"{difference.value:+.2f} {p}".rstrip()

    @property
    def interval_text(self) -> str:
        """Interval of the difference from the strongest control."""
        if self.against is None or not self.against.difference.interval_known:
            return ""
        return f"[{self.against.difference.low:+.2f}, {self.against.difference.high:+.2f}]"

    @property
    def beats_control(self) -> bool:
        """Whether it is significantly better than the strongest control."""
        if self.against is None or self.adjusted_p is None:
            return False
        return self.adjusted_p < SIGNIFICANCE and self.against.difference.value > 0

    @property
    def kind_text(self) -> str:
        """Kind, input beyond telemetry, and for reconstructions the range over declared settings."""
        text = self.kind + (f" (given {', '.join(self.extra_inputs)})" if self.extra_inputs else "")
        if self.reconstruction or self.settings_range is not None:
            text += ", reconstruction"
        if self.settings_range is not None:
            text += f" {self.range_text}"
        return text

    @property
    def range_text(self) -> str:
        """Range of the first metric over declared settings; empty if they were not run."""
        if self.settings_range is None:
            return ""
        low, high, settings = self.settings_range.low, self.settings_range.high, self.settings_range.settings
        return f"{low:.2f} to {high:.2f} over {settings} settings"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Methods with the same input, on the same episodes."""

    task: str
    protocol: str
    app: str
    verdict: str
    group: str
    """"telemetry", "sli" for methods that see the requests of clients, or "alarm_location" for methods that get the
    service of the alarm."""
    faults: Loudness = "all"
    """Whether only gray or only loud faults count."""
    metrics: tuple[Metric, ...]
    entries: tuple[Entry, ...]
    floor: Mapping[str, Estimate]
    """Scores of guessing."""
    episodes: int
    clusters: int
    no_fault_episodes: int = 0
    strongest_control: str | None = None
    note: str = ""
    no_p: str = ""
    """Why differences have no p; empty if they have one."""
    threshold_rule: str = ""
    """For detection: the threshold policy of all metrics that do not name one."""
    candidates: int = 0
    """Number of services that an answer may name, if the table is about one application."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Service -> fault episodes in which it is a cause, most frequent first, if the table is about one application."""
    watched_s: float = 0.0
    """Seconds of recordings in which alarms count; 0 for tables of episodes."""

    @property
    def key(self) -> tuple[str, str, str, str, str, Loudness]:
        """Task, protocol, application, verdict, group and loudness of the faults."""
        return self.task, self.protocol, self.app, self.verdict, self.group, self.faults

    @property
    def header(self) -> str:
        """Metric that ranks, episodes, and threshold policy."""
        if self.protocol == RECORDED:
            return (
                f"ranked by recall above random alarms at the same rate; incidents: {self.episodes}, clusters: "
                f"{self.clusters}, watched: {duration_text(self.watched_s)}, thresholds: {self.threshold_rule}"
            )
        verdict = self.verdict if self.faults == "all" else f"{self.faults} {self.verdict}"
        parts = [
            f"ranked by {self.metrics[0].title}",
            f"{count_text(self.episodes, f'{verdict} fault episode')} in {count_text(self.clusters, 'cluster')}",
        ]
        if self.task == "detection":
            parts += [count_text(self.no_fault_episodes, "no-fault episode"), f"thresholds: {self.threshold_rule}"]
        return ", ".join(parts)

    @property
    def target_text(self) -> str:
        """Number of candidates, and how often each is a cause; empty for several applications."""
        if not self.candidates or not self.targets:
            return ""
        shares = ", ".join(f"{name} {count / self.episodes:.0%}" for name, count in self.targets.items())
        verb = "is" if len(self.targets) == 1 else "are"
        candidates = count_text(self.candidates, "candidate")
        return f"{candidates}; {len(self.targets)} {verb} a cause in some episode: {shares}"

    @property
    def standing(self) -> str:
        """The best method compared with the strongest control, and the number of methods that beat the control."""
        compared = [entry for entry in self.entries if entry.against is not None]
        if self.strongest_control is None:
            if any(entry.kind == "control" for entry in self.entries):
                return "" if self.note else "no control has a score here"
            if self.group != TELEMETRY:
                return "no control has the same input"
            return "no control was evaluated; add one to --baselines"
        if not compared:
            return "only controls have a score here"
        best = compared[0]
        difference = " ".join(filter(None, (best.difference_text, best.interval_text)))
        text = f"best method {best.baseline}: {difference} vs the control {self.strongest_control}"
        if self.no_p:
            return f"{text}; no p: {self.no_p}"
        beating = sum(entry.beats_control for entry in compared)
        return f"{text}; {beating or 'none'} of {len(compared)} beat it (p<{SIGNIFICANCE}, Holm)"

    @property
    def title(self) -> str:
        """Task, input, application and kind of episodes."""
        name = "root cause" if self.task == "rca" else self.task
        if self.protocol == RECORDED:
            name = "detection on recordings"
        parts = [name] if self.task == "detection" else [name, f"given: {GIVEN_ALARMS[self.protocol]}"]
        parts += [self.app, self.verdict]
        if self.faults != "all":
            parts.append(f"{self.faults} faults")
        if self.group != TELEMETRY:
            parts.append(f"methods that see {GROUP_MEANINGS[self.group]}")
        return " · ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A missing answer."""

    baseline: str
    episode: str
    task: str
    protocol: str
    seed: int
    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """Episodes of one difficulty, and AC@1 of every localizer on them."""

    name: str
    meaning: str
    episodes: tuple[str, ...]
    ac1: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The share of correct answers if the alarm, or the end of the view, comes some seconds after the onset."""

    at_s: float
    """Seconds after the onset, or after the alarm for evidence that begins with an alarm."""
    right: Estimate
    """Share of faults with a true alarm, AC@1, or share of diagnoses with the right level and type."""
    right_otherwise: float
    """That share on the same episodes, with the alarm at the onset and the whole view."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Results of one method by delay of the alarm or by evidence, on headline episodes of one application."""

    over: str
    """"delay" of the alarm, or "evidence"."""
    task: str
    protocol: str
    """Protocol of the table that the curve belongs to."""
    baseline: str
    kind: str
    app: str
    points: tuple[CurvePoint, ...]
    group: str = TELEMETRY
    """Group in which the method is ranked."""

    @property
    def title(self) -> str:
        """Measure and axis."""
        right = {
            "detection": "Share of faults with a true alarm",
            "localization": "AC@1",
            "rca": "Level and type right",
        }
        axis = "delay of the alarm" if self.over == "delay" else "seconds of evidence"
        return f"{right[self.task]} by {axis}"

    @property
    def since(self) -> str:
        """Event from which seconds are counted."""
        of_alarm = self.over == "evidence" and self.task != "detection" and self.protocol == "detected"
        return "the alarm of a detector" if of_alarm else "the onset"


@dataclass(frozen=True, kw_only=True)
class Misses:
    """Services that a localizer ranks first on headline episodes: shares by kind, and distances to the cause."""

    baseline: str
    protocol: str
    episodes: int
    hit: float
    symptom: float
    """A direct or indirect caller of the cause."""
    unrelated: float
    none: float
    """No answer."""
    hops: Mapping[str, int]
    """Calls between answer and cause -> episodes; "inf" without a path, "none" without an answer."""


@dataclass(frozen=True, kw_only=True)
class AgentLine:
    """Results of one agent for one task and protocol.

    They cover headline episodes, and for detection also episodes without a fault.
    """

    agent: str
    kind: str
    task: str
    protocol: str
    episodes: int
    trials: int
    """Largest number of attempts at one episode."""
    runs: int
    """All attempts."""
    pass_1: Estimate
    """Score of one attempt: mean over trials, then over episodes."""
    pass_all: Estimate
    """Share of episodes in which every trial is right."""
    without_harness_errors: Estimate
    """`pass_1` of the attempts without an error of the harness."""
    fully_recorded: Estimate
    """`pass_1` of the attempts whose requests could all be answered from the recording."""
    seconds: float
    """Median time of model and tools in an answered attempt."""
    steps: float
    """Median per attempt, as for tokens."""
    prompt_tokens: float
    completion_tokens: float
    tokens_estimated: bool
    """Whether some token counts are estimates because the server did not report them."""
    cost_usd: float
    """Mean cost of an attempt."""
    total_cost_usd: float
    not_recorded: float
    """Share of requests that the recording cannot answer. `refused` and `repeats` are shares of requests too."""
    refused: float
    repeats: float
    statuses: Mapping[str, int]
    """Answers by status."""
    calls: Mapping[str, int]
    """Tool -> calls in all attempts, most frequent first."""
    cause_requested: float
    """Share of attempts on a fault in which a call named a root cause."""
    cause_observed: float
    """Share of attempts on a fault in which an observation named a root cause."""
    best_algorithm: str | None = None
    best_value: float = math.nan
    """Score of the best algorithm on the same episodes."""
    difference: Estimate | None = None
    """Difference from the best algorithm."""
    solved: Mapping[str, int] = field(default_factory=dict)
    """Episodes that "both", the "agent alone", the "algorithm alone" or "neither" gets right more often than not."""
    strongest_control: str | None = None
    control_value: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All tables of an evaluation, with the context that readers need."""

    dataset: str
    version: str
    digest: str
    split: str
    quick: bool
    counts: Mapping[str, int]
    """Episodes by verdict: manifest, latent, silent, no fault, and further verdicts that occur."""
    profiles: Mapping[str, int]
    tables: tuple[Table, ...]
    strata: tuple[Stratum, ...]
    failures: tuple[Failure, ...]
    early_alarms: Mapping[str, int]
    """Fault episodes by whether the alarm passed to localizers came before or after the onset, or not at all."""
    settings: Mapping[str, Any]
    code: str
    libraries: Mapping[str, str]
    method_codes: Mapping[str, str] = field(default_factory=dict)
    """Baseline -> distribution, version and hash of its code."""
    curves: tuple[Curve, ...] = ()
    """Results by delay of the alarm or by evidence, if these were evaluated."""
    thresholds: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """Policy -> baseline -> "fold/seed" -> threshold that was set on training episodes."""
    misses: tuple[Misses, ...] = ()
    agents: tuple[AgentLine, ...] = ()
    """Cost and requests of agents, beyond their entries in the tables."""
    several_causes: int = 0
    """Headline episodes with more than one root cause."""
    reference_s: tuple[float, float] = (math.nan, math.nan)
    """Shortest and longest reference window of the episodes."""
    seen_s: tuple[float, float] = (math.nan, math.nan)
    """Shortest and longest time from an onset to the end of the view."""
    unscored: Mapping[str, int] = field(default_factory=dict)
    """Fault episodes that a task cannot be scored on, by reason."""

    @property
    def recorded_tables(self) -> tuple[Table, ...]:
        """Tables of detectors on recordings."""
        return tuple(table for table in self.tables if table.protocol == RECORDED)

    @property
    def episode_tables(self) -> tuple[Table, ...]:
        return tuple(table for table in self.tables if table.protocol != RECORDED)

    @property
    def threshold_rule(self) -> str:
        """Threshold policy of the detectors in all tables."""
        return next((table.threshold_rule for table in self.tables if table.threshold_rule), "none")

    @property
    def other_rules(self) -> tuple[str, ...]:
        """Other threshold policies that have columns."""
        metrics = (metric for table in self.tables for metric in table.metrics)
        return tuple(dict.fromkeys(metric.policy for metric in metrics if metric.policy))

    def table(
        self,
        task: str,
        protocol: str,
        *,
        app: str,
        verdict: str = HEADLINE,
        group: str = TELEMETRY,
        faults: Loudness = "all",
    ) -> Table | None:
        """Return a table; None if the evaluation does not have it."""
        key = (task, protocol, app, verdict, group, faults)
        return next((table for table in self.tables if table.key == key), None)
