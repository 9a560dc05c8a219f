"""The examples in the docstrings of the package hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import faultset.baselines

MODULES = sorted(module.name for module in pkgutil.walk_packages(faultset.baselines.__path__, "faultset.baselines."))


def test_examples_hold() -> None:
    results = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES}
    assert not {name: result.failed for name, result in results.items() if result.failed}
    assert sum(result.attempted for result in results.values()) > 20
