"""`check_baseline`: what every baseline keeps to, checked on a small synthetic dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from faultset.baselines.api.registry import BaselineSpec, get_baseline
from faultset.baselines.testing import accuracy, evidence, invariance, registration, repeatability
from faultset.baselines.testing.trial import BaselineTrial
from faultset.core.errors import UsageError

Check = Callable[[BaselineTrial], None]
CHECKS: Mapping[str, Check] = {
    "registration": registration.check_registration,
    "seed": registration.check_seed,
    "repeatability": repeatability.check_repeatability,
    "inputs": repeatability.check_inputs,
    "pickling": repeatability.check_pickling,
    "declared tables": evidence.check_declared_tables,
    "missing tables": evidence.check_missing_tables,
    "no evidence": evidence.check_no_evidence,
    "unusual data": evidence.check_unusual_data,
    "single candidate": evidence.check_single_candidate,
    "no look-ahead": accuracy.check_no_look_ahead,
    "coverage": accuracy.check_coverage,
    "detection accuracy": accuracy.check_detection_accuracy,
    "localization accuracy": accuracy.check_localization_accuracy,
    "taught answers": accuracy.check_taught_answers,
    "untaught": accuracy.check_untaught,
    "service names": accuracy.check_service_names,
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
