import pytest

from faultset.baselines import get_baseline, get_detector
from faultset.baselines.testing import CHECKS, BaselineTrial


@pytest.mark.parametrize("check", CHECKS)
def test_it_meets_the_contract(check):
    CHECKS[check](BaselineTrial(get_baseline("error-bursts")))


def test_its_parameter_reaches_it():
    assert get_detector("error-bursts", steps=9).steps == 9
