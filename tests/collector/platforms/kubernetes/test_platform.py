"""Waiting asks the API server for pods only when it needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.kubernetes import platform as module
from faultset.collector.platforms.kubernetes.platform import KubernetesPlatform
from faultset.collector.platforms.kubernetes.settings import ClusterSettings
from faultset.core.errors import PlatformError


class Pods:
    """An API server with one pod, which counts list requests."""

    def __init__(self, reason: str):
        self.lists = 0
        state = {"waiting": {"reason": reason, "message": "no such thing"}}
        statuses = [{"name": "geo", "image": "faultset/app:1.0.0", "state": state}]
        self.pod = {"metadata": {"name": "geo-1"}, "status": {"phase": "Pending", "containerStatuses": statuses}}

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        assert path.endswith("/pods")
        self.lists += 1
        return {"items": [self.pod], "metadata": {"resourceVersion": "1"}}


Waiting = Callable[[Pods], KubernetesPlatform]


@pytest.fixture
def waiting(connect: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """Return a platform that polls without pauses, connected to an API server on loopback."""
    monkeypatch.setattr(module.KubernetesPlatform, "poll_s", 0.0)

    def make(pods: Pods) -> KubernetesPlatform:
        connect(pods)
        settings = ClusterSettings(kubeconfig=str(tmp_path / "kubeconfig"))
        journal = Journal(tmp_path / "journal.jsonl")
        journal.close()
        return KubernetesPlatform(load_app("hotel"), tmp_path, journal=journal, episode="e", settings=settings)

    return make


def after(looks: int) -> Callable[[], bool]:
    left = iter(range(looks))
    return lambda: next(left, None) is None


def test_before_the_load_every_look_sees_images_that_are_missing(waiting: Waiting) -> None:
    pods = Pods("ErrImagePull")
    with pytest.raises(PlatformError, match="faultset/app"):
        waiting(pods).wait(after(5), timeout_s=60, what="hotel to become ready")
    assert pods.lists == 1


def test_with_a_load_pods_are_listed_at_the_deadline_only(waiting: Waiting) -> None:
    pods = Pods("ErrImagePull")
    subject = waiting(pods)
    subject._load_active = True
    subject.wait(after(5), timeout_s=60, what="the fault to show")
    assert pods.lists == 0
    with pytest.raises(PlatformError, match="waiting for the fault to show; pod geo-1 is Pending: ErrImagePull"):
        subject.wait(after(5), timeout_s=-1, what="the fault to show")
    assert pods.lists == 1


def test_what_holds_already_is_not_waited_for(waiting: Waiting) -> None:
    pods = Pods("ErrImagePull")
    waiting(pods).wait(lambda: True, timeout_s=60, what="nothing")
    assert pods.lists == 0
