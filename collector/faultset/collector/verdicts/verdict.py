"""Verdict of an episode from its evidence: manifest, latent, silent, or unknown without a calibrated latent test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from faultset.collector.verdicts.client_requests import (
    ClientImpact,
    ComparisonWindows,
    client_impact,
    sli_evidence,
    unsteady_reason,
)
from faultset.collector.verdicts.latent import LatentScore, service_scores


def void_reason(impact: ClientImpact, *, faulty: Sequence[str], services_reached: Mapping[str, frozenset[str]]) -> str:
    """Say why the tests after the injection mean nothing; empty when they do.

    Parameters
    ----------
    faulty
        Services that a fault was applied to; none without one.
    services_reached
        For each endpoint the services that its requests can reach; one that is missing may reach all.
    """
    reason = unsteady_reason(impact.earlier_changes)
    if reason or not faulty:
        return reason
    if impact.is_doubtful:
        return f"client requests had moved before the injection, and hardly more after it: {impact.earlier_changes[0]}"
    moved = [test for test in impact.tests if test.fires]
    if not moved or any(not services_reached.get(test.endpoint, {*faulty}).isdisjoint(faulty) for test in moved):
        return ""
    return f"client requests moved that cannot reach {' or '.join(faulty)}: {moved[0]}"


UNCALIBRATED = "not calibrated for this application, platform, step and load"
"""How the detail of a latent test ends that says nothing."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Verdict with the rows of evidence behind it.

    Attributes
    ----------
    verdict
        manifest, latent or silent; unknown where clients felt nothing and the latent test is not calibrated; in a
        no-fault episode what the same tests say of it, which should be silent.
    first_manifest_ns
        End of the first second in which the SLI test fires.
    void_reason
        Why the episode says nothing about its fault; empty when it does.
    """

    verdict: str
    first_manifest_ns: int | None
    evidence: tuple[dict[str, Any], ...]
    sli_fires: bool
    latent_fires: bool
    void_reason: str = ""


def judge(
    requests: pd.DataFrame,
    wide: pd.DataFrame,
    windows: ComparisonWindows,
    *,
    messages: pd.DataFrame | None = None,
    targets: Sequence[str],
    faulty: Sequence[str] = (),
    services_reached: Mapping[str, frozenset[str]] | None = None,
    limit: float | None,
    load_varies: bool = False,
) -> Judgement:
    """Test client requests and the targets' telemetry after the onset against the healthy reference.

    Parameters
    ----------
    messages
        What `deliveries` returns, which is tested beside the requests of clients; None where no queue is.
    targets
        Services whose own telemetry decides between latent and silent; in a no-fault episode all services.
    faulty
        Services that a fault was applied to; none without one.
    services_reached
        For each endpoint the services that its requests can reach; one that is missing may reach all.
    limit
        Score above which a service's telemetry counts as moved; None where the latent test is not calibrated.
    load_varies
        Whether the rate of requests changes by itself, so that latencies are compared within strata of the load.
    """
    impact = client_impact(requests, messages, windows, load_varies=load_varies)
    rows = sli_evidence(impact)
    scores = service_scores(wide, reference_end_ns=windows.reference_end_ns, onset_ns=windows.onset_ns)
    by_service = {score.service: score for score in scores}
    moved = [by_service.get(t, LatentScore(service=t, score=0.0, series="")) for t in targets]
    rows += [
        {
            "check": "latent",
            "subject": f"{score.service} {score.series}",
            "time": None,
            "passed": limit is not None and score.score > limit,
            "statistic": score.score,
            "p_value": None,
            "detail": f"largest robust |z| kept for three samples {score.score:.1f}, "
            + (UNCALIBRATED if limit is None else f"limit {limit:.1f}"),
        }
        for score in moved
    ]
    latent_fires = limit is not None and any(score.score > limit for score in moved)
    otherwise = "latent" if latent_fires else "unknown" if limit is None else "silent"
    return Judgement(
        verdict="manifest" if impact.is_manifest else otherwise,
        first_manifest_ns=impact.first_manifest_ns,
        evidence=tuple(rows),
        sli_fires=impact.is_manifest,
        latent_fires=latent_fires,
        void_reason=void_reason(impact, faulty=faulty, services_reached=services_reached or {}),
    )
