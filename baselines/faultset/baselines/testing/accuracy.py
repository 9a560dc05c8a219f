"""Checks that answers are right more often than by chance, and follow from what was known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from faultset.baselines.api.contract import Detection, Diagnosis, Ranking
from faultset.baselines.testing.episodes import Edit, context_renaming, instants, renaming, with_column
from faultset.baselines.testing.trial import BaselineTrial, alarm_time, labelled_faults
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import TABLES


def check_no_look_ahead(trial: BaselineTrial) -> None:
    """A detector's answer up to `t` is the same when nothing after `t` was recorded."""
    if trial.spec.task != "detection":
        return
    cut_ns = alarm_time(trial.examples.faulty.view) + SECOND_NS // 3
    full = trial.expected
    cut = trial.examples.altered(f"cut at {cut_ns}", {name: _before(name, cut_ns) for name in TABLES})
    short = trial.answer(cut)
    assert isinstance(full, Detection)
    assert isinstance(short, Detection)
    count = int((full.times_ns <= cut_ns).sum())
    same = (
        count > 10
        and np.array_equal(full.times_ns[:count], short.times_ns[:count])
        and np.allclose(full.scores[:count], short.scores[:count], rtol=1e-7, atol=0)
        and np.array_equal(full.flags[:count], short.flags[:count])
    )
    assert same, f"{trial.spec.name}: what is recorded later changes earlier scores"


def _before(name: str, cut_ns: int) -> Edit:
    def edit(rows: pa.Table) -> pa.Table:
        known = instants(rows, "scheduled" if name == "requests" else "time")
        if name == "requests":
            # A request that is answered later looks the same as one that never will be.
            latency = rows["latency_ns"].to_numpy()
            late = known + latency > cut_ns
            outcome = np.where(late, "unfinished", np.array(rows["outcome"].to_pylist(), dtype=object))
            rows = with_column(rows, "latency_ns", pa.array(latency, pa.int64(), mask=late))
            rows = with_column(rows, "outcome", pa.array(outcome, pa.string()))
        return rows.filter(pa.array(known < cut_ns))

    return edit


def check_coverage(trial: BaselineTrial) -> None:
    """A detector's samples cover the view after the reference at its resolution."""
    if trial.spec.task != "detection":
        return
    view, found = trial.examples.faulty.view, trial.expected
    assert isinstance(found, Detection)
    step = round(view.context.resolution_s * SECOND_NS)
    times = found.times_ns
    assert len(times), f"{trial.spec.name}: no samples for an episode with telemetry"
    covered = times[0] <= view.reference[1] + 2 * step and times[-1] > view.window[1] - step
    assert covered, f"{trial.spec.name}: samples must reach from the reference to the end of the view"
    assert (np.diff(times) <= step).all(), f"{trial.spec.name}: two samples are more than a step apart"


def check_detection_accuracy(trial: BaselineTrial) -> None:
    """Scores are higher after the onset, and most verdicts are right."""
    if trial.spec.task != "detection" or not trial.spec.tables:
        return
    right = 0
    for item in trial.examples.training:
        found = trial.first_answer(item.view)
        assert isinstance(found, Detection)
        if item.onset_ns is None:
            right += found.alarm_ns is None
            continue
        right += found.alarm_ns is not None and found.alarm_ns > item.onset_ns
        late = found.times_ns > item.onset_ns
        higher = found.scores[late].mean() > found.scores[~late].mean()
        assert higher, f"{trial.spec.name}: scores are not higher after the onset; higher must mean more anomalous"
    count = len(trial.examples.training)
    assert right > count / 2, f"{trial.spec.name}: {right} of {count} verdicts are right, no more than a coin gets"


def check_localization_accuracy(trial: BaselineTrial) -> None:
    """The mean rank of the cause is better than chance, where the localizer answers at all."""
    if trial.spec.task != "localization" or not trial.spec.tables:
        return
    ranks: list[float] = []
    answered = False
    candidates = len(trial.examples.faulty.view.services)
    for item in labelled_faults(trial.examples):
        assert item.onset_ns is not None
        found = trial.fitted().localize(item.view, item.onset_ns + 4 * SECOND_NS)
        assert isinstance(found, Ranking)
        answered |= not found.abstains
        order = found.ordered
        ranks.append(order.index(item.service) + 1 if item.service in order else (len(order) + 1 + candidates) / 2)
    better = float(np.mean(ranks)) < (candidates + 1) / 2
    assert better or not answered, (
        f"{trial.spec.name}: ranks {ranks} of the cause among {candidates} are no better than chance"
    )


def check_taught_answers(trial: BaselineTrial) -> None:
    """A diagnoser answers with a pair that it was taught."""
    if trial.spec.task != "rca":
        return
    found = trial.expected
    assert isinstance(found, Diagnosis)
    pair = (found.system_level, found.fault_type)
    known = {(item.system_level, item.fault_type) for item in labelled_faults(trial.examples)}
    assert pair in known, f"{trial.spec.name}: answers {pair}, which is none of the pairs it was taught"


def check_untaught(trial: BaselineTrial) -> None:
    """A diagnoser that was taught no fault abstains."""
    if trial.spec.task != "rca":
        return
    healthy = [item for item in trial.examples.training if item.fault_type is None]
    for known in ([], healthy):
        made = trial.spec.build()
        found = trial.answer(trial.examples.faulty.view, made.fit(known))  # type: ignore[arg-type]
        assert isinstance(found, Diagnosis)
        assert found.abstains, f"{trial.spec.name}: was taught no fault, but answers {found}"


def check_service_names(trial: BaselineTrial) -> None:
    """A diagnoser answers the same when all services are called something else."""
    if trial.spec.task != "rca":
        return

    names = {name: f"x-{name}" for name in trial.examples.faulty.view.services}
    edits = dict.fromkeys(TABLES, renaming(names))
    view = trial.examples.altered("services renamed", edits, context=context_renaming(names))
    found = trial.answer(view)
    expected = trial.expected
    assert isinstance(found, Diagnosis)
    assert isinstance(expected, Diagnosis)
    same = (found.system_level, found.fault_type) == (expected.system_level, expected.fault_type)
    same &= abs(found.confidence - expected.confidence) < 1e-6
    assert same, f"{trial.spec.name}: answers {found} instead of {expected} when services are renamed"
