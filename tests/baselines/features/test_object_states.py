"""Successful rollouts differ from failed pods, and their metrics are no evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from faultset.baselines.features.evidence import metric_evidence
from faultset.baselines.features.object_states import Rollout, successful_rollouts
from faultset.baselines.features.windows import localization_windows
from tests.baselines.conftest import SECOND, Observe

READY = {"phase": "Running", "ready": True, "containers": [{"state": "running", "restartCount": 0}]}
STARTING = READY | {"ready": False}
ENDING = READY | {"reason": "Terminating"}
CRASHED = {"phase": "Running", "ready": True, "containers": [{"state": "running", "restartCount": 1}]}
NO_IMAGE = {"phase": "Pending", "ready": False, "containers": [{"state": "waiting", "reason": "ErrImagePull"}]}
FAILED = {"phase": "Failed", "ready": False, "containers": []}
Seen = list[tuple[int, dict[str, Any]]]


def seen(state: dict[str, Any], since: int, until: int = 120) -> Seen:
    return [(at, state) for at in range(since, until, 10)]


def pods(old: Seen, new: Seen) -> dict[tuple[str, str, str], Seen]:
    return {("Pod", "geo-old", "geo"): old, ("Pod", "geo-new", "geo"): new}


PLANNED = pods([*seen(READY, 0, 85), (85, ENDING)], [(75, STARTING), (84, READY), *seen(READY, 90)])


def test_a_rollout_lasts_from_the_first_sight_of_the_new_pod_to_the_last_of_the_old_one(observe: Observe) -> None:
    view, alarm_ns = observe(PLANNED)
    start_ns = view.window[0]
    assert successful_rollouts(view, alarm_ns) == {
        "geo": Rollout(start_ns=start_ns + 75 * SECOND, end_ns=start_ns + 85 * SECOND)
    }


@pytest.mark.parametrize("since", [75, 105])
def test_a_rollout_lasts_to_the_end_of_the_view_however_long_new_pods_take(observe: Observe, since: int) -> None:
    view, alarm_ns = observe(pods(seen(READY, 0), [(since, STARTING), (115, STARTING)]))
    assert successful_rollouts(view, alarm_ns)["geo"].end_ns == view.window[1]


def test_a_rollout_that_was_over_before_the_reference_ended_is_none(observe: Observe) -> None:
    early = pods([*seen(READY, 0, 25), (25, ENDING)], [(15, STARTING), (24, READY), *seen(READY, 30)])
    view, alarm_ns = observe(early)
    assert successful_rollouts(view, alarm_ns) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([*seen(READY, 0, 70), (70, FAILED)], [(71, STARTING), (95, READY), *seen(READY, 100)]),
        ([*seen(READY, 0, 70), (70, ENDING)], [(71, STARTING), (95, READY), *seen(READY, 100)]),
        (seen(READY, 0), [(75, STARTING), *seen(NO_IMAGE, 76)]),
        (seen(READY, 0), [(75, STARTING), *seen(CRASHED, 85)]),
        (seen(READY, 0), [(75, STARTING), *seen(READY, 80)]),
        (seen(READY, 0), []),
    ],
    ids=["failed", "deleted", "no-image", "crash-loop", "scaled-up", "steady"],
)
def test_pods_that_fail_or_are_added_are_no_rollout(observe: Observe, old: Seen, new: Seen) -> None:
    view, alarm_ns = observe(pods(old, new))
    assert successful_rollouts(view, alarm_ns) == {}


def test_metrics_of_a_rollout_are_no_evidence(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    view, alarm_ns = observe(PLANNED)
    windows = localization_windows(view, alarm_ns)
    service = windows.services[0]
    values = np.tile(np.nanmedian(windows.reference, axis=0), (len(windows.values), 1))
    during = (windows.times_ns > alarm_ns + 5 * SECOND) & (windows.times_ns <= alarm_ns + 15 * SECOND)
    values[np.ix_(during, np.array(windows.services) == service)] *= 2.0
    calm = replace(windows, values=values, absent=np.zeros(values.shape, dtype=bool))
    monkeypatch.setattr("faultset.baselines.features.evidence.windows_since_reference", lambda *_, **__: calm)
    rollout = Rollout(start_ns=alarm_ns + 5 * SECOND, end_ns=alarm_ns + 15 * SECOND)

    def strongest(rollouts: dict[str, Rollout]) -> float:
        result = metric_evidence(view, alarm_ns, rollouts)
        return max((one.strength for one in result if one.service == service), default=0.0)

    assert strongest({}) > 3.0
    assert strongest({service: rollout}) < 1.0
