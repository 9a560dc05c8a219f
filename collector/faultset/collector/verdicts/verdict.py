"""Verdict of an episode: manifest, latent, silent, or unknown without a calibrated latent test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.plans.plan import Plan
from faultset.collector.verdicts.client_requests import (
    UNTIMED,
    ClientImpact,
    ComparisonWindows,
    client_impact,
    sli_evidence,
    unsteady_reason,
)
from faultset.collector.verdicts.latent import LatentScore, service_scores
from faultset.datasets.metrics.roles import Catalogue, MetricRole
from faultset.datasets.views import EpisodeView

SPAN_COLUMNS = ("time", "span_id", "parent_span_id", "service", "kind", "duration_ns", "status", "attributes")
"""Columns of the table `spans` that `find_deliveries` needs."""
MIN_PROCESSED = 0.9
"""Smallest share of messages that a healthy service processes; otherwise its spans are incomplete."""


def find_deliveries(spans: pd.DataFrame, *, healthy_until_ns: int) -> pd.DataFrame:
    """Return a row for every published message and every service that consumes messages of that destination.

    A consumer's span identifies its message by its parent or by a link to the producer's span, according to
    OpenTelemetry's semantic conventions for messaging. Of several spans for one message, the first successful one
    counts. Services with too few messages in the healthy time are left out, because their spans are incomplete.

    Parameters
    ----------
    spans
        Rows of the table `spans`, with at least the columns `SPAN_COLUMNS`.
    healthy_until_ns
        End of the healthy time, in UTC nanoseconds.

    Returns
    -------
    DataFrame
        `scheduled` (when the message was published), `endpoint` (such as "orders to accounting"),
        `outcome` ("ok", "http_error" if the consumer's span failed, or "unfinished"), `status` (always missing),
        `latency_ns` (from the publication until the message was processed; missing if it was not), and `untimed`
        (always true, because the tests check whether messages are processed, not how long that takes).
    """
    expected = _list_expected_deliveries(spans)
    unprocessed = expected["end"].isna()
    healthy = expected["scheduled"] < healthy_until_ns
    shares = (~unprocessed)[healthy].groupby(expected["endpoint"][healthy]).mean()
    complete = expected["endpoint"].isin(shares.index[shares >= MIN_PROCESSED])
    outcome = np.where(unprocessed, "unfinished", np.where(expected["failed"].eq(True), "http_error", "ok"))
    rows = pd.DataFrame(
        {
            "scheduled": pd.to_datetime(expected["scheduled"], unit="ns", utc=True),
            "endpoint": expected["endpoint"],
            "outcome": outcome,
            "status": pd.array([pd.NA] * len(expected), dtype="Int32"),
            "latency_ns": expected["end"].astype("Int64") - expected["scheduled"],
            UNTIMED: True,
        }
    )
    return rows[complete].sort_values("scheduled", ignore_index=True)


def _list_expected_deliveries(spans: pd.DataFrame) -> pd.DataFrame:
    """Return every message with each service that consumes its destination, and when that service processed it."""
    kind = spans["kind"].astype(str)
    producer_spans, consumer_spans = spans[kind == "producer"], spans[kind == "consumer"]
    messages = pd.DataFrame(
        {
            "message": producer_spans["span_id"].astype(str).to_numpy(),
            "scheduled": producer_spans["time"].astype("int64").to_numpy(),
            "destination": _list_destinations(producer_spans),
        }
    )
    pairs = pd.DataFrame(list(_list_consumptions(consumer_spans)), columns=["message", "service", "end", "failed"])
    pairs = pairs.sort_values(["failed", "end"]).drop_duplicates(["message", "service"])
    consumers = pairs.merge(messages, on="message")[["destination", "service"]].drop_duplicates()
    expected = messages.merge(consumers, on="destination").merge(pairs, on=["message", "service"], how="left")
    expected["endpoint"] = expected["destination"].astype(str) + " to " + expected["service"].astype(str)
    return expected


def _list_destinations(spans: pd.DataFrame) -> list[str]:
    return [str(json.loads(text).get("messaging.destination.name", "")) for text in spans["attributes"]]


def _list_consumptions(spans: pd.DataFrame) -> Iterator[tuple[str, str, int, bool]]:
    """Yield (producer's span, consuming service, end, whether it failed) for every message of a consumer's span."""
    ends = spans["time"].astype("int64").to_numpy() + spans["duration_ns"].to_numpy(dtype="int64")
    rows = zip(spans["parent_span_id"], spans["attributes"], spans["service"], ends, spans["status"], strict=True)
    for parent, text, service, end, status in rows:
        links = json.loads(text).get("otel.links", ())
        for message in {str(link).rpartition("-")[2] for link in links} or {parent}:
            if isinstance(message, str):
                yield message, str(service), int(end), str(status) == "error"


def void_reason(impact: ClientImpact, *, faulty: Sequence[str], services_reached: Mapping[str, frozenset[str]]) -> str:
    """Return why an episode's requests make it void; empty when it is valid.

    `faulty` are the services with a fault. `services_reached` are the services that an endpoint's requests can reach;
    missing endpoints may reach all.
    """
    reason = unsteady_reason(impact.earlier_changes)
    if reason or not faulty:
        return reason
    if impact.is_doubtful:
        return (
            "client requests had changed before the injection, and changed little after it: "
            f"{impact.earlier_changes[0]}"
        )
    changes = [test for test in impact.tests if test.fires]
    if not changes or any(not services_reached.get(test.endpoint, {*faulty}).isdisjoint(faulty) for test in changes):
        return ""
    return f"client requests changed, but none of them can reach {' or '.join(faulty)}: {changes[0]}"


LATENT = "latent"
"""Check of evidence rows of the latent test."""
UNCALIBRATED = "not calibrated for this application, platform, step and load"
"""Reason in the evidence of a latent test that has no limit."""
_REPLACED_REASON = "not applied, because a harmless change replaced pods after the onset"
"""Reason in the evidence of a latent test whose target got new pods."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Verdict and its evidence."""

    verdict: str
    """manifest, latent or silent; unknown if clients noticed nothing and the latent test is not calibrated. Episodes
    without a fault should be silent.
    """
    first_manifest_ns: int | None
    """End of the first second in which the SLI test fires."""
    evidence: tuple[dict[str, Any], ...]
    impact: ClientImpact
    """Result of the tests on client requests and messages."""
    void_reason: str = ""
    """Why the episode is void; empty when it is valid."""


UNJUDGED = Judgement(
    verdict="unknown",
    first_manifest_ns=None,
    evidence=(),
    impact=ClientImpact(tests=(), is_manifest=False, first_manifest_ns=None, earlier_changes=(), is_doubtful=False),
)
"""Judgement of a fault without a healthy time to compare with."""


def judge_episode(
    view: EpisodeView,
    plan: Plan,
    *,
    onset_ns: int,
    limit: float | None,
    rolled_out: Mapping[str, int] = MappingProxyType({}),
    services_reached: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Judgement:
    """Judge an episode by its telemetry.

    `limit` is the score above which a service's telemetry counts as changed; None if the latent test is not calibrated.
    `rolled_out` says when (ns) a harmless change last replaced the pods of each service; a target whose pods were
    replaced after the onset is not judged by its telemetry. For `services_reached` see `void_reason`.
    """
    start_ns, end_ns = view.window
    faulty = [planned.target for planned in plan.faults]
    has_message = pc.field("kind").cast(pa.string()).isin(["producer", "consumer"])
    message_spans = view.table("spans", SPAN_COLUMNS).filter(has_message).to_pandas()
    windows = ComparisonWindows(start_ns=start_ns, reference_end_ns=view.reference[1], onset_ns=onset_ns, end_ns=end_ns)
    added = Catalogue(MetricRole(**role) for role in view.context.metric_roles)
    is_replaced = any(rolled_out.get(target, 0) >= onset_ns for target in faulty)
    judgement = judge(
        view.requests(),
        drop_added_metrics(view.wide(plan.step_s), added),
        windows,
        messages=find_deliveries(message_spans, healthy_until_ns=windows.reference_end_ns),
        targets=faulty or [name for name in view.context.services if name not in rolled_out],
        limit=None if is_replaced else limit,
        missing_limit=_REPLACED_REASON if is_replaced else UNCALIBRATED,
        load_varies=not plan.traffic.pattern.is_constant,
    )
    return replace(
        judgement, void_reason=void_reason(judgement.impact, faulty=faulty, services_reached=services_reached)
    )


def drop_added_metrics(wide: pd.DataFrame, added: Catalogue) -> pd.DataFrame:
    """Drop metrics of added sources, so that the verdicts of all campaigns use the same metrics."""
    names = [str(metric).partition("{")[0] for _, metric in wide.columns]
    return wide.loc[:, [added.find(name) is None and added.role_of(name) == "other" for name in names]]


def judge(
    requests: pd.DataFrame,
    wide: pd.DataFrame,
    windows: ComparisonWindows,
    *,
    messages: pd.DataFrame | None = None,
    targets: Sequence[str],
    limit: float | None,
    missing_limit: str = UNCALIBRATED,
    load_varies: bool = False,
) -> Judgement:
    """Test client requests and the targets' telemetry after the onset against the healthy reference.

    `messages` is the result of `find_deliveries`. The telemetry of `targets` decides between latent and silent; in an
    episode without a fault, of all services. `missing_limit` says why `limit` is None. For `load_varies` see
    `client_impact`.
    """
    impact = client_impact(requests, messages, windows, load_varies=load_varies)
    rows = sli_evidence(impact)
    scores = service_scores(wide, reference_end_ns=windows.reference_end_ns, onset_ns=windows.onset_ns)
    target_scores = select_scores(targets, scores)
    rule = missing_limit if limit is None else f"limit {limit:.1f}"
    rows += [latent_evidence(score, limit, rule) for score in target_scores]
    target_changed = limit is not None and any(score.score > limit for score in target_scores)
    other_verdict = "latent" if target_changed else "unknown" if limit is None else "silent"
    return Judgement(
        verdict="manifest" if impact.is_manifest else other_verdict,
        first_manifest_ns=impact.first_manifest_ns,
        evidence=tuple(rows),
        impact=impact,
    )


def select_scores(services: Sequence[str], scores: Iterable[LatentScore]) -> list[LatentScore]:
    """Return the scores of some services; 0 for one without telemetry."""
    by_service = {score.service: score for score in scores}
    return [by_service.get(name, LatentScore(service=name, score=0.0, series="")) for name in services]


def latent_evidence(
    score: LatentScore, limit: float | None, rule: str, *, p_value: float | None = None
) -> dict[str, Any]:
    """Return the evidence row of a service's latent test; `rule` describes the limit, or says why it is None."""
    return {
        "check": LATENT,
        "subject": f"{score.service} {score.series}",
        "time": None,
        "passed": limit is not None and score.score > limit,
        "statistic": score.score,
        "p_value": p_value,
        "detail": f"largest robust |z| that lasted for three samples: {score.score:.1f}, {rule}",
    }
