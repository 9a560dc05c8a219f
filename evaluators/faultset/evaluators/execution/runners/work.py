"""What happens inside the runner process: fit, detect, localize and diagnose, one request at a time."""

from __future__ import annotations

import hashlib
import os
import random
import time
import traceback
from dataclasses import dataclass, replace
from typing import Any, Literal

from faultset.evaluators.execution.runners import process_trees

Kind = Literal["fit", "detect", "localize", "diagnose"]
Label = tuple[str | None, str | None, str | None]
"""Service at fault, system level, fault type."""


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What labels of training episodes say in sum; only controls are told."""

    cause_counts: tuple[tuple[str, int], ...] = ()
    onset_shares: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """Bytes that a runner is sent once and then knows by their digest."""

    digest: str
    data: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Parcel:
        """Wrap bytes."""
        return cls(digest=hashlib.sha256(data).hexdigest(), data=data)

    @property
    def bare(self) -> Parcel:
        """The same without the bytes, for a runner that has them."""
        return replace(self, data=b"")


NOTHING = Parcel.of(b"")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One thing to do with one baseline."""

    number: int
    kind: Kind
    spec: Parcel
    """The baseline's spec, by cloudpickle, so that baselines written in a notebook or test arrive too."""
    seed: int
    episodes: tuple[str, ...]
    """Folders: all training episodes for "fit", one for the others."""
    model: Parcel = NOTHING
    told_ns: int = 0
    lessons: Lessons = Lessons()
    labels: tuple[Label, ...] = ()
    """For "fit" of a baseline that needs labels: what is true of each episode."""

    @property
    def parcels(self) -> tuple[Parcel, ...]:
        """What the runner has to have."""
        return self.spec, self.model


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came of a request; `failure` is empty when `value` is an answer."""

    number: int
    status: Literal["ok", "invalid", "error"]
    value: Any = None
    failure: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


READY = "ready"


def work(tasks: int, answers: int) -> None:
    """Answer requests until the pipe of tasks is closed."""
    import cloudpickle  # noqa: F401  imported before the first request, so that its time is nobody's
    import numpy as np

    from faultset.evaluators.execution.runners import messages
    from faultset.evaluators.execution.runners.views import prepare_pandas

    prepare_pandas()
    me = os.getpid()
    worker = _Worker()
    messages.send(answers, READY)
    while True:
        try:
            request: Request = messages.receive(tasks)
        except EOFError:
            return
        random.seed(request.seed)
        np.random.seed(request.seed % 2**32)
        process_trees.reset_own_peak()
        reply = worker.answer(request)
        if os.getpid() != me:
            # a baseline forked and its child came back here as well; only one of them may go on
            os._exit(0)
        messages.send(answers, reply)


class _Clock:
    """Elapsed and processor time of the method alone, without opening files and checking its answer."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


class _Worker:
    def __init__(self) -> None:
        from faultset.evaluators.execution.runners.cache import Memo

        self._memo = Memo()
        self._parcels: dict[str, bytes] = {}

    def answer(self, request: Request) -> Reply:
        from faultset.evaluators.execution.runners.answers import InvalidAnswer

        clock = _Clock()
        for parcel in request.parcels:
            if parcel.data or parcel.digest == NOTHING.digest:
                self._parcels[parcel.digest] = parcel.data
        try:
            value = self._act(request, clock)
        except InvalidAnswer as wrong:
            return self._reply(request, clock, status="invalid", failure=str(wrong))
        except BaseException as error:
            # foreign code: whatever it raises, SystemExit included, is its answer
            return self._reply(request, clock, status="error", failure=describe(error))
        return self._reply(request, clock, status="ok", value=value)

    def _reply(self, request: Request, clock: _Clock, **what: Any) -> Reply:
        return Reply(
            number=request.number,
            seconds=clock.seconds,
            cpu_seconds=clock.cpu_seconds,
            peak_bytes=process_trees.own_peak_bytes(),
            **what,
        )

    def _act(self, request: Request, clock: _Clock) -> Any:
        import pickle

        from faultset.evaluators.execution.runners import answers
        from faultset.evaluators.execution.runners.views import SharedView

        spec = pickle.loads(self._parcels[request.spec.digest])
        if request.kind == "fit":
            return self._fit(request, spec, clock)
        # unpickled for every answer: what a method remembers must not reach the next episode
        method = pickle.loads(self._parcels[request.model.digest])
        view = SharedView(request.episodes[0], self._memo, sli="sli" in spec.needs)
        with clock:
            if request.kind == "detect":
                answer = method.detect(view)
            elif request.kind == "localize":
                answer = method.localize(view, request.told_ns)
            else:
                answer = method.diagnose(view, request.told_ns)
        if request.kind == "detect":
            return answers.plain_detection(answer, *view.view)
        if request.kind == "localize":
            return answers.plain_ranking(answer, view.services)
        return answers.plain_diagnosis(answer)

    def _fit(self, request: Request, spec: Any, clock: _Clock) -> bytes:
        import cloudpickle

        from faultset.baselines.api.contract import Labelled
        from faultset.evaluators.execution.runners.answers import InvalidAnswer
        from faultset.evaluators.execution.runners.views import TrainingSet

        training: Any = TrainingSet(request.episodes, self._memo, sli="sli" in spec.needs)
        if "labels" in spec.needs:
            training = [
                Labelled(view=view, service=service, system_level=level, fault_type=kind)
                for view, (service, level, kind) in zip(training, request.labels, strict=True)
            ]
        with clock:
            fitted = spec.build(seed=request.seed).fit(training)
        if fitted is None:
            raise InvalidAnswer("fit must return the baseline itself, got None")
        if spec.kind == "control":
            fitted = _teach(fitted, request.lessons)
        return cloudpickle.dumps(fitted)


def _teach(control: Any, lessons: Lessons) -> Any:
    """Tell a control what it is made of: how often each service was to blame, or when faults began."""
    if hasattr(control, "fit_labels"):
        control = control.fit_labels(dict(lessons.cause_counts))
    if hasattr(control, "fit_onsets"):
        control = control.fit_onsets(list(lessons.onset_shares))
    return control


def describe(error: BaseException) -> str:
    """One line for a table: kind, text, and the innermost place in the baseline."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
