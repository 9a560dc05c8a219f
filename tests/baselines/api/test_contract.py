"""Every registered baseline keeps to the contract, by the checks that are shipped."""

from __future__ import annotations

import functools

import pytest

from faultset.baselines.api.registry import get_baseline, list_baselines
from faultset.baselines.testing import CHECKS, BaselineTrial

SPECS = list_baselines()
EXPECTED_TO_FAIL = {
    ("missing-edge", "detection accuracy"): "in the example no call stops",
    ("last-change", "localization accuracy"): "changes in the example are at random",
}


@functools.cache
def trial(name: str) -> BaselineTrial:
    return BaselineTrial(SPECS[name])


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_to_the_contract(name: str, check: str) -> None:
    if (name, check) in EXPECTED_TO_FAIL:
        pytest.skip(EXPECTED_TO_FAIL[name, check])
    CHECKS[check](trial(name))


@pytest.mark.parametrize("name", SPECS)
def test_a_built_in_baseline_cites_its_source_and_a_control_says_that_it_is_one(name: str) -> None:
    spec = get_baseline(name)
    text = str(spec.factory.__doc__)
    assert text.lstrip().startswith("Control") == (spec.kind == "control")
    assert spec.kind in ("control", "rule") or "References" in text
    assert spec.complexity.startswith("O(")
