"""Every registered baseline keeps to the contract, by the checks that are shipped."""

from __future__ import annotations

import pytest

from faultset.baselines.api.registry import get_baseline, list_baselines
from faultset.baselines.neural.extra import EXTRA, missing_packages
from faultset.baselines.testing import CHECKS, BaselineTrial

SPECS = list_baselines()
LACKING = [name for name, spec in SPECS.items() if spec.extra == EXTRA and missing_packages()]
EXPECTED_TO_FAIL = {
    ("missing-edge", "detection accuracy"): "in the example no call stops",
    ("last-change", "localization accuracy"): "changes in the example are at random",
}


@pytest.mark.parametrize("name", SPECS)
def test_it_keeps_to_the_contract(name: str) -> None:
    if name in LACKING:
        pytest.skip(f"the extra {EXTRA} is not installed")
    trial, wrong = BaselineTrial(SPECS[name]), {}
    for check, run in CHECKS.items():
        try:
            run(trial)
        except AssertionError as error:
            wrong[check] = str(error)
    expected = {check for baseline, check in EXPECTED_TO_FAIL if baseline == name}
    assert wrong.keys() == expected, wrong


def test_a_built_in_baseline_cites_its_source_and_a_control_says_that_it_is_one() -> None:
    for name in SPECS:
        spec = get_baseline(name)
        text = str(spec.factory.__doc__)
        assert text.lstrip().startswith("Control") == (spec.kind == "control"), name
        assert spec.kind in ("control", "rule") or "References" in text, name
        assert spec.complexity.startswith("O("), name
