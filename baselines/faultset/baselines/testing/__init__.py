"""Checks of the baseline contract, for built-in baselines and plug-ins."""

from faultset.baselines.testing.checks import CHECKS, check_baseline
from faultset.baselines.testing.trial import BaselineTrial

__all__ = ["CHECKS", "BaselineTrial", "check_baseline"]
