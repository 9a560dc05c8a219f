"""scikit-learn without the checks that it repeats for every part of what it fits."""

from __future__ import annotations

from contextlib import AbstractContextManager


def trusted_input() -> AbstractContextManager[None]:
    """Let scikit-learn take parameters for valid and input for finite, under `with`."""
    from sklearn import config_context

    return config_context(skip_parameter_validation=True, assume_finite=True)
