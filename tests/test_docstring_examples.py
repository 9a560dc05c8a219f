"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import faultset


def modules_with_examples() -> list[str]:
    """Return the names of all modules of ours in whose source an example stands that can be run."""
    names = []
    for module in pkgutil.walk_packages(faultset.__path__, "faultset."):
        spec = module.module_finder.find_spec(module.name, None)
        assert spec is not None
        assert spec.loader is not None
        source = spec.loader.get_source(module.name)  # pyright: ignore[reportAttributeAccessIssue]
        if any(">>> " in line and "+SKIP" not in line for line in (source or "").splitlines()):
            names.append(module.name)
    return sorted(names)


MODULES = modules_with_examples()


def test_every_part_has_examples() -> None:
    assert {name.split(".")[1] for name in MODULES} >= {
        "agents",
        "baselines",
        "collector",
        "core",
        "datasets",
        "evaluators",
    }


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
