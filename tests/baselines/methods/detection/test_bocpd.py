"""BOCPD against Bayes' rule worked out the long way, and what streams of a group do together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.methods.detection.streaming import recent_change, run_lengths

RNG = np.random.default_rng(0)


def test_run_lengths_are_bayes_rule_worked_out_the_long_way() -> None:
    values = np.array([0.3, -0.5, 4.0, 4.4])
    hazard, known = 1 / 50, 2.0
    belief = {0: 1.0}
    for step, value in enumerate(values):
        joint = {}
        for run, weight in belief.items():
            past = values[step - run : step]
            kappa, alpha = 1 + run, (known + run) / 2
            mean = past.sum() / kappa
            beta = known / 2 + ((past - past.mean()) ** 2).sum() / 2 if run else known / 2
            if run:
                beta += run * past.mean() ** 2 / (2 * kappa)
            scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
            joint[run] = weight * stats.t.pdf(value, 2 * alpha, mean, scale)
        total = sum(joint.values())
        belief = {0: hazard} | {run + 1: (1 - hazard) * weight / total for run, weight in joint.items()}
    found = run_lengths(values[:, None], [0], expected_run=50, known=known, longest=10)[-1, 0]
    assert found[:5] == pytest.approx([belief[run] for run in range(5)])
    assert found[5:].sum() == pytest.approx(0.0)


def test_a_shift_of_the_mean_is_dated_to_the_sample() -> None:
    streams = RNG.normal(size=(60, 1))
    streams[40:] += 6
    posterior = run_lengths(streams, [0], known=40)
    assert posterior.sum(axis=2) == pytest.approx(np.ones((60, 1)))
    assert int(posterior[45, 0].argmax()) == 6
    odds = recent_change(posterior)[:, 0]
    assert odds[42] > 3
    assert odds[10:40].max() < 1


def test_streams_of_a_group_convince_together() -> None:
    streams = RNG.normal(size=(50, 6))
    streams[40:] += 1.5
    together = recent_change(run_lengths(streams, [0], known=40))[44].max()
    alone = recent_change(run_lengths(streams, list(range(6)), known=40))[44].max()
    assert together > alone


def test_a_long_run_is_judged_by_its_last_samples() -> None:
    streams = RNG.normal(size=(300, 2))
    posterior = run_lengths(streams, [0, 1], known=40, longest=20)
    assert (posterior[-1, :, -1] > 0.8).all()
    streams[280:] += 8
    assert (recent_change(run_lengths(streams, [0, 1], known=40, longest=20))[283] > 3).all()
