"""Packages whose public names are imported on first use."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from faultset.core.errors import UsageError
from faultset.core.lazy_names import lazy_names

PACKAGES = (
    "faultset.agents",
    "faultset.baselines",
    "faultset.collector",
    "faultset.collector.testing",
    "faultset.datasets",
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


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_and_help_name_what_a_package_offers_with_its_docstrings(name: str) -> None:
    package = importlib.import_module(name)
    assert [name for name in dir(package) if not name.startswith("__")] == sorted(package.__all__)
    text = pydoc.plain(pydoc.render_doc(package))
    for public in package.__all__:
        thing = getattr(package, public)
        assert public in text
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert (thing.__doc__ or "").strip().splitlines()[0] in text


def test_a_name_whose_extra_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "lazy_sample.py"
    source.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from networkx import graph\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "networkx", None)
    importlib.import_module("lazy_sample")
    import_name, _ = lazy_names("lazy_sample")
    with pytest.raises(UsageError, match=r"extra \"evaluate\"; run: pip install 'faultset\[evaluate\]'"):
        import_name("graph")
