"""Checks of the baseline contract; each takes a trial."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping

from faultset.baselines.api.contract import Detection, Detector, Diagnoser, Localizer
from faultset.baselines.api.registry import BaselineSpec, get_baseline
from faultset.baselines.testing import invariance
from faultset.baselines.testing.episodes import EMPTY, UNUSUAL_DATA, ReorderedView, remove_rows
from faultset.baselines.testing.trial import BaselineTrial
from faultset.core.errors import UsageError
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

_SHAPES: dict[str, type] = {"detection": Detector, "localization": Localizer, "rca": Diagnoser}


def check_registration(trial: BaselineTrial) -> None:
    """Check that the registration is complete and agrees with the instance."""
    spec = trial.spec
    instance = spec.build()
    rules = {
        f"an instance is a {_SHAPES[spec.task].__name__}": isinstance(instance, _SHAPES[spec.task]),
        "its class has a docstring": bool((spec.factory.__doc__ or "").strip()),
        "title and paper are not empty": bool(spec.title and spec.paper),
        "complexity is empty or begins with O(": not spec.complexity or spec.complexity.startswith("O("),
        f"tables are among {sorted(TABLES)}": set(spec.tables) <= TABLES.keys(),
        "required tables are a subset of its tables": set(spec.requires) <= set(spec.tables),
        'tables contains requests if and only if needs contains "sli"': ("sli" in spec.needs)
        == ("requests" in spec.tables),
        "departures are sentences": all(sentence.endswith(".") for sentence in spec.departures),
        "an instance has the registered name, needs and tables": (instance.name, instance.needs, instance.tables)
        == (spec.name, spec.needs, spec.tables),
    }
    for rule, is_met in rules.items():
        assert is_met, f"{spec.name}: broken rule: {rule}"


def check_seed(trial: BaselineTrial) -> None:
    """Check that a stochastic baseline stores its seed."""
    instance = trial.spec.build(seed=7)
    if trial.spec.stochastic:
        seed = getattr(instance, "seed", None)
        assert seed == 7, f'{trial.spec.name}: built with seed 7, but its attribute "seed" is {seed}'


def check_repeatability(trial: BaselineTrial) -> None:
    """Check that the same seed gives the same answers, independent of earlier episodes."""
    view = trial.examples.faulty.view
    trial.assert_valid(trial.expected, view, "an episode with a fault")
    instance = trial.fitted()
    trial.answer(_choose_other_episode(trial), instance)
    trial.assert_same(trial.answer(view, instance), "after another episode")


def _choose_other_episode(trial: BaselineTrial) -> EpisodeView:
    faulty = trial.examples.faulty
    return next(item.view for item in trial.examples.training if item is not faulty)


def check_inputs(trial: BaselineTrial) -> None:
    """Check that frames are not changed and that the order of columns does not matter."""
    path = trial.examples.path(trial.examples.faulty.view)
    view = ReorderedView(path, seed=3)
    trial.assert_same(trial.answer(view), "with reordered columns")
    for (step_s, roles), frame in view.frames.items():
        unchanged = frame.equals(ReorderedView(path, seed=3).wide(step_s, roles))
        assert unchanged, f"{trial.spec.name}: changes the frame of wide(step_s={step_s}); copy it first"


def check_pickling(trial: BaselineTrial) -> None:
    """Check that the fitted baseline, its answers and its spec can be pickled."""
    # The expected answer comes from a pickled copy.
    answer = trial.answer(pickle.loads(pickle.dumps(trial.examples.faulty.view)), trial.original)
    trial.assert_same(pickle.loads(pickle.dumps(answer)), "after pickling")
    assert pickle.loads(pickle.dumps(trial.spec)) == trial.spec, f"{trial.spec.name}: pickling changes its spec"


def check_declared_tables(trial: BaselineTrial) -> None:
    """Check that only declared tables are read."""
    assert trial.expected is not None
    missing = ", ".join(sorted(trial.undeclared))
    argument = "needs" if trial.undeclared == {"alarm_location"} else "tables"
    assert not trial.undeclared, f"{trial.spec.name}: reads {missing}; add that to {argument}"


def check_missing_tables(trial: BaselineTrial) -> None:
    """Check answers with each declared table missing or empty."""
    for table in trial.spec.tables:
        for edit, circumstance in ((lambda rows: None, "missing"), (remove_rows, "empty")):
            view = trial.examples.alter(f"table {table} {circumstance}", {table: edit})
            trial.assert_valid(trial.answer(view), view, f"table {table} {circumstance}")


def check_no_evidence(trial: BaselineTrial) -> None:
    """Check that a baseline with tables abstains if all tables are empty."""
    view = trial.examples.alter("no rows", EMPTY)
    answer = trial.answer(view)
    trial.assert_valid(answer, view, "no table has a row")
    silent = answer.alarm_ns is None if isinstance(answer, Detection) else answer.abstains
    assert silent or not trial.spec.tables, f"{trial.spec.name}: must abstain if all tables are empty, got {answer}"


def check_unusual_data(trial: BaselineTrial) -> None:
    """Check answers with constant series, single samples, gaps, unknown services and invalid states."""
    for circumstance, edits in UNUSUAL_DATA.items():
        if edits.keys() & {*trial.spec.tables}:
            view = trial.examples.alter(circumstance, edits)
            trial.assert_valid(trial.answer(view), view, circumstance)


def check_single_candidate(trial: BaselineTrial) -> None:
    """Check the answer for an episode with one candidate."""
    overrides = {"services": ["geo"], "calls": [], "workload_entry": "geo"}
    view = trial.examples.alter("single candidate", {}, context=lambda content: content | overrides)
    trial.assert_valid(trial.answer(view), view, "a single candidate")


Check = Callable[[BaselineTrial], None]
CHECKS: Mapping[str, Check] = {
    "registration": check_registration,
    "seed": check_seed,
    "repeatability": check_repeatability,
    "inputs": check_inputs,
    "pickling": check_pickling,
    "declared tables": check_declared_tables,
    "missing tables": check_missing_tables,
    "no evidence": check_no_evidence,
    "unusual data": check_unusual_data,
    "single candidate": check_single_candidate,
    "no look-ahead": invariance.check_no_look_ahead,
    "coverage": invariance.check_coverage,
    "detection accuracy": invariance.check_detection_accuracy,
    "localization accuracy": invariance.check_localization_accuracy,
    "trained answers": invariance.check_trained_answers,
    "untrained": invariance.check_untrained,
    "service names": invariance.check_service_names,
    "dates": invariance.check_dates,
    "uninformative series": invariance.check_uninformative_series,
    "order of services": invariance.check_order_of_services,
    "collector gaps": invariance.check_collector_gaps,
}
"""Name -> check; a check for another task does nothing."""


def check_baseline(baseline: str | type | BaselineSpec, *, skip: Iterable[str] = ()) -> None:
    """Check that a baseline fulfils the contract; every answer comes from a fitted instance.

    The checks use a synthetic dataset of six episodes in a temporary folder, written once per process.

    Parameters
    ----------
    baseline
        Name of an installed baseline, a class decorated with `faultset.baselines.baseline`, or its spec.
    skip
        Names of checks (keys of `CHECKS`) to skip, for instance `localization accuracy` if the synthetic faults have
        none of the signs that the baseline uses.

    Raises
    ------
    AssertionError
        A check failed; the message has the expected and the actual result.
    UsageError
        The baseline or a check is unknown.

    Notes
    -----
    registration
        The instance has `fit`, the method of its task, and the attributes `name`, `needs` and `tables` of its
        registration. Title, paper and docstring are not empty. Tables exist. The table `requests` requires the need
        `sli`. `complexity` is empty or begins with `O(`. Departures are sentences.
    seed
        A stochastic baseline has the attribute `seed`.
    repeatability
        The same seed gives the same answers, independent of earlier episodes.
    inputs
        Frames are not changed, and the order of columns does not matter.
    pickling
        The fitted baseline, its answers and its spec can be pickled.
    declared tables
        Only declared tables are read.
    missing tables, unusual data, single candidate
        The answer contains only finite numbers and candidates, for missing or empty tables, constant series, gaps,
        single samples, unknown services, invalid object states and a single candidate.
    no evidence
        A baseline with tables abstains if all tables are empty.
    no look-ahead, coverage
        A detector's answer up to `t` does not depend on later data. Its samples cover the view after the reference.
    detection accuracy, localization accuracy
        Scores are higher after the onset, and most answers are right. The mean rank of the cause is better than
        chance, unless the localizer always abstains.
    trained answers, untrained, service names
        A diagnoser answers with a pair from its training, abstains without training faults, and does not depend on
        the names of services.
    dates, order of services
        Answers do not depend on the date. Answers of methods without a seed do not depend on the order of services'
        names.
    uninformative series
        Constant series, series without samples, infinite samples and counters below zero change no answer.
    collector gaps
        A gap in all metrics or in all tables raises no alarm in an episode without a fault.
    """
    spec = get_baseline(baseline) if isinstance(baseline, str) else getattr(baseline, "spec", baseline)
    if not isinstance(spec, BaselineSpec):
        raise UsageError(f"{baseline!r} is not a baseline; decorate its class with faultset.baselines.baseline")
    left_out = set(skip)
    if left_out - CHECKS.keys():
        raise UsageError(f"unknown checks {sorted(left_out - CHECKS.keys())}; choose from {list(CHECKS)}")
    trial = BaselineTrial(spec)
    for name, check in CHECKS.items():
        if name not in left_out:
            check(trial)
