"""The table that `collect` prints at its end, and the same as records for `--json`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import click

from faultset.collector.campaigns.collection import CampaignResult
from faultset.collector.verdicts.latent import threshold_for
from faultset.collector.verdicts.verdict import UNCALIBRATED
from faultset.core.command_line.output import show_json, show_records
from faultset.core.printable import brief
from faultset.core.times import SECOND_NS
from faultset.datasets.format.labels import Label
from faultset.datasets.format.truth import read_evidence, read_label

MOST_FALSE_POSITIVES = 0.05
"""Share of healthy services on which the latent test may fire without a word; its limit is drawn for 1 %."""


def print_summary(result: CampaignResult, *, as_json: bool = False) -> None:
    """Print every episode with its verdict, how often the tests fired without a fault, and where the dataset is."""
    ended = {one.episode: one for one in result.episodes}
    labels = {name: read_label(result.root / "episodes" / name) for name, one in ended.items() if not one.failure}
    rows = []
    for plan in sorted(
        result.plans, key=lambda p: (p.fault is None, p.fault_name or p.no_fault_kind or "", p.target_name)
    ):
        label, one = labels.get(plan.episode), ended.get(plan.episode)
        failure = one.failure if one else "not run"
        rows.append(
            {
                "episode": plan.episode,
                "fault": plan.fault_name or "none",
                "target": plan.target_name or plan.no_fault_kind,
                "verdict": "failed" if failure else label and label.verdict,
                "manifest after s": label and _seconds(label.first_manifest_ns, label.inject_start_ns),
                "healthy again after s": label and _seconds(label.healthy_again_ns, label.recover_start_ns),
                "attempts": one.attempts if one else 0,
                "why": failure,
                "source failures": dict(one.outcome.source_failures) if one else {},
            }
        )
    if as_json:
        episodes = [{name.replace(" ", "_"): value for name, value in row.items()} for row in rows]
        show_json(
            {
                "dataset": result.location,
                "version": result.version,
                "campaign": result.campaign,
                "wall_s": round(result.wall_s, 1),
                "unsupported": dict(result.unsupported),
                "episodes": episodes,
            }
        )
        return
    rows = [row | {"why": brief(row["why"])} for row in rows]
    hidden = {"attempts", "source failures"} | ({"why"} if not any(row["why"] for row in rows) else set())
    show_records(rows, columns=[name for name in rows[0] if name not in hidden])
    for sentence in _false_positives(result, labels):
        click.echo(sentence)
    done, total = len(labels), len(result.plans)
    version = f"version {result.version}" if result.version else "without a version"
    click.echo(f"{done} of {total} episodes in {result.wall_s / 60:.1f} min; dataset {result.location}, {version}")
    for sentence in _source_failures(result):
        click.echo(sentence, err=True)
    if done:
        click.echo(f"next: evaluate {shlex.quote(str(result.location))}")


def _source_failures(result: CampaignResult) -> list[str]:
    failures: dict[str, list[str]] = {}
    for one in result.episodes:
        for name, reason in one.outcome.source_failures.items():
            failures.setdefault(name, []).append(reason)
    count = len(result.episodes)
    return [
        f"the source {name} has recorded nothing in {len(reasons)} of {count} episodes; first: {reasons[0]}"
        for name, reasons in failures.items()
    ]


def _seconds(end_ns: int | None, start_ns: int | None) -> float | None:
    return None if end_ns is None or start_ns is None else round((end_ns - start_ns) / SECOND_NS, 1)


def _false_positives(result: CampaignResult, labels: Mapping[str, Label]) -> list[str]:
    kinds = {episode: label.no_fault_kind for episode, label in labels.items() if label.fault is None}
    plain = [episode for episode, kind in kinds.items() if kind == "plain"]
    changed = [episode for episode in kinds if episode not in plain]
    sentences = []
    if plain:
        sli, latent, services = _fired(result, plain)
        sentence = f"on {len(plain)} plain episodes the SLI test fired {sli} times" + (
            f" and the latent test on {latent} of {services} services"
            if services
            else f"; the latent test is {UNCALIBRATED}"
        )
        if sli or latent > MOST_FALSE_POSITIVES * services:
            sentence += (
                ", which is more than chance; see truth/evidence.parquet, and collect again "
                "with --fresh on a machine with less other work or with fewer --jobs"
            )
        sentences.append(sentence)
    if changed:
        noticed = _fired(result, changed)[0]
        sentences.append(f"on {len(changed)} disturbed and sham episodes clients noticed {noticed} times what was done")
    return sentences


def _fired(result: CampaignResult, episodes: Sequence[str]) -> tuple[int, int, int]:
    """Return in how many episodes the SLI test fired, on how many services the latent test did, and of how many."""
    sli = latent = services = 0
    calibrated = {
        plan.episode
        for plan in result.plans
        if threshold_for(plan.app, plan.platform, plan.step_s, plan.traffic.name) is not None
    }
    for episode in episodes:
        evidence = read_evidence(result.root / "episodes" / episode)
        sli += bool(evidence.loc[evidence["check"] == "sli", "passed"].any())
        if episode in calibrated:
            fired = evidence.loc[evidence["check"] == "latent", "passed"]
            latent, services = latent + int(fired.sum()), services + len(fired)
    return sli, latent, services
