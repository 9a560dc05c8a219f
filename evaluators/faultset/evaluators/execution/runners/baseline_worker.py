"""The process that runs a baseline: serve fit, detect, localize and diagnose requests."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Collection, Iterable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from faultset.evaluators.execution.runners import process_trees
from faultset.evaluators.execution.runners.messages import (
    AnswerRequest,
    Blob,
    CheckedAnswer,
    FitRequest,
    MethodProcess,
    RunnerOutcome,
    reply_header,
)

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec
    from faultset.evaluators.execution.runners.views import SharedView


def serve_requests(server: Connection, process: MethodProcess, scratch: str) -> None:
    """Confine this process, then serve requests until the fork server closes its side."""
    import numpy as np

    from faultset.evaluators.execution.runners.confinement import confine_method

    peak = process_trees.PeakMemory()
    os.chdir(scratch)
    os.environ["TMPDIR"] = os.environ["JOBLIB_TEMP_FOLDER"] = tempfile.tempdir = scratch
    confine_method(process, scratch)
    me = os.getpid()
    worker = BaselineWorker(peak)
    imported = set(sys.modules)
    while True:
        try:
            request: FitRequest | AnswerRequest = server.recv()
        except EOFError:
            return
        random.seed(request.seed)
        np.random.seed(request.seed % 2**32)
        peak.reset()
        reply = worker.reply_to(request)
        if os.getpid() != me:
            # The baseline forked, and its child returned here too. Only the parent may continue.
            os._exit(0)
        added = sys.modules.keys() - imported if process.built_in else set[str]()
        imported |= added
        server.send_bytes(reply_header(request.number, reply, added))
        server.send_bytes(reply.model)


class _Clock:
    """Elapsed and CPU time of the method alone, excluding the time to open files and check its answer."""

    def __init__(self, peak: process_trees.PeakMemory) -> None:
        self._peak = peak
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu

    def measurements(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_bytes": self._peak.bytes(),
        }


class BaselineWorker:
    """Runs baselines in the process that creates it.

    Parameters
    ----------
    peak
        Measures the memory of each answer.
    reraised
        Exceptions that are raised again instead of becoming an outcome.
    """

    def __init__(self, peak: process_trees.PeakMemory, *, reraised: tuple[type[BaseException], ...] = ()) -> None:
        from faultset.evaluators.execution.runners.views import Cache

        self._peak = peak
        self._reraised = reraised
        self.cache = Cache()
        self._episode = ""

    def reply_to(self, request: FitRequest | AnswerRequest) -> RunnerOutcome:
        """Serve a request; an exception of the method is an outcome."""
        from faultset.evaluators.execution.runners.answers import CannotAnswer, InvalidAnswer

        clock = _Clock(self._peak)
        answer: CheckedAnswer | None = None
        model = b""
        try:
            spec: BaselineSpec = self._load(request.spec)
            if isinstance(request, FitRequest):
                model = self._fit(request, spec, clock)
            else:
                answer = self._answer(request, spec, clock)
        except InvalidAnswer as wrong:
            return RunnerOutcome(status="invalid", reason=str(wrong), **clock.measurements())
        except CannotAnswer as missing:
            return RunnerOutcome(status="cannot", reason=str(missing), **clock.measurements())
        except self._reraised:
            raise
        except BaseException as error:
            # third-party code may raise anything, SystemExit included
            return RunnerOutcome(status="error", reason=describe(error), **clock.measurements())
        return RunnerOutcome(status="ok", answer=answer, model=model, **clock.measurements())

    def _load(self, blob: Blob) -> Any:
        import pickle

        return pickle.loads(blob.data)

    def _answer(self, request: AnswerRequest, spec: BaselineSpec, clock: _Clock) -> CheckedAnswer:
        from faultset.datasets.checks.telemetry import missing_evidence
        from faultset.evaluators.execution.runners import answers
        from faultset.evaluators.execution.runners.views import Cache, SharedView, readable_tables

        if request.episode != self._episode:
            # memory is measured per answer, so frames of another episode must not count
            self._episode, self.cache = request.episode, Cache()
        # unpickled for every answer, so that no state is carried to the next episode
        method = self._load(request.model)
        location = request.alarm_location if "alarm_location" in spec.needs else None
        tables = readable_tables(spec)
        view = SharedView(request.episode, self.cache, tables=tables, alarm_location=location)
        try:
            checked, empty = self._call(method, request, view, clock)
            checked = answers.add_skipped_series(checked, view.left_out)
        except answers.InvalidAnswer:
            raise
        except Exception:
            if _has_any_table(tables, [view]):
                raise
            checked, empty = None, True
        needed = [(name,) for name in spec.requires] or [tables]
        missing = next(filter(None, (missing_evidence(view, names) for names in needed)), None) if empty else None
        if empty and missing is None and tables == {"metrics"} and not view.comparable:
            missing = f"no series varies and has two healthy samples; {len(view.left_out)} are left out"
        if checked is None or missing is not None:
            raise answers.CannotAnswer(missing)
        return checked

    def _call(self, method: Any, request: AnswerRequest, view: SharedView, clock: _Clock) -> tuple[CheckedAnswer, bool]:
        """Call the method; return its checked answer, and whether that is empty."""
        from faultset.evaluators.execution.runners import answers

        if request.action == "detect":
            with clock:
                detection = method.detect(view)
            checked = answers.check_detection(detection, *view.window)
            empty = checked.alarm_ns is None
        elif request.action == "localize":
            with clock:
                ranking = method.localize(view, request.alarm_ns)
            checked = answers.check_ranking(ranking, view.services)
            empty = not checked.ranking
        else:
            with clock:
                diagnosis = method.diagnose(view, request.alarm_ns)
            checked = answers.check_diagnosis(diagnosis)
            empty = diagnosis.abstains
        return checked, empty

    def _fit(self, request: FitRequest, spec: BaselineSpec, clock: _Clock) -> bytes:
        import cloudpickle

        from faultset.baselines.api.contract import Labelled
        from faultset.datasets.checks.telemetry import missing_evidence
        from faultset.evaluators.execution.runners.answers import CannotAnswer, InvalidAnswer
        from faultset.evaluators.execution.runners.views import TrainingSet, readable_tables

        training: Any = TrainingSet(request.episodes, self.cache, tables=readable_tables(spec))
        if "labels" in spec.needs:
            training = [
                Labelled(view=view, **label._asdict()) for view, label in zip(training, request.labels, strict=True)
            ]
        try:
            with clock:
                fitted = spec.build(seed=request.seed).fit(training)
        except Exception:
            views = TrainingSet(request.episodes, self.cache, tables=readable_tables(spec))
            if not views or _has_any_table(readable_tables(spec), views):
                raise
            raise CannotAnswer(missing_evidence(views[0], readable_tables(spec))) from None
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
    where = f"line {line}" if file.startswith("<") else f"{file}:{line}"
    return f" in {frame.f_code.co_qualname} ({where})"
