"""The examples in the docstrings of the package hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import faultset.baselines

MODULES = sorted(module.name for module in pkgutil.walk_packages(faultset.baselines.__path__, "faultset.baselines."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0
