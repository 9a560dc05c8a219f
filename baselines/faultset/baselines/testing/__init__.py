"""Checks of the baseline contract, for the tests of built-in baselines and of yours."""

from faultset.baselines.testing.checks import CHECKS, check_baseline
from faultset.baselines.testing.trial import BaselineTrial

__all__ = ["CHECKS", "BaselineTrial", "check_baseline"]
