"""Check that platforms and their hosts fulfil their contracts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from faultset.collector.platforms.base import EpisodePlatform, NotSupported
from faultset.collector.platforms.hosts import PlatformHost
from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.objects import ObjectNotFound, is_active, is_ready
from faultset.collector.runtime.stores.drivers import ORIGINAL_DRIVERS
from faultset.collector.testing.source import check_platform_source
from faultset.core.errors import PlatformError

_ABSENT_NAME = "there-is-no-such-object"
_MARK = "faultset.dev/check"
_SETTLE_NS = 5_000_000_000
"""Rows of the last seconds may not have arrived yet."""


def check_host(host: PlatformHost) -> None:
    """Check the properties of a host, without starting anything.

    Raises
    ------
    AssertionError
        The contract of `PlatformHost` is violated; the message says how.
    """
    assert json.loads(json.dumps(host.settings)) == host.settings, "settings must survive JSON"
    type(host)(**host.settings)
    assert {"quick", "standard"} <= host.profiles.keys(), "profiles must have quick and standard"
    assert isinstance(host.runs_deployed_apps, bool), "runs_deployed_apps must be True or False"
    assert isinstance(host.deploys_operators, bool), "deploys_operators must be True or False"
    unknown = host.original_store_kinds - ORIGINAL_DRIVERS.keys()
    assert not unknown, f"original_store_kinds names kinds without a driver: {', '.join(sorted(unknown))}"
    assert isinstance(host.runs_code_of_folders, bool), "runs_code_of_folders must be True or False"
    for row in host.requirements():
        assert row.check, "a requirement has no name"
        assert row.found, f"the requirement {row.check} does not report its result"
        assert row.ok or row.remedy, f"the failed requirement {row.check} has no remedy"


def check_platform(
    create: Callable[[Path, Journal], EpisodePlatform], folder: Path, *, timeout_s: float = 120.0
) -> None:
    """Check that a platform fulfils the contract of `EpisodePlatform` and its capabilities.

    Deploys the platform's application, changes it with `patch`, `delete`, `exec`, `impair` and `kill`, undoes each
    change from the journal, reads every source and tears down.

    Parameters
    ----------
    create
        Returns a platform that is ready to deploy, given an empty folder and a journal.
    folder
        Folder for working files and the journal.
    timeout_s
        Time limit for the application to become ready.

    Raises
    ------
    AssertionError
        The contract is violated; the message says how.
    PlatformError
        The platform failed.
    """
    journal = Journal(folder / "journal.jsonl")
    platform = create(folder / "platform", journal)
    start_ns = time.time_ns()
    try:
        platform.deploy()
        _await_ready(platform, timeout_s)
        _check_reading(platform)
        _check_patch(platform, journal)
        _check_delete(platform, journal)
        _check_exec(platform, journal)
        _check_impair(platform, journal)
        _check_kill(platform, journal, timeout_s)
        platform.start_load(seed=1, rate_rps=2.0, mix=platform.app.default_mix)
        platform.step_load(2.0)
        _check_sources(platform, start_ns)
        platform.stop_load()
    finally:
        platform.teardown()
        platform.teardown()
        journal.close()


def _await_ready(platform: EpisodePlatform, timeout_s: float) -> None:
    def is_available() -> bool:
        deployments = platform.list("Deployment")
        return bool(deployments) and all(
            item.get("status", {}).get("availableReplicas", 0) >= item["spec"].get("replicas", 1)
            for item in deployments
        )

    platform.wait(is_available, timeout_s=timeout_s, what="every Deployment to become available")


def _get_pod(platform: EpisodePlatform) -> str:
    labels = {platform.app.label_key: platform.app.entry.service}
    pods = [pod for pod in platform.list("Pod", labels) if is_active(pod)]
    assert pods, f"no active pod carries the labels {labels}"
    return pods[-1]["metadata"]["name"]


def _check_reading(platform: EpisodePlatform) -> None:
    for attempt in (
        lambda: platform.get("Service", _ABSENT_NAME),
        lambda: platform.patch("Service", _ABSENT_NAME, {"metadata": {"labels": {}}}),
        lambda: platform.delete("Service", _ABSENT_NAME),
    ):
        try:
            attempt()
        except ObjectNotFound:
            continue
        raise AssertionError("a verb on an object that does not exist must raise ObjectNotFound")
    name = platform.list("Deployment")[0]["metadata"]["name"]
    platform.get("Deployment", name)["spec"].clear()
    assert platform.get("Deployment", name)["spec"], "get must return a copy"
    assert not platform.list("Deployment", {platform.app.label_key: _ABSENT_NAME}), "list must select by labels"
    message = ""
    try:
        platform.wait(lambda: False, timeout_s=0.0, what="an impossible event")
    except PlatformError as error:
        message = str(error)
    assert "an impossible event" in message, (
        "wait must raise PlatformError after its timeout and say what it waited for"
    )


def _check_patch(platform: EpisodePlatform, journal: Journal) -> None:
    name = platform.list("Deployment")[0]["metadata"]["name"]
    limit = platform.get("Deployment", name)["spec"].get("revisionHistoryLimit")
    new_limit = 3 if limit != 3 else 4
    change = {"spec": {"revisionHistoryLimit": new_limit}, "metadata": {"annotations": {_MARK: "yes"}}}
    patched = platform.patch("Deployment", name, change)
    assert patched["spec"]["revisionHistoryLimit"] == new_limit, "patch must return the new object"
    assert (patched["metadata"].get("annotations") or {}).get(_MARK) == "yes", "patch must merge"
    removed = platform.patch("Deployment", name, {"metadata": {"annotations": {_MARK: None}}})
    assert _MARK not in removed["metadata"].get("annotations", {}), "null in a merge patch must remove a field"
    _undo_twice(platform, journal)
    after = platform.get("Deployment", name)
    assert after["spec"].get("revisionHistoryLimit") == limit, "undo must restore what patch changed"
    assert _MARK not in (after["metadata"].get("annotations") or {}), "undo must remove what patch added"


def _check_delete(platform: EpisodePlatform, journal: Journal) -> None:
    name = platform.app.entry.service
    before = platform.get("Service", name)["spec"]
    platform.delete("Service", name)
    try:
        platform.get("Service", name)
    except ObjectNotFound:
        pass
    else:
        raise AssertionError("a deleted Service still exists")
    _undo_twice(platform, journal)
    after = platform.get("Service", name)["spec"]
    assert after["ports"] == before["ports"], "undo must restore a deleted Service with its ports"
    assert after["selector"] == before["selector"], "undo must restore a deleted Service with its selector"


def _check_exec(platform: EpisodePlatform, journal: Journal) -> None:
    pod = _get_pod(platform)
    try:
        output = platform.exec(pod, ["echo", "hello"], undo=["echo", "goodbye"])
    except NotSupported:
        return
    assert output.strip() == "hello", f"exec must return the output of the command, but returned {output!r}"
    try:
        platform.exec(pod, ["false"])
    except PlatformError:
        pass
    else:
        raise AssertionError("exec must raise PlatformError when the command fails")
    _undo_twice(platform, journal)


def _check_impair(platform: EpisodePlatform, journal: Journal) -> None:
    for impairment in (Loss(probability=0.1), Delay(latency_s=0.01), Partition()):
        pod = _get_pod(platform)
        try:
            platform.impair(pod, impairment)
        except PlatformError:
            platform.undo()  # a host lists unsupported impairments in `unsupported_needs`
            continue
        assert journal.open_undo_operations(), "impair must write its undo to the journal"
        _undo_twice(platform, journal)
        assert platform.impaired_packets(_get_pod(platform)) == 0, "undo must end an impairment"


def _check_kill(platform: EpisodePlatform, journal: Journal, timeout_s: float) -> None:
    pod = _get_pod(platform)
    try:
        platform.kill(pod)
    except PlatformError:
        return  # a host without kill lists it in `unsupported_needs`

    def is_restarted() -> bool:
        current = platform.get("Pod", pod)
        (status, *_) = current["status"]["containerStatuses"]
        return status["restartCount"] > 0 and is_ready(current)

    platform.wait(is_restarted, timeout_s=timeout_s, what=f"pod {pod} to be restarted after its process was killed")
    _undo_twice(platform, journal)


def _undo_twice(platform: EpisodePlatform, journal: Journal) -> None:
    """Undo, then repeat the same operations, as a second recovery after a crash would."""
    operations = [operation for _, undo in journal.open_undo_operations() for operation in undo]
    platform.undo()
    assert not journal.open_undo_operations(), "undo must leave nothing open in the journal"
    with journal.operation("check", {}, operations):
        pass
    platform.undo()
    assert not Journal(journal.path).open_undo_operations(), "undo must record in the journal what it has undone"


def _check_sources(platform: EpisodePlatform, start_ns: int) -> None:
    end_ns = max(start_ns, time.time_ns() - _SETTLE_NS)
    for table in ("requests", "logs", "events", "objects"):
        assert table in platform.sources, f"there is no source of {table}"
    for table, source in platform.sources.items():
        assert source.table == table, f"the source of {table} has the table {source.table}"
        check_platform_source(source, start_ns, end_ns)
    assert platform.clock_offsets_s().keys() <= platform.sources.keys(), "clock_offsets_s names tables without a source"
