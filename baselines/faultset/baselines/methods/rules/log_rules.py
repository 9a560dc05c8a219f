"""Rules on Kubernetes events and on rates of log lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import numpy as np
from scipy.special import betainc

from faultset.baselines.contract import Detection, Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.held_out import MIN_SAMPLES, Rows, split_folds
from faultset.baselines.features.log_lines import TemplateLines, log_excess, read_template_lines, select_error_lines
from faultset.baselines.features.role_streams import (
    RECENT,
    Ints,
    count_silent_steps,
    idle_share,
    read_steps,
    sum_recent,
)
from faultset.baselines.features.windows import TimeWindow, cut_window_after
from faultset.baselines.registry import detector, localizer
from faultset.baselines.stats.scaling import LEVEL, Matrix, distinct, reference_limit
from faultset.datasets.views import EpisodeView, read_frame


@localizer(
    "event-log",
    title="Events and error logs",
    paper="None; a rule on the output of kubectl get events and kubectl logs",
    kind="rule",
    tables=("events", "logs"),
    complexity="O(L + E), E events",
)
class EventLog(TrainingFreeBaseline):
    """Rank services by new warning events, then by their share of the error lines.

    Each warning reason since the alarm that did not occur in the reference counts as 1. Error lines beyond the usual
    rate add at most 1 over all services. A line counts towards its writer, or towards a service that the writer calls
    and the line names.

    References
    ----------
    None; the rule is our own.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        time_window = cut_window_after(episode, alarm_ns, episode.context.resolution_s)
        scores: dict[str, float] = defaultdict(float)
        pods: dict[tuple[str, str], float] = defaultdict(float)
        evidence: list[Evidence] = []
        for service, reasons in new_warnings(episode, time_window).items():
            scores[service] += len(reasons)
            evidence += [
                Evidence(service=service, subject=reason, score=1.0, detail="new warning event") for reason in reasons
            ]
            for pod_names in reasons.values():
                for pod in pod_names:
                    pods[service, pod] += 1
        line_counts, pod_line_counts = attributed_error_lines(episode, time_window)
        total = sum(line_counts.values())
        for owner, count in pod_line_counts.items():
            pods[owner] += count / max(total, count)
        for service, count in sorted(line_counts.items(), key=lambda item: (-item[1], item[0])):
            if count > 0:
                scores[service] += count / total
                evidence.append(
                    Evidence(service=service, subject="log lines", score=count, detail="excess error lines")
                )
        return Ranking.of(scores, episode.services, evidence, pods=pods)


def new_warnings(episode: EpisodeView, time_window: TimeWindow) -> dict[str, dict[str, list[str]]]:
    """Return, by service and reason, the pods of warnings whose reason occurs since the alarm but not in the reference.

    The list of pods is empty if the warning is about another kind of object.
    """
    frame = read_frame(episode, "events", ("time", "type", "reason", "kind", "name", "service"))
    frame = frame[(frame["type"] == "Warning") & frame["service"].isin(episode.services)]
    warnings: dict[str, dict[str, list[str]]] = {}
    for service, rows in frame.groupby("service", observed=True, sort=True):
        recent = rows[(rows["time"] >= time_window.start_ns) & (rows["time"] < time_window.end_ns)]
        healthy_reasons = set(rows.loc[rows["time"] < time_window.healthy_end_ns, "reason"].astype(str))
        reasons = sorted(set(recent["reason"].astype(str)) - healthy_reasons)
        if reasons:
            pods = recent[recent["kind"] == "Pod"]
            warnings[str(service)] = {
                reason: sorted(set(pods.loc[pods["reason"] == reason, "name"])) for reason in reasons
            }
    return warnings


def attributed_error_lines(
    episode: EpisodeView, time_window: TimeWindow
) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """Count excess error lines by the service that they blame, and by (service, pod) if they blame their writer."""
    lines = select_error_lines(episode)
    times = lines["time"].cast("int64").to_numpy()
    callees: dict[str, list[str]] = defaultdict(list)
    for caller, callee in episode.calls:
        callees[caller].append(callee)
    writers, pods = (lines[column].cast("string").to_pylist() for column in ("service", "pod"))
    blamed = blame(writers, lines["message"].to_pylist(), callees)
    service_counts: list[Counter[str]] = []
    pod_counts: list[Counter[tuple[str, str]]] = []
    for start, end in (
        (time_window.start_ns, time_window.end_ns),
        (time_window.healthy_start_ns, time_window.healthy_end_ns),
    ):
        rows = [row for row in np.flatnonzero((times >= start) & (times < end)) if blamed[row] in episode.services]
        service_counts.append(Counter(str(blamed[row]) for row in rows))
        pod_counts.append(Counter((str(blamed[row]), str(pods[row])) for row in rows if blamed[row] == writers[row]))
    ratio = time_window.length_ratio
    return (
        log_excess(service_counts[0], service_counts[1], ratio),
        log_excess(pod_counts[0], pod_counts[1], ratio),
    )


def blame(writers: list[str | None], messages: list[str | None], callees: dict[str, list[str]]) -> list[str | None]:
    """Return the service that each line blames: the called service that it names, otherwise its writer.

    >>> blame(["search", "geo"], ["dial tcp: lookup geo failed", "no reachable servers"], {"search": ["geo"]})
    ['geo', 'geo']
    """
    patterns = {
        writer: re.compile(
            r"(?<![\w-])(" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")(?![\w-])"
        )
        for writer, names in callees.items()
    }
    targets: dict[tuple[str | None, str | None], str | None] = {}
    for line in zip(writers, messages, strict=True):
        if line not in targets:
            writer, message = line
            match = patterns[writer].search(message or "") if writer in patterns else None
            targets[line] = match[1] if match else writer
    return [targets[line] for line in zip(writers, messages, strict=True)]


RARE = 1e-4
_MAX_EVIDENCE = 5
_MIN_PROBABILITY = 1e-300


def count_surprise(healthy: Ints, counts: Ints) -> Matrix:
    """Return the signed -log10 of the tail probability of counts, given healthy counts.

    The distribution is negative binomial: Poisson with an uncertain rate, and with the variance of the healthy counts.

    Parameters
    ----------
    healthy
        [n, k] counts in overlapping windows of `RECENT` steps.
    counts
        [t, k]

    Returns
    -------
    ndarray
        [t, k] -log10 of the tail probability; negative for a decrease.
    """
    windows = max(1.0, len(healthy) / RECENT)
    mean = (healthy.sum(axis=0) / max(1, len(healthy)) * windows + 0.5) / windows
    spread = healthy.var(axis=0, ddof=1) if len(healthy) > 1 else np.zeros(healthy.shape[1])
    dispersion = np.maximum(1.0, spread / mean) + 1 / windows
    size = mean / (dispersion - 1)
    at_most = betainc(size, counts + 1.0, 1 / dispersion)
    at_least = np.where(counts > 0, betainc(np.maximum(counts, 1.0), size, 1 - 1 / dispersion), 1.0)
    more, fewer = (-np.log10(np.maximum(2 * tail, _MIN_PROBABILITY)) for tail in (at_least, at_most))
    return np.where(more > fewer, np.maximum(more, 0.0), -np.maximum(fewer, 0.0))


@detector(
    "log-rate",
    title="Log rate rule",
    paper="Textbook rule on counts; Poisson tails",
    kind="rule",
    tables=("logs",),
    complexity="O(L + K·T)",
    departures=(
        "Counts are taken over the last five steps; their distribution is wider than Poisson's if the reference "
        "varies more.",
        "A new template counts as if the reference had half a line of it.",
        "Two-sided: templates that become rare or silent are reported too.",
    ),
)
class LogRateDetector(TrainingFreeBaseline):
    """Detect log templates whose frequency is very unlikely according to the reference.

    Parameters
    ----------
    rare
        Tail probability below which a count is reported; lower with many templates.

    References
    ----------
    He, Zhu, Zheng, Lyu, Drain, ICWS 2017, for the templates; the rule is common practice.
    """

    def __init__(self, *, rare: float = RARE) -> None:
        self.rare = rare

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every step after the reference by its most surprising count."""
        lines = read_template_lines(episode)
        steps = read_steps(episode)
        minimum = -np.log10(self.rare)
        if steps.healthy < MIN_SAMPLES or not (steps.of(lines.times_ns) < steps.healthy).any():
            return Detection.silent(minimum)
        kinds, _, keys = distinct(lines.services * len(lines.texts) + lines.templates)
        counts = steps.counts(lines.times_ns, keys, len(kinds))
        windows, silent_steps = sum_recent(counts), count_silent_steps(counts)

        def compute_surprise(reference: Rows, rows: Rows) -> Matrix:
            by_count = count_surprise(windows[reference], windows[rows])
            silent = silent_steps[rows] * np.log10(idle_share(counts[reference]))
            return np.where(-silent > np.abs(by_count), silent, by_count)

        # Skip windows that would begin before the view.
        healthy = np.arange(RECENT - 1, steps.healthy)
        held_out = np.zeros(len(healthy))
        for rest, block in split_folds(len(healthy)):
            held_out[block] = np.abs(compute_surprise(healthy[rest], healthy[block])).max(axis=1)
        minimum = max(minimum, float(np.log10(len(kinds) / LEVEL)))
        surprise = compute_surprise(healthy, np.arange(steps.healthy, steps.count))
        limit = reference_limit(held_out, minimum=minimum)
        return Detection.from_scores(
            steps.times_ns,
            np.abs(surprise).max(axis=1),
            limit,
            evidence=lambda row: _list_surprising_lines(surprise[row], kinds, lines, episode),
        )


def _list_surprising_lines(surprise: Matrix, kinds: Ints, lines: TemplateLines, episode: EpisodeView) -> list[Evidence]:
    services = sorted(episode.services)
    reported = sorted(
        (-abs(score), services[kind // len(lines.texts)], lines.texts[kind % len(lines.texts)], score)
        for score, kind in zip(surprise.tolist(), kinds.tolist(), strict=True)
        if score
    )
    return [
        Evidence(
            service=service,
            subject=text or "(empty line)",
            score=abs(score),
            detail=f"-log10 of the probability of {'more' if score > 0 else 'fewer'} such lines",
        )
        for _, service, text, score in reported[:_MAX_EVIDENCE]
    ]
