"""A link to dask's pages is printed where they exist."""

from __future__ import annotations

import importlib.util
import tomllib
import urllib.request
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from faultset.evaluators.execution.scheduling import dashboard_of, local_client

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def client():
    with local_client(1) as found:
        yield found


def with_bokeh(monkeypatch, spec: ModuleSpec | None) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: spec if name == "bokeh" else real(name, *rest))


def test_without_bokeh_no_link_is_given(client, monkeypatch) -> None:
    with_bokeh(monkeypatch, None)
    assert dashboard_of(client) is None


def test_with_bokeh_the_link_is_where_the_scheduler_listens(client, monkeypatch) -> None:
    with_bokeh(monkeypatch, ModuleSpec("bokeh", None))
    link = dashboard_of(client)
    assert link is not None
    assert link.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(link.removesuffix("/status") + "/health") as reply:
        assert reply.read() == b"ok"


def test_the_extra_brings_what_dask_asks_for() -> None:
    versions = pytest.importorskip("distributed.versions")
    if not hasattr(versions, "BOKEH_REQUIREMENT"):
        pytest.skip("this release of dask does not tell")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (named,) = project["optional-dependencies"]["dashboard"]
    ours, asked = Requirement(named), versions.BOKEH_REQUIREMENT
    assert (ours.name, asked.name) == ("bokeh", "bokeh")
    assert all(asked.specifier.contains(spec.version) for spec in ours.specifier)
