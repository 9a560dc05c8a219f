"""Output of commands that run episodes: plans, progress and a summary."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from faultset.collector.campaigns.collection import CampaignResult
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.executors import CampaignProgress
from faultset.collector.plans.campaign_plans import describe_campaign, duration_text, episode_time_s
from faultset.collector.plans.plan import Plan, random_draws
from faultset.collector.platforms.hosts import open_host
from faultset.collector.verdicts.latent import threshold_for
from faultset.collector.verdicts.verdict import UNCALIBRATED
from faultset.core.output import is_quiet, show_json, show_records
from faultset.core.printable import brief, count_text
from faultset.core.times import SECOND_NS
from faultset.datasets.format.incidents import read_incidents
from faultset.datasets.format.labels import Label, read_evidence, read_label
from faultset.datasets.format.recordings import RECORDINGS, read_chunks


def default_jobs(platform: str, scheduler: str | None) -> int:
    """Return the default number of concurrent episodes; 1 if it depends on a cluster."""
    return open_host(platform, {}).episode_capacity() if platform == "local" and scheduler is None else 1


def show_plans(plans: Sequence[Plan], jobs: int, *, as_json: bool) -> None:
    """Print plans by application, fault and target, then their number, time and disk space."""
    if any(plan.recording for plan in plans):
        show_recordings(plans, jobs, as_json=as_json)
        return
    rows = [
        {
            "episode": plan.episode,
            "app": plan.app,
            "fault": plan.fault_name or f"none ({plan.no_fault_kind})",
            "target": plan.target_name,
            "onset_s": round(random_draws(plan).onset_s, 1),
            "view_s": plan.phases.view_s,
            "rate_rps": plan.rate_rps,
            "load": plan.traffic.pattern.as_text(),
            "mix": plan.mix,
            "seed": str(plan.seed),
        }
        for plan in sorted(plans, key=lambda plan: (plan.app, *_sort_key(plan)))
    ]
    show_records(rows, columns=list(rows[0]), as_json=as_json)
    click.echo(describe_campaign(plans, jobs), err=as_json)


def show_recordings(plans: Sequence[Plan], jobs: int, *, as_json: bool) -> None:
    """Print the incidents of planned recordings, then their number, time and disk space."""
    rows = [
        {
            "recording": plan.episode,
            "app": plan.app,
            "after_s": round(incident.at_s, 1),
            "length_s": round(incident.length_s, 1),
            "fault": incident.fault,
            "target": incident.target,
            "overlaps": incident.overlaps,
        }
        for plan in plans
        for incident in (plan.recording.incidents if plan.recording else ())
    ]
    if rows or as_json:
        columns = ["recording", "app", "after_s", "length_s", "fault", "target", "overlaps"]
        show_records(rows, columns=columns, as_json=as_json)
    click.echo(describe_campaign(plans, jobs), err=as_json)


def print_recordings(result: CampaignResult, *, as_json: bool = False) -> None:
    """Print the length, incidents and verdicts of a campaign's recordings, and the dataset's location."""
    rows = []
    for plan in result.plans:
        folder = result.root / RECORDINGS / plan.episode
        chunks = read_chunks(folder)
        incidents = read_incidents(folder, chunks)
        verdicts = Counter(incident.verdict for incident in incidents)
        failure = next((episode.failure for episode in result.episodes if episode.episode == plan.episode), "not run")
        rows.append(
            {
                "recording": plan.episode,
                "app": plan.app,
                "minutes": round(sum(chunk.end_ns - chunk.start_ns for chunk in chunks) / 60 / SECOND_NS, 1),
                "chunks": len(chunks),
                "segments": chunks[-1].segment if chunks else 0,
                "incidents": len(incidents),
                "verdicts": ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())),
                "why": failure,
            }
        )
    if as_json:
        show_json(_describe_result(result) | {"recordings": rows})
        return
    hidden = set() if any(row["why"] for row in rows) else {"why"}
    show_records([row | {"why": brief(row["why"])} for row in rows], columns=[n for n in rows[0] if n not in hidden])
    click.echo(f"{count_text(len(rows), 'recording')} {_describe_location(result)}")
    location = shlex.quote(str(result.location))
    click.echo(f"next: faultset dataset verify {location}, then faultset dataset show {location}")


def _sort_key(plan: Plan) -> tuple[bool, str, str]:
    return plan.fault is None, plan.fault_name or plan.no_fault_kind or "", plan.target_name


MAX_FALSE_POSITIVES = 0.05
"""Warn if the latent test fires on more than this share of healthy services; it is calibrated for 1 %."""


def print_summary(result: CampaignResult, *, as_json: bool = False) -> None:
    """Print the episodes with their verdicts, the false positives, and the dataset's location."""
    if any(plan.recording for plan in result.plans):
        print_recordings(result, as_json=as_json)
        return
    results = {episode.episode: episode for episode in result.episodes}
    labels = {name: read_label(result.root / "episodes" / name) for name in results if not results[name].failure}
    plans = sorted(result.plans, key=_sort_key)
    rows = [_describe_episode(plan, results.get(plan.episode), labels.get(plan.episode)) for plan in plans]
    if as_json:
        episodes = [{name.replace(" ", "_"): value for name, value in row.items()} for row in rows]
        show_json(_describe_result(result) | {"episodes": episodes})
        return
    rows = [row | {"why": brief(row["why"])} for row in rows]
    hidden = {"attempts", "source failures"} | ({"why"} if not any(row["why"] for row in rows) else set())
    show_records(rows, columns=[name for name in rows[0] if name not in hidden])
    for sentence in _describe_false_positives(result, labels):
        click.echo(sentence)
    done, total = len(labels), len(result.plans)
    click.echo(f"{done} of {count_text(total, 'episode')} {_describe_location(result)}")
    if causes := Counter(void.cause for void in result.voids):
        counts = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
        click.echo(f"{count_text(causes.total(), 'void attempt')}: {counts}", err=True)
    for sentence in _describe_source_failures(result):
        click.echo(sentence, err=True)
    if done:
        location = shlex.quote(str(result.location))
        click.echo(f"next: faultset dataset verify {location} --shortcuts, then evaluate {location}")


def _describe_location(result: CampaignResult) -> str:
    version = f"version {result.version}" if result.version else "without a version"
    return f"in {result.wall_s / 60:.1f} min; dataset {result.location}, {version}"


def _describe_result(result: CampaignResult) -> dict[str, Any]:
    return {
        "dataset": result.location,
        "version": result.version,
        "campaign": result.campaign,
        "wall_s": round(result.wall_s, 1),
        "unsupported": dict(result.unsupported),
    }


def _describe_episode(plan: Plan, result: EpisodeResult | None, label: Label | None) -> dict[str, Any]:
    failure = result.failure if result else "not run"
    return {
        "episode": plan.episode,
        "fault": plan.fault_name or "none",
        "target": plan.target_name or plan.no_fault_kind,
        "verdict": "failed" if failure else label and label.verdict,
        "manifest after s": label and _elapsed_s(label.inject_start_ns, label.first_manifest_ns),
        "healthy again after s": label and _elapsed_s(label.recover_start_ns, label.healthy_again_ns),
        "attempts": result.attempts if result else 0,
        "why": failure,
        "source failures": dict(result.outcome.source_failures) if result else {},
    }


def _describe_source_failures(result: CampaignResult) -> list[str]:
    failures: dict[str, list[str]] = {}
    for episode in result.episodes:
        for name, reason in episode.outcome.source_failures.items():
            failures.setdefault(name, []).append(reason)
    count = len(result.episodes)
    return [
        f"the source {name} recorded nothing in {len(reasons)} of {count_text(count, 'episode')}; first: {reasons[0]}"
        for name, reasons in failures.items()
    ]


def _elapsed_s(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if end_ns is None or start_ns is None else round((end_ns - start_ns) / SECOND_NS, 1)


def _describe_false_positives(result: CampaignResult, labels: Mapping[str, Label]) -> list[str]:
    kinds = {episode: label.no_fault_kind for episode, label in labels.items() if label.fault is None}
    plain = [episode for episode, kind in kinds.items() if kind == "plain"]
    changed = [episode for episode in kinds if episode not in plain]
    sentences = []
    if plain:
        sli, latent, services = _count_fired(result, plain)
        sentence = f"{count_text(len(plain), 'plain episode')}: the test of client requests fired in {sli}" + (
            f", and the latent test on {latent} of {count_text(services, 'service')}"
            if services
            else f"; the latent test is {UNCALIBRATED}"
        )
        if sli or latent > MAX_FALSE_POSITIVES * services:
            sentence += (
                ", which is more than chance; see truth/evidence.parquet, and collect again "
                "with --fresh on a less busy machine or with fewer --jobs"
            )
        sentences.append(sentence)
    if changed:
        noticed = _count_fired(result, changed)[0]
        sentences.append(
            f"{count_text(len(changed), 'disturbed or sham episode')}: clients noticed the change in {noticed}"
        )
    return sentences


def _count_fired(result: CampaignResult, episodes: Sequence[str]) -> tuple[int, int, int]:
    """Return the numbers of fired SLI tests, of fired latent tests and of all latent tests."""
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


def describe(result: EpisodeResult) -> str:
    plan, logs = result.plan, result.outcome.logs
    if result.failure:
        ending = f"failed: {brief(result.failure)}" + (f" (logs in {logs})" if logs else "")
    elif not result.attempts:
        ending = "was already collected"
    elif repairs := result.outcome.mitigations:
        ending = f"{'repaired' if repairs[-1].success else 'not repaired'} in {result.wall_s:.0f} s"
        if len(repairs) > 1:
            ending += f" ({len(repairs)} repairs in turn)"
    elif plan.recording is not None:
        ending = f"written in {result.wall_s / 60:.0f} min"
    else:
        ending = f"{result.verdict if plan.fault else 'no fault'} in {result.wall_s:.0f} s"
    return f"{plan.episode}  {plan.title}: {ending}"


def format_wait_reason(state: CampaignProgress) -> str:
    """Return a line with the reason why no further episode starts, or an empty string."""
    return f"{count_text(state.waiting, 'waiting episode')}: {state.wait_reason}" if state.wait_reason else ""


def remaining_s(state: CampaignProgress, now_s: float) -> float:
    """Estimate a campaign's remaining time at monotonic `now_s` from the duration of its finished episodes."""
    durations_s = [episode.wall_s for episode in state.finished if episode.attempts and not episode.failure]
    if not durations_s:
        durations_s = [episode_time_s(episode.plan) for episode in state.running.values()]
    mean_s = sum(durations_s) / max(1, len(durations_s))
    left_s = [
        max(0.0, mean_s - state.recorded_earlier_s.get(name, 0.0) - (now_s - episode.started))
        for name, episode in state.running.items()
    ]
    return max([*left_s, (sum(left_s) + state.waiting * mean_s) / max(1, len(left_s))])


def time_left(state: CampaignProgress, now_s: float) -> str:
    """Return a campaign's remaining time in words; empty at its end."""
    return f"about {duration_text(remaining_s(state, now_s))} left" if state.running or state.waiting else ""


def raise_interrupted(done: int, total: int, unit: str, version: str = "") -> NoReturn:
    """Print how many episodes or attempts were completed before Ctrl-C and their version; end the command."""
    version_note = f" (version {version} contains the recording so far)" if version else ""
    click.echo(
        f"stopped with {done} of {count_text(total, unit)}{version_note}. Run the same command again to continue",
        err=True,
    )
    raise KeyboardInterrupt


QUIET_S = 600
"""Longest time without a line of progress in a log file."""


@contextmanager
def show_progress() -> Iterator[Callable[[CampaignProgress], None]]:
    """Yield a function that shows the state of a campaign whenever it is called."""
    if is_quiet():
        yield lambda state: None
        return
    if sys.stderr.isatty():
        with _show_bars() as show:
            yield show
        return
    printed_episodes: set[str] = set()
    notice_count, reason, last_s = 0, "", time.monotonic()

    def print_lines(state: CampaignProgress) -> None:
        nonlocal notice_count, reason, last_s
        total = len(state.running) + len(state.finished) + state.waiting
        for notice in state.notices[notice_count:]:
            print(notice, file=sys.stderr, flush=True)
        notice_count = len(state.notices)
        if state.wait_reason and not reason:
            print(format_wait_reason(state), file=sys.stderr, flush=True)
        reason = state.wait_reason
        for result in state.finished:
            if result.episode not in printed_episodes:
                printed_episodes.add(result.episode)
                remaining = time_left(state, time.monotonic())
                line = f"[{len(printed_episodes)}/{total}] {describe(result)}" + (f"; {remaining}" if remaining else "")
                print(line, file=sys.stderr, flush=True)
                last_s = time.monotonic()
        if state.running and time.monotonic() - last_s >= QUIET_S:
            last_s = time.monotonic()
            phases = ", ".join(f"{name} {episode.phase}" for name, episode in state.running.items())
            print(f"{_describe_state(state, total)}; {phases}", file=sys.stderr, flush=True)

    yield print_lines


def _describe_state(state: CampaignProgress, total: int) -> str:
    notes = (time_left(state, time.monotonic()), format_wait_reason(state))
    return ", ".join([f"{len(state.finished)}/{total}", *(note for note in notes if note)])


def _short_title(plan: Plan) -> str:
    return f"{plan.fault_name or 'no fault'} {plan.target_name or plan.no_fault_kind}"


@contextmanager
def _show_bars() -> Iterator[Callable[[CampaignProgress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    campaign_task = bars.add_task("campaign", state="")
    tasks: dict[str, TaskID] = {}
    notice_count = 0

    def draw(state: CampaignProgress) -> None:
        nonlocal notice_count
        total, done = len(state.running) + len(state.finished) + state.waiting, len(state.finished)
        bars.update(campaign_task, total=total, completed=done, state=_describe_state(state, total))
        for notice in state.notices[notice_count:]:
            bars.console.print(notice, markup=False)
        notice_count = len(state.notices)
        for name in [name for name in tasks if name not in state.running]:
            bars.remove_task(tasks.pop(name))
        for name, episode in state.running.items():
            plan = episode.plan
            if name not in tasks:
                tasks[name] = bars.add_task(
                    plan.title if plan.recording else _short_title(plan), total=episode_time_s(plan), state=""
                )
            elapsed_s = state.recorded_earlier_s.get(name, 0.0) + time.monotonic() - episode.started
            bars.update(tasks[name], completed=elapsed_s, state=episode.phase)

    with bars:
        yield draw
