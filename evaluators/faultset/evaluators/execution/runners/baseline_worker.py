"""The process that runs a baseline: confine it to its episodes, and serve its requests."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Collection, Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from faultset.baselines.contract import Labelled
from faultset.baselines.registry import BaselineSpec
from faultset.core.landlock import confine, landlock_version
from faultset.datasets.cache import FOLDER as CACHE_FOLDER
from faultset.datasets.checks.telemetry import missing_evidence
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, TELEMETRY
from faultset.datasets.format.versions import VERSIONS
from faultset.evaluators.execution.runners.answers import (
    CannotAnswer,
    InvalidAnswer,
    add_skipped_series,
    check_detection,
    check_diagnosis,
    check_ranking,
    reply_header,
)
from faultset.evaluators.execution.runners.messages import (
    AnswerRequest,
    CheckedAnswer,
    FitRequest,
    MethodProcess,
    RunnerOutcome,
)
from faultset.evaluators.execution.runners.views import Cache, SharedView, TrainingSet, readable_tables

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/nix/store", "/run/current-system")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_WRITABLE_DEVICES = ("/dev/null",)
_DATASET_ENTRIES = (EPISODES, VERSIONS, CACHE_FOLDER, "campaigns", "README.md", ".failed", ".running")
NOT_ISOLATED = "not isolated"


def describe_confinement() -> str:
    """Describe how methods are isolated, in a few words."""
    if landlock_version():
        return "each method in its own process, which can read only its view"
    return f"{NOT_ISOLATED}: this kernel has no Landlock, so a method could read the truth or change the data"


def confine_method(process: MethodProcess, scratch: str) -> None:
    """Restrict the files that this process can access; do nothing without Landlock.

    `scratch`: folder that the process may write to.
    """
    folders = [Path(episode) for episode in process.episodes]
    others = [path for folder in folders for path in dataset_paths(folder)]
    hidden = [os.path.realpath(path) for path in (*process.hidden, *others)]
    installed = {sys.prefix, sys.base_prefix, sys.exec_prefix, *(entry for entry in sys.path if entry), *process.code}
    roots = {os.path.realpath(path) for path in (*_SYSTEM, *installed)}
    readable: list[str] = [*_DEVICES]
    listable: list[str] = []
    for root in sorted(roots):
        allowed, traversed = _list_readable(root, hidden)
        readable += allowed
        listable += traversed
    for folder in folders:
        telemetry = folder / TELEMETRY
        tables = [telemetry] if process.tables is None else [telemetry / f"{name}.parquet" for name in process.tables]
        readable += [str(folder / CONTEXT_FILE), *map(str, tables)]
        listable.append(str(telemetry))
    writable = [scratch, *_WRITABLE_DEVICES]
    for cache in {folder.parent.parent / CACHE_FOLDER for folder in folders}:
        if not cache.is_symlink() and cache.is_dir():
            if process.built_in:
                writable.append(str(cache))
            elif process.tables is None or "metrics" in process.tables:
                readable += _list_cached_frames(cache, {folder.name for folder in folders})
    confine(readable, writable, listable)


def dataset_paths(episode: Path) -> list[str]:
    """Return the files and folders of the dataset that an episode folder belongs to."""
    return [str(episode.parent.parent / name) for name in _DATASET_ENTRIES]


def _list_readable(root: str, hidden: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the paths of a folder that contain nothing hidden, and the folders on the way to them."""
    hidden_inside = [path for path in hidden if path == root or path.startswith(root.rstrip("/") + "/")]
    if not hidden_inside:
        return [root], []
    if root in hidden_inside:
        return [], []
    allowed, traversed = [], [root]
    try:
        entries = sorted(os.listdir(root))
    except OSError:
        return [], []
    for name in entries:
        nested = _list_readable(os.path.realpath(os.path.join(root, name)), hidden_inside)
        allowed += nested[0]
        traversed += nested[1]
    return allowed, traversed


def _list_cached_frames(cache: Path, names: Collection[str]) -> list[str]:
    """Return the cached frames of episodes with these names."""
    try:
        return [str(path) for path in cache.iterdir() if path.name.partition("-")[0] in names]
    except OSError:
        return []


@functools.cache
def measure_peak() -> PeakMemory:
    """Return the memory meter of this process; cached, because it holds a file open."""
    return PeakMemory()


class PeakMemory:
    """Meter of this process's peak resident memory; create it before the process loses access to /proc."""

    def __init__(self) -> None:
        self._clear_refs: int | None = None
        with contextlib.suppress(OSError):
            self._clear_refs = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)

    def reset(self) -> None:
        """Start a new measurement, if the kernel allows it."""
        if self._clear_refs is not None:
            with contextlib.suppress(OSError):
                os.write(self._clear_refs, b"5")

    def bytes(self) -> int:
        """Return the peak since `reset`; 0 if it cannot be read."""
        try:
            status = Path("/proc/self/status").read_text()
        except OSError:
            return 0
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0


def serve_requests(server: Connection, process: MethodProcess, scratch: str) -> None:
    """Confine this process, then serve requests until the fork server closes its side."""
    worker = BaselineWorker()
    os.chdir(scratch)
    os.environ["TMPDIR"] = os.environ["JOBLIB_TEMP_FOLDER"] = tempfile.tempdir = scratch
    confine_method(process, scratch)
    own_pid = os.getpid()
    imported = set(sys.modules)
    while True:
        try:
            request: FitRequest | AnswerRequest = server.recv()
        except EOFError:
            return
        random.seed(request.seed)
        np.random.seed(request.seed % 2**32)
        worker.peak.reset()
        reply = worker.reply_to(request)
        if os.getpid() != own_pid:
            # The baseline forked, and its child returned here too. Only the parent may continue.
            os._exit(0)
        added = sys.modules.keys() - imported if process.built_in else set[str]()
        imported |= added
        server.send_bytes(reply_header(request.number, reply, added))
        server.send_bytes(reply.model)


class _Clock:
    """Elapsed and CPU time of the method alone, excluding the time to open files and check its answer."""

    seconds = cpu_seconds = 0.0

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


class BaselineWorker:
    """Runs baselines in the process that creates it.

    Parameters
    ----------
    reraised
        Exceptions that are raised again instead of becoming an outcome.
    """

    def __init__(self, *, reraised: tuple[type[BaseException], ...] = ()) -> None:
        self.peak = measure_peak()
        self.cache = Cache()
        self._reraised = reraised
        self._episode = ""

    def reply_to(self, request: FitRequest | AnswerRequest) -> RunnerOutcome:
        """Serve a request; an exception in the method becomes an outcome."""
        clock = _Clock()
        outcome = RunnerOutcome(status="ok")
        try:
            spec: BaselineSpec = pickle.loads(request.spec.data)
            if isinstance(request, FitRequest):
                outcome = replace(outcome, model=self._fit(request, spec, clock))
            else:
                outcome = replace(outcome, answer=self._answer(request, spec, clock))
        except InvalidAnswer as problem:
            outcome = RunnerOutcome(status="invalid", reason=str(problem))
        except CannotAnswer as missing:
            outcome = RunnerOutcome(status="cannot", reason=str(missing))
        except self._reraised:
            raise
        except BaseException as error:
            # third-party code may raise anything, SystemExit included
            outcome = RunnerOutcome(status="error", reason=describe(error))
        return replace(outcome, seconds=clock.seconds, cpu_seconds=clock.cpu_seconds, peak_bytes=self.peak.bytes())

    def _answer(self, request: AnswerRequest, spec: BaselineSpec, clock: _Clock) -> CheckedAnswer:
        if request.episode != self._episode:
            # memory is measured per answer, so frames of another episode must not count
            self._episode, self.cache = request.episode, Cache()
        # unpickled for every answer, so that no state is carried to the next episode
        method = pickle.loads(request.model.data)
        location = request.alarm_location if "alarm_location" in spec.needs else None
        tables = readable_tables(spec)
        view = SharedView(request.episode, self.cache, tables=tables, alarm_location=location)
        try:
            checked, is_empty = self._call(method, request, view, clock)
            checked = add_skipped_series(checked, view.left_out)
        except InvalidAnswer:
            raise
        except Exception:
            if _has_any_table(tables, [view]):
                raise
            checked, is_empty = None, True
        needed = [(name,) for name in spec.requires] or [tables]
        missing = next(filter(None, (missing_evidence(view, names) for names in needed)), None) if is_empty else None
        if is_empty and missing is None and tables == {"metrics"} and not view.comparable:
            missing = f"no series varies and has two healthy samples; {len(view.left_out)} are left out"
        if checked is None or missing is not None:
            raise CannotAnswer(missing)
        return checked

    def _call(self, method: Any, request: AnswerRequest, view: SharedView, clock: _Clock) -> tuple[CheckedAnswer, bool]:
        """Call the method; return its checked answer, and whether that is empty."""
        if request.action == "detect":
            with clock:
                detection = method.detect(view)
            checked = check_detection(detection, *view.window)
            return checked, checked.alarm_ns is None
        if request.action == "localize":
            with clock:
                ranking = method.localize(view, request.alarm_ns)
            checked = check_ranking(ranking, view.services)
            return checked, not checked.ranking
        with clock:
            diagnosis = method.diagnose(view, request.alarm_ns)
        return check_diagnosis(diagnosis), diagnosis.abstains

    def _fit(self, request: FitRequest, spec: BaselineSpec, clock: _Clock) -> bytes:
        tables = readable_tables(spec)
        views = TrainingSet(request.episodes, self.cache, tables=tables)
        training: Any = views
        if "labels" in spec.needs:
            training = [
                Labelled(view=view, **label._asdict()) for view, label in zip(views, request.labels, strict=True)
            ]
        try:
            with clock:
                fitted = spec.build(seed=request.seed).fit(training)
        except Exception:
            if not views or _has_any_table(tables, views):
                raise
            raise CannotAnswer(missing_evidence(views[0], tables)) from None
        if fitted is None:
            raise InvalidAnswer("fit must return the baseline itself, got None")
        return cloudpickle.dumps(fitted)


def _has_any_table(tables: Collection[str], views: Iterable[SharedView]) -> bool:
    """Return whether any episode has any of the tables; true for a method that reads no table."""
    return not tables or any(not {*tables}.isdisjoint(view.tables) for view in views)


NO_LOCKS = (
    "a method cannot share locks between processes (ProcessPoolExecutor, multiprocessing), since it must not write to "
    "/dev/shm; use threads"
)


def describe(error: BaseException) -> str:
    """Return one line for a table: exception type, message, and the innermost code location."""
    location = _describe_location(error)
    frames = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, PermissionError) and "multiprocessing.synchronize" in frames:
        return f"{NO_LOCKS}{location}"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}{location}" if text else f"{type(error).__name__}{location}"


def _describe_location(error: BaseException) -> str:
    """Return the function, file and line; code from a notebook has no file."""
    frames = [*traceback.walk_tb(error.__traceback__)]
    if not frames:
        return ""
    frame, line = frames[-1]
    file = os.path.basename(frame.f_code.co_filename)
    position = f"line {line}" if file.startswith("<") else f"{file}:{line}"
    return f" in {frame.f_code.co_qualname} ({position})"
