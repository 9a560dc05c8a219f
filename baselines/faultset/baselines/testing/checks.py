"""Checks that a baseline keeps to the contract; each takes a trial."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping

from faultset.baselines.api.contract import Detection, Detector, Diagnoser, Localizer
from faultset.baselines.api.registry import BaselineSpec, get_baseline
from faultset.baselines.testing import invariance
from faultset.baselines.testing.episodes import EMPTY, UNUSUAL_DATA, ReorderedView, no_rows
from faultset.baselines.testing.trial import BaselineTrial
from faultset.core.errors import UsageError
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

_SHAPES: dict[str, type] = {"detection": Detector, "localization": Localizer, "rca": Diagnoser}


def check_registration(trial: BaselineTrial) -> None:
    """The registration is complete and the instance agrees with it."""
    spec = trial.spec
    built = spec.build()
    rules = {
        f"an instance is a {_SHAPES[spec.task].__name__}": isinstance(built, _SHAPES[spec.task]),
        "its class has a docstring": bool((spec.factory.__doc__ or "").strip()),
        "title and paper are not empty": bool(spec.title and spec.paper),
        "complexity is empty or begins with O(": not spec.complexity or spec.complexity.startswith("O("),
        f"tables are among {sorted(TABLES)}": set(spec.tables) <= TABLES.keys(),
        "required tables are among those that it reads": set(spec.requires) <= set(spec.tables),
        'requests is read exactly with needs=("sli",)': ("sli" in spec.needs) == ("requests" in spec.tables),
        "departures are sentences": all(sentence.endswith(".") for sentence in spec.departures),
        "name, needs and tables of an instance are those of the registration": (built.name, built.needs, built.tables)
        == (spec.name, spec.needs, spec.tables),
    }
    for rule, kept in rules.items():
        assert kept, f"{spec.name}: it must hold that {rule}"


def check_seed(trial: BaselineTrial) -> None:
    """A stochastic baseline keeps its seed."""
    instance = trial.spec.build(seed=7)
    if trial.spec.stochastic:
        seed = getattr(instance, "seed", None)
        assert seed == 7, f'{trial.spec.name}: built with seed 7, the attribute "seed" is {seed}'


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
    answer = trial.answer(pickle.loads(pickle.dumps(trial.examples.faulty.view)), trial.original)
    trial.assert_same(pickle.loads(pickle.dumps(answer)), "after pickling")
    assert pickle.loads(pickle.dumps(trial.spec)) == trial.spec, f"{trial.spec.name}: its spec changes by pickling"


def check_declared_tables(trial: BaselineTrial) -> None:
    """No table is read that is not declared."""
    assert trial.expected is not None
    missing = ", ".join(sorted(trial.undeclared))
    where = "needs" if trial.undeclared == {"alarm_place"} else "tables"
    assert not trial.undeclared, f"{trial.spec.name}: reads {missing}; add that to {where}"


def check_missing_tables(trial: BaselineTrial) -> None:
    """Each declared table may be missing, or have no rows."""
    for table in trial.spec.tables:
        for edit, circumstance in ((lambda rows: None, "missing"), (no_rows, "empty")):
            view = trial.examples.altered(f"table {table} {circumstance}", {table: edit})
            trial.assert_sound(trial.answer(view), view, f"table {table} {circumstance}")


def check_no_evidence(trial: BaselineTrial) -> None:
    """Without any rows, a baseline that reads tables abstains."""
    view = trial.examples.altered("no rows", EMPTY)
    answer = trial.answer(view)
    trial.assert_sound(answer, view, "no table has a row")
    silent = answer.alarm_ns is None if isinstance(answer, Detection) else answer.abstains
    assert silent or not trial.spec.tables, (
        f"{trial.spec.name}: must abstain when no table has a row, but gives {answer}"
    )


def check_unusual_data(trial: BaselineTrial) -> None:
    """Constant series, single samples, gaps, unknown services and meaningless states are survived."""
    for circumstance, edits in UNUSUAL_DATA.items():
        if edits.keys() & {*trial.spec.tables}:
            view = trial.examples.altered(circumstance, edits)
            trial.assert_sound(trial.answer(view), view, circumstance)


def check_single_candidate(trial: BaselineTrial) -> None:
    """The list of candidates may have one service."""
    only = {"services": ["geo"], "calls": [], "workload_entry": "geo"}
    view = trial.examples.altered("single candidate", {}, context=lambda known: known | only)
    trial.assert_sound(trial.answer(view), view, "a single candidate")


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
    "taught answers": invariance.check_taught_answers,
    "untaught": invariance.check_untaught,
    "service names": invariance.check_service_names,
    "dates": invariance.check_dates,
    "uninformative series": invariance.check_uninformative_series,
    "order of services": invariance.check_order_of_services,
    "collector gaps": invariance.check_collector_gaps,
}
"""Name of each check -> the check; a check that does not concern a baseline's task passes."""


def check_baseline(baseline: str | type | BaselineSpec, *, skip: Iterable[str] = ()) -> None:
    """Check that a baseline keeps to the contract; `fit` is called before every answer.

    It needs an installed faultset and nothing else: it writes a synthetic dataset of six episodes into a temporary
    folder, once for each process.

    Parameters
    ----------
    baseline
        Name of an installed baseline, a class decorated with `faultset.baselines.baseline`, or its spec.
    skip
        Names of checks (keys of `CHECKS`) that the baseline cannot pass, for instance `localization accuracy` where
        the synthetic faults show none of the signs that it looks at.

    Raises
    ------
    AssertionError
        A check fails; the message says what was expected and what was found.
    UsageError
        There is no such baseline or check.

    Notes
    -----
    registration
        The instance has the method of its task, `fit` and the attributes `name`, `needs` and `tables` of its
        registration; title, paper and docstring are not empty; tables exist; `requests` is read only with the need
        `sli`; `complexity` is empty or begins with `O(`; departures are sentences.
    seed
        A stochastic baseline keeps its seed in the attribute `seed`.
    repeatability
        Equal seeds give equal answers, whatever episode came before.
    inputs
        Frames are not changed, and the order of columns does not matter.
    pickling
        The fitted baseline, its answers and its spec survive pickling.
    declared tables
        No table is read that is not declared.
    missing tables, unusual data, single candidate
        Tables that are missing or empty, constant series, gaps, single samples, unknown services, meaningless object
        states and a list of one candidate are survived, and the answer is sound: finite numbers, candidates only.
    no evidence
        Without any rows a baseline that reads tables abstains.
    no look-ahead, coverage
        A detector's answer up to `t` is the same when nothing after `t` was recorded, and its samples cover the view
        after the reference at its resolution.
    detection accuracy, localization accuracy
        Scores are higher after the onset, most verdicts are right; the mean rank of the cause is better than chance
        where the localizer answers at all.
    taught answers, untaught, service names
        A diagnoser answers with a pair that it was taught, abstains when it was taught no fault, and answers the same
        when all services are called something else.
    dates, order of services
        Neither the date nor the order of services' names changes an answer; the order only of methods without a seed.
    uninformative series
        Constant series, series without samples, infinite samples and counters below zero change no answer.
    collector gaps
        A gap in all metrics, or in all tables, raises no alarm in an episode without a fault.
    """
    spec = get_baseline(baseline) if isinstance(baseline, str) else getattr(baseline, "spec", baseline)
    if not isinstance(spec, BaselineSpec):
        raise UsageError(f"{baseline!r} is no baseline; decorate its class with faultset.baselines.baseline")
    left_out = set(skip)
    if left_out - CHECKS.keys():
        raise UsageError(f"unknown checks {sorted(left_out - CHECKS.keys())}; choose from {list(CHECKS)}")
    trial = BaselineTrial(spec)
    for name, check in CHECKS.items():
        if name not in left_out:
            check(trial)
