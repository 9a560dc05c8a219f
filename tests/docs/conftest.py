from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def site_pages() -> ModuleType:
    """The script that writes the pages made from the code."""
    return _script("site_pages")


@pytest.fixture(scope="session")
def layout() -> ModuleType:
    """The script that draws the layout of the sources."""
    return _script("layout")


@pytest.fixture(scope="session")
def document_tables() -> ModuleType:
    """The script that writes the tables of fields and faults."""
    return _script("document_tables")


@pytest.fixture(scope="session")
def call_graph() -> ModuleType:
    """The script that draws the calls between services."""
    return _script("call_graph")
