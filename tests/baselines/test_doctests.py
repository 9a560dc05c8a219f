"""The examples in the docstrings of the package hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import faultset.baselines

MODULES = sorted(module.name for module in pkgutil.iter_modules(faultset.baselines.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    module = importlib.import_module(f"faultset.baselines.{name}")
    assert doctest.testmod(module).failed == 0
