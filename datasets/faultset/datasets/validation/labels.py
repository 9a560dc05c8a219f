"""Whether a label can be: its times in order, its targets among the candidates."""

from __future__ import annotations

from collections.abc import Iterator

from faultset.core.printable import quoted
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.labels import Label

_INSTANTS = ("inject_start", "inject_done", "recover_start", "recover_done")


def label_problems(context: EpisodeContext, label: Label) -> Iterator[str]:
    """Say how the label of an episode contradicts itself or the context."""
    if label.episode != context.episode:
        yield f"names another episode: context {context.episode}, label {label.episode}"
    for name in ("view_start", "view_end", "reference_end"):
        if getattr(label, f"{name}_ns") != getattr(context, f"{name}_ns"):
            yield f"{name} differs between label and context"
    for service in sorted({*label.targets, *_cause_services(label)} - set(context.services)):
        yield f"{quoted(service)} is a target or root cause but not among the candidates"
    if label.fault is None:
        wanted = "unknown" if label.no_fault_kind == "unlabelled" else "none"
        if label.verdict != wanted:
            yield f'an episode without a fault must have the verdict "{wanted}", not "{label.verdict}"'
        if label.targets or label.root_causes or label.faults:
            yield "an episode without a fault has targets or root causes"
        return
    if not label.targets:
        yield "a fault without a target"
    yield from _of_each(label)
    if label.verdict not in ("manifest", "latent", "silent", "unknown"):
        yield f'verdict "{label.verdict}" must be manifest, latent, silent or unknown'
    if label.inject_start_ns is None:
        yield "a fault without the time of its injection"
        return
    if not context.reference_end_ns <= label.inject_start_ns < context.view_end_ns:
        yield "the injection does not start between the reference window and the end of the view"
    instants = [at_ns for name in _INSTANTS if (at_ns := getattr(label, f"{name}_ns")) is not None]
    if instants != sorted(instants):
        yield f"{', '.join(_INSTANTS)} are not in order"
    for name, at_ns in (("effective", label.effective_ns), ("first_manifest", label.first_manifest_ns)):
        if at_ns is not None and not context.view_start_ns <= at_ns < context.view_end_ns:
            yield f"{name} lies outside the view"
    if label.recover_start_ns is not None and label.recover_start_ns < context.view_end_ns:
        yield "the recovery starts before the view ends"


def _of_each(label: Label) -> Iterator[str]:
    """Say how the faults of an episode contradict what is said of all of them."""
    if not label.faults:
        return
    if {one.fault for one in label.faults} != {*str(label.fault).split(" + ")}:
        yield f"the fault {quoted(str(label.fault))} is not what its faults are called"
    if {one.target for one in label.faults} != {*label.targets}:
        yield "the targets are not those of its faults"
    for one in label.faults:
        instants = [at_ns for at_ns in (one.inject_start_ns, one.inject_done_ns, one.effective_ns) if at_ns is not None]
        if instants != sorted(instants):
            yield f"times of {quoted(one.fault)} are not in order"
        bounds = [bound for interval in one.intervals for bound in (interval.begin_ns, interval.end_ns)]
        if bounds != sorted(bounds) or (bounds and bounds[0] < (one.inject_start_ns or 0)):
            yield f"the intervals of {quoted(one.fault)} are not in order, or begin before its injection"


def _cause_services(label: Label) -> set[str]:
    return {cause.service for cause in label.root_causes if cause.service}
