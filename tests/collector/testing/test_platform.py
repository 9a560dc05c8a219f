"""The built-in platforms pass the check that third parties run, and the check finds broken promises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.hosts import open_host
from faultset.collector.testing import check_host, check_platform

HOTEL = load_app("hotel")


def test_the_platform_in_memory_passes(tmp_path: Path) -> None:
    check_platform(lambda folder, journal: FakePlatform(HOTEL, journal), tmp_path)


@pytest.mark.parametrize("name", ["local", pytest.param("kubernetes", marks=[pytest.mark.cluster, pytest.mark.slow])])
def test_a_built_in_platform_passes(name: str, tmp_path: Path) -> None:
    host = open_host(name)
    check_host(host)
    check_platform(
        lambda folder, journal: host.create_platform(HOTEL, folder, journal, episode="check", seed=1, step_s=1.0),
        tmp_path,
    )


class Unmerged(FakePlatform):
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        super()._patch(kind, name, {"spec": change.get("spec", {})})


class NeverUndone(FakePlatform):
    def undo(self, scope: str | None = None) -> None:
        pass


class SecretlyEmpty(FakePlatform):
    @property
    def sources(self) -> Mapping[str, Any]:
        return {name: source for name, source in super().sources.items() if name != "logs"}


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Unmerged, "patch must merge"),
        (NeverUndone, "undo must leave nothing open in the journal"),
        (SecretlyEmpty, "there is no source of logs"),
    ],
)
def test_a_broken_promise_is_named(broken: type[FakePlatform], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_platform(lambda folder, journal: broken(HOTEL, journal), tmp_path)
