"""What happens inside the runner process: fit, detect and localize, one request at a time."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from faultset.evaluators.running import processes

if TYPE_CHECKING:
    from faultset.evaluators.running.views import Memo, SharedView

EPISODES_KEPT = 3


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What labels of training episodes say in sum; only controls are told."""

    cause_counts: tuple[tuple[str, int], ...] = ()
    onset_shares: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One thing to do with one baseline."""

    number: int
    kind: Literal["fit", "detect", "localize"]
    spec: bytes
    """The baseline's spec, by cloudpickle, so that baselines written in a notebook or test arrive too."""
    seed: int
    episodes: tuple[str, ...]
    """Folders: all training episodes for "fit", one for the others."""
    model: bytes = b""
    told_ns: int = 0
    lessons: Lessons = Lessons()


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

    from faultset.evaluators.running import messages
    from faultset.evaluators.running.views import prepare_pandas

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
        processes.reset_own_peak()
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
        self._memos: OrderedDict[str, Memo] = OrderedDict()
        self._training: dict[str, Memo] = {}

    def answer(self, request: Request) -> Reply:
        from faultset.evaluators.running.answers import InvalidAnswer

        clock = _Clock()
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
            peak_bytes=processes.own_peak_bytes(),
            **what,
        )

    def _act(self, request: Request, clock: _Clock) -> Any:
        import pickle

        import cloudpickle

        from faultset.evaluators.running.answers import InvalidAnswer, plain_detection, plain_ranking

        spec = pickle.loads(request.spec)
        sli = "sli" in spec.needs
        if request.kind == "fit":
            views = self._training_set(request.episodes, sli)
            with clock:
                fitted = spec.build(seed=request.seed).fit(views)
            if fitted is None:
                raise InvalidAnswer("fit must return the baseline itself, got None")
            if spec.kind == "control":
                fitted = _teach(fitted, request.lessons)
            return cloudpickle.dumps(fitted)
        self._training = {}
        method = pickle.loads(request.model)
        view = self._view(request.episodes[0], sli)
        if request.kind == "detect":
            with clock:
                answer = method.detect(view)
            return plain_detection(answer, *view.view)
        with clock:
            answer = method.localize(view, request.told_ns)
        return plain_ranking(answer, view.services)

    def _training_set(self, folders: Sequence[str], sli: bool) -> list[SharedView]:
        from faultset.evaluators.running.views import SharedView

        # a training set is used by one baseline after the other, and not again once episodes are scored
        self._training = {folder: self._training.get(folder, {}) for folder in folders}
        return [SharedView(folder, memo, sli=sli) for folder, memo in self._training.items()]

    def _view(self, folder: str, sli: bool) -> SharedView:
        from faultset.evaluators.running.views import SharedView

        memo = self._memos.setdefault(folder, {})
        self._memos.move_to_end(folder)
        while len(self._memos) > EPISODES_KEPT:
            self._memos.popitem(last=False)
        return SharedView(folder, memo, sli=sli)


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
