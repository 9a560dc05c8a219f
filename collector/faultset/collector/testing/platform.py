"""The contract checks for platforms, their hosts, and sources of telemetry."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.collector.apps import load_app
from faultset.collector.platforms.base import EpisodePlatform, NotSupported
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.hosts import PlatformHost
from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.objects import ObjectNotFound, is_active, is_ready
from faultset.collector.runtime.stores import ORIGINAL_DRIVERS
from faultset.collector.sources.contract import Source, SourceTarget
from faultset.collector.sources.recorder import SourceSpec, load_source, read_rows, source_spec
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import TABLES, time_column, without_episode

_ABSENT_NAME = "there-is-no-such-object"
_MARK = "faultset.dev/check"
_SETTLE_NS = 5_000_000_000
"""Rows of the last seconds may not have arrived yet."""


def check_source(
    source: str | type[Any],
    *,
    platform: Any = None,
    app: str = "hotel",
    record_s: float = 0.5,
    interval_s: float = 0.1,
    min_rows: int = 1,
) -> pa.Table:
    """Record briefly with an added source, check its contract, and return the rows.

    Parameters
    ----------
    source
        Name of an installed source, or its class.
    platform
        Passed to the source as `target.platform`; by default an in-memory platform.
    app
        The application on the default platform: a name, or the path of a folder or file.
    record_s
        Recording time.
    interval_s
        Sampling interval.
    min_rows
        Minimum number of rows.

    Raises
    ------
    UsageError
        The declaration of the source is invalid.
    AssertionError
        The contract is violated; the message says how.
    """
    spec = load_source(source) if isinstance(source, str) else source_spec(source.__name__.lower(), source)
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        if platform is None:
            platform = FakePlatform(load_app(app), Journal(Path(folder) / "journal.jsonl"))
            platform.deploy()
        working = Path(folder) / "source"
        working.mkdir()
        target = SourceTarget(platform=platform, schema=spec.schema, interval_s=interval_s, folder=working)
        spec.source_class(target).close()  # an episode may end before its sources start
        return _record_rows(spec, target, record_s, min_rows)


def _record_rows(spec: SourceSpec, target: SourceTarget, record_s: float, min_rows: int) -> pa.Table:
    """Record for a while, check the rows of the window, and return them; close the source twice."""
    recorder = spec.source_class(target)
    start_ns = time.time_ns()
    try:
        recorder.start()
        time.sleep(record_s)
        end_ns = time.time_ns()
        # rows that started in the window may arrive a little later
        time.sleep(record_s / 2)
        try:
            rows = read_rows(spec, recorder, start_ns, end_ns)
        except ValueError as error:
            raise AssertionError(f"the source {spec.name} violates its contract: {error}") from None
        assert len(rows) >= min_rows, f"{record_s:g} s must give at least {min_rows} rows, got {len(rows)}"
        again = read_rows(spec, recorder, start_ns, end_ns)
        assert again.equals(rows), "reading a window twice must give the same rows"
        assert len(read_rows(spec, recorder, start_ns, start_ns)) == 0, "an empty window must have no rows"
    finally:
        recorder.close()
        recorder.close()
    return rows


def check_platform_source(source: Source, start_ns: int, end_ns: int, *, min_rows: int = 0) -> None:
    """Check that a source of a platform fulfils the contract of `Source` in a past window, or raise AssertionError."""
    assert source.table in TABLES, f"table must be one of {', '.join(TABLES)}, got {source.table!r}"
    interval_s = source.interval_s
    assert interval_s is None or interval_s > 0, f"interval_s must be None or above 0, got {interval_s!r}"
    rows = _read(source, start_ns, end_ns)
    assert rows.num_rows >= min_rows, f"the window must have at least {min_rows} rows, got {rows.num_rows}"
    times = rows[time_column(source.table)].cast(pa.int64()).to_pylist()
    outside = [time_ns for time_ns in times if not start_ns <= time_ns < end_ns]
    assert not outside, f"{len(outside)} of {len(times)} rows are outside the window, for example at {outside[0]}"
    second_rows = _read(source, start_ns, end_ns)
    assert second_rows.num_rows == rows.num_rows, (
        f"two reads of one window return {rows.num_rows} and {second_rows.num_rows} rows; they must be the same"
    )
    assert _read(source, start_ns, start_ns).num_rows == 0, "an empty window must have no rows"


def _read(source: Source, start_ns: int, end_ns: int) -> pa.Table:
    expected = without_episode(TABLES[source.table])
    batches = list(source.snapshot(start_ns, end_ns))
    for batch in batches:
        assert batch.schema.equals(expected), (
            f"the schema of {source.table} must be\n{expected}\nbut snapshot yields\n{batch.schema}"
        )
    return pa.Table.from_batches(batches, schema=expected)


def check_host(host: PlatformHost) -> None:
    """Check the properties of a host, without starting anything; raise AssertionError if its contract is violated."""
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


def _require_error(kind: type[Exception], call: Callable[[], object], message: str) -> str:
    """Return the text of the error that a call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(message)


def _check_reading(platform: EpisodePlatform) -> None:
    for verb in (
        lambda: platform.get("Service", _ABSENT_NAME),
        lambda: platform.patch("Service", _ABSENT_NAME, {"metadata": {"labels": {}}}),
        lambda: platform.delete("Service", _ABSENT_NAME),
    ):
        _require_error(ObjectNotFound, verb, "a verb on an object that does not exist must raise ObjectNotFound")
    name = platform.list("Deployment")[0]["metadata"]["name"]
    platform.get("Deployment", name)["spec"].clear()
    assert platform.get("Deployment", name)["spec"], "get must return a copy"
    assert not platform.list("Deployment", {platform.app.label_key: _ABSENT_NAME}), "list must select by labels"
    rule, event = "wait must raise PlatformError after its timeout and name the event", "an impossible event"
    message = _require_error(PlatformError, lambda: platform.wait(lambda: False, timeout_s=0.0, what=event), rule)
    assert event in message, rule


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
    _require_error(ObjectNotFound, lambda: platform.get("Service", name), "a deleted Service still exists")
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
    _require_error(
        PlatformError, lambda: platform.exec(pod, ["false"]), "exec must raise PlatformError when the command fails"
    )
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
