"""Checks that a baseline answers equally in equal circumstances."""

from __future__ import annotations

import pickle

from faultset.baselines.testing.episodes import ReorderedView
from faultset.baselines.testing.trial import BaselineTrial
from faultset.datasets.views import EpisodeView


def check_repeatability(trial: BaselineTrial) -> None:
    """Equal seeds give equal answers, whatever episode came before."""
    view = trial.examples.faulty.view
    trial.assert_sound(trial.expected, view, "an episode with a fault")
    instance = trial.fitted()
    trial.answer(_other_episode(trial), instance)
    trial.assert_same(trial.answer(view, instance), "after another episode")


def _other_episode(trial: BaselineTrial) -> EpisodeView:
    faulty = trial.examples.faulty
    return next(item.view for item in trial.examples.training if item is not faulty)


def check_inputs(trial: BaselineTrial) -> None:
    """Frames are not changed, and the order of their columns does not matter."""
    path = trial.examples.path(trial.examples.faulty.view)
    view = ReorderedView(path, seed=3)
    trial.assert_same(trial.answer(view), "with the columns in another order")
    for (step_s, roles), frame in view.frames.items():
        unchanged = frame.equals(ReorderedView(path, seed=3).wide(step_s, roles))
        assert unchanged, f"{trial.spec.name}: changes the frame of wide(step_s={step_s}); copy it first"


def check_pickling(trial: BaselineTrial) -> None:
    """The fitted baseline, its answers and its spec survive pickling."""
    # the expected answer is that of a copy which was pickled
    found = trial.answer(pickle.loads(pickle.dumps(trial.examples.faulty.view)), trial.original)
    trial.assert_same(pickle.loads(pickle.dumps(found)), "after pickling")
    assert pickle.loads(pickle.dumps(trial.spec)) == trial.spec, f"{trial.spec.name}: its spec changes by pickling"
