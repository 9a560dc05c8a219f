"""Packages whose public names are imported on first use."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import FunctionType

import pytest

PACKAGES = (
    "faultset.baselines",
    "faultset.collector",
    "faultset.collector.testing",
    "faultset.datasets",
    "faultset.datasets.testing",
    "faultset.datasets.training",
    "faultset.evaluators",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_found_and_no_other(package: str) -> None:
    module = importlib.import_module(package)
    found = {name: getattr(module, name) for name in module.__all__}
    named = {name: one for name, one in found.items() if isinstance(one, type | FunctionType)}
    assert named
    assert [one.__name__ for one in named.values()] == list(named)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'another'"):
        _ = module.another


def test_importing_the_packages_loads_no_large_library() -> None:
    code = f"import sys, {', '.join(PACKAGES)}; print(*{{'numpy', 'pandas', 'pyarrow', 'pydantic'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
