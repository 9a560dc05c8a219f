"""A rule on warnings among the cluster's events and on error lines in the logs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.api.tables import read_frame
from faultset.baselines.features.windows import TimeWindow, window_after
from faultset.baselines.logs.keywords import error_lines, log_excess

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@baseline(
    "event-log",
    title="Events and error logs",
    task="localization",
    paper="None; what an operator sees in kubectl get events and kubectl logs",
    kind="rule",
    developed_on=OWN_AND_PUBLISHED,
    tables=("events", "logs"),
    speed="instant",
    complexity="O(L + E), E events",
)
class EventLog(Untrained):
    """Blame the service that events warn of, and then the one that error lines in the logs point at.

    Every reason of a warning that came up after the alarm, and did not within the reference, counts one. Error
    lines beyond the usual add a share of at most one in all. A line that names a service which its writer is
    declared to call points at that service, any other line at its writer.

    References
    ----------
    None; the rule is an operator's second look.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by new kinds of warnings, then by their share of the error lines."""
        time_window = window_after(episode, alarm_ns, episode.context.resolution_s)
        scores: dict[str, float] = defaultdict(float)
        pods: dict[tuple[str, str], float] = defaultdict(float)
        evidence: list[Evidence] = []
        for service, reasons in new_warnings(episode, time_window).items():
            scores[service] += len(reasons)
            evidence += [
                Evidence(service=service, subject=reason, score=1.0, detail="new warning event") for reason in reasons
            ]
            for named in reasons.values():
                for pod in named:
                    pods[service, pod] += 1
        of_services, of_pods = attributed_error_lines(episode, time_window)
        total = sum(of_services.values())
        for pod, count in of_pods.items():
            pods[pod] += count / max(total, count)
        for service, count in sorted(of_services.items(), key=lambda item: (-item[1], item[0])):
            if count > 0:
                scores[service] += count / total
                evidence.append(
                    Evidence(service=service, subject="log lines", score=count, detail="error lines beyond the usual")
                )
        return Ranking.of(scores, episode.services, evidence, pods=pods)


def new_warnings(episode: EpisodeView, time_window: TimeWindow) -> dict[str, dict[str, list[str]]]:
    """Reasons of warnings per service that came up within a time window and not within its healthy part.

    Each comes with the pods that it was about; a service's reason may be about other objects, and then has none.
    """
    frame = read_frame(episode, "events", ("time", "type", "reason", "kind", "name", "service"))
    frame = frame[(frame["type"] == "Warning") & frame["service"].isin(episode.services)]
    found: dict[str, dict[str, list[str]]] = {}
    for service, rows in frame.groupby("service", observed=True, sort=True):
        now = rows[(rows["time"] >= time_window.start_ns) & (rows["time"] < time_window.end_ns)]
        healthy_reasons = set(rows.loc[rows["time"] < time_window.healthy_end_ns, "reason"].astype(str))
        reasons = sorted(set(now["reason"].astype(str)) - healthy_reasons)
        if reasons:
            pods = now[now["kind"] == "Pod"]
            found[str(service)] = {
                reason: sorted(set(pods.loc[pods["reason"] == reason, "name"])) for reason in reasons
            }
    return found


def attributed_error_lines(
    episode: EpisodeView, time_window: TimeWindow
) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """Complaints beyond the usual per service that they point at, and per (service, pod) of those about the writer."""
    lines = error_lines(episode)
    times = lines["time"].cast("int64").to_numpy()
    called: dict[str, list[str]] = defaultdict(list)
    for caller, callee in episode.calls:
        called[caller].append(callee)
    writers, pods = (lines[column].cast("string").to_pylist() for column in ("service", "pod"))
    blamed = blame(writers, lines["message"].to_pylist(), called)
    services: list[Counter[str]] = []
    of_pods: list[Counter[tuple[str, str]]] = []
    for start, end in (
        (time_window.start_ns, time_window.end_ns),
        (time_window.healthy_start_ns, time_window.healthy_end_ns),
    ):
        rows = [row for row in np.flatnonzero((times >= start) & (times < end)) if blamed[row] in episode.services]
        services.append(Counter(str(blamed[row]) for row in rows))
        of_pods.append(Counter((str(blamed[row]), str(pods[row])) for row in rows if blamed[row] == writers[row]))
    ratio = time_window.length_ratio
    return log_excess(services[0], services[1], ratio), log_excess(of_pods[0], of_pods[1], ratio)


def blame(writers: list[str | None], messages: list[str | None], called: dict[str, list[str]]) -> list[str | None]:
    """Name the service that each line points at.

    >>> blame(["search", "geo"], ["dial tcp: lookup geo failed", "no reachable servers"], {"search": ["geo"]})
    ['geo', 'geo']
    """
    patterns = {
        writer: re.compile(
            r"(?<![\w-])(" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")(?![\w-])"
        )
        for writer, names in called.items()
    }
    known: dict[tuple[str | None, str | None], str | None] = {}
    for line in zip(writers, messages, strict=True):
        if line not in known:
            writer, message = line
            named = patterns[writer].search(message or "") if writer in patterns else None
            known[line] = named[1] if named else writer
    return [known[line] for line in zip(writers, messages, strict=True)]
