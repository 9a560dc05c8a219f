"""Clients of dask: what they leave behind, and what they say about the workers of others."""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faultset.core.errors import PlatformError
from faultset.evaluators.execution.runners.confinement import NOT_ISOLATED
from faultset.evaluators.execution.scheduling import check_address_space, isolation_of, local_client

ISOLATED = "isolated"
ELSEWHERE = f"{NOT_ISOLATED}: this kernel has no Landlock"


def test_a_local_client_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    with local_client(1) as client:
        [folder] = tmp_path.iterdir()
        assert folder.name.startswith("faultset-dask-")
        assert client.submit(lambda: 5).result() == 5
    assert not list(tmp_path.iterdir())


def test_a_limit_on_address_space_that_is_too_low_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2_000_000_000, resource.RLIM_INFINITY))
    with pytest.raises(PlatformError, match=r"the limit \(ulimit -v\) is 2.0 GB; raise it, or give fewer workers"):
        check_address_space(2)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    check_address_space(64)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ({"tcp://a:1": ISOLATED, "tcp://b:1": ISOLATED}, ISOLATED),
        (
            {"tcp://a:1": ISOLATED, "tcp://c:1": ELSEWHERE, "tcp://b:1": ELSEWHERE},
            f"{ELSEWHERE} (2 of 3 workers, first: tcp://b:1)",
        ),
        ({"tcp://a:1": ELSEWHERE}, f"{ELSEWHERE} (1 of 1 workers, first: tcp://a:1)"),
    ],
)
def test_one_worker_that_cannot_isolate_methods_is_said(workers: dict[str, str], said: str) -> None:
    client: Any = SimpleNamespace(cluster=None, run=lambda function: workers)
    assert isolation_of(client) == said
