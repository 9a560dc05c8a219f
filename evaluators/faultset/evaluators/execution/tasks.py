"""Units of work: fit a few baselines, or ask several about one episode. They run on dask workers."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultset.evaluators.execution.planning.baseline_runs import (
    S_NS,
    VERBS,
    Asked,
    Common,
    Model,
    ModelKey,
    Subject,
    asked_of,
)
from faultset.evaluators.execution.remote_episodes import Place, at_hand
from faultset.evaluators.execution.runners.pool import machine_pool
from faultset.evaluators.execution.runners.runner import Outcome, Runner, next_number
from faultset.evaluators.execution.runners.work import NOTHING, Label, Lessons, Parcel, Request
from faultset.evaluators.results.rows import ResultRow, Truth
from faultset.evaluators.results.stored_answers import StoredAnswer

PROGRESS_TOPIC = "faultset-answers"
_REPORT_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True)
class FitBatch:
    """Baselines to fit on the same training episodes."""

    fold: int
    healthy: tuple[Place, ...]
    """Training episodes without a fault."""
    faulty: tuple[Place, ...]
    """Training episodes with one, for baselines that need labels."""
    labels: tuple[Label, ...]
    """What is true of all of them, healthy ones first."""
    subjects: tuple[int, ...]
    lessons: Lessons

    def __call__(self, common: Common) -> dict[ModelKey, Model]:
        """Fit one after the other in one runner, which so reads the training episodes once."""
        chosen = [common.subjects[number] for number in self.subjects]
        read = self.healthy if any(subject.learns for subject in chosen) else ()
        if any("labels" in subject.needs for subject in chosen):
            read = (*self.healthy, *self.faulty)
        models = {}
        with (
            at_hand(read, _needs(chosen)) as folders,
            machine_pool().lend(f"fold {self.fold}") as runner,
        ):
            for subject in chosen:
                outcome = runner.run(self._request(subject, folders), common.limits.for_fit())
                models[subject.model(self.fold)] = Model(
                    status=outcome.status,
                    parcel=Parcel.of(outcome.value) if outcome.status == "ok" else NOTHING,
                    reason=outcome.reason,
                    seconds=outcome.seconds,
                )
                report(1)
        return models

    def _request(self, subject: Subject, folders: tuple[str, ...]) -> Request:
        labelled = "labels" in subject.needs
        return Request(
            number=next_number(),
            kind="fit",
            spec=subject.spec,
            seed=subject.seed,
            episodes=folders if labelled else folders[: len(self.healthy)] if subject.learns else (),
            lessons=self.lessons,
            labels=self.labels if labelled else (),
        )


@dataclass(frozen=True, kw_only=True)
class EpisodeBatch:
    """Baselines to ask about one episode, so that its frames are computed once."""

    fold: int
    place: Place
    truth: Truth
    subjects: tuple[int, ...]
    alarm: int | None = None
    """The named detector whose alarm localizers are told; None when no localizer needs one."""
    triggers: Mapping[str, int] = field(default_factory=dict)
    """Detectors that are somebody's own trigger, by name."""
    calibration: bool = False
    """Ask detectors about a training episode, for thresholds that are set before the test."""

    def asked(self, subject: Subject, common: Common) -> list[Asked]:
        """List the answers that a subject owes here."""
        return [("calibration", None)] if self.calibration else asked_of(subject, self.truth, common)

    def answers(self, common: Common) -> int:
        """Number of rows that will come of it."""
        return sum(len(self.asked(common.subjects[number], common)) for number in self.subjects)

    def __call__(self, common: Common, *fitted: Mapping[ModelKey, Model]) -> list[ResultRow]:
        """Ask detectors first, then the others, with the models that were fitted on this fold."""
        models = {key: model for part in fitted for key, model in part.items()}
        chosen = sorted((common.subjects[n] for n in self.subjects), key=lambda s: (s.task, s.name, s.seed))
        with at_hand((self.place,), _needs(common.subjects)) as (folder,), machine_pool().lend(folder) as runner:
            visit = _Visit(self, common, models, folder, runner)
            rows: list[ResultRow] = []
            for subject in chosen:
                found = list(visit.rows_of(subject))
                report(len(found))
                rows += found
        return rows


class _Visit:
    """Asking several subjects about one episode; nobody is asked the same thing twice."""

    def __init__(
        self,
        batch: EpisodeBatch,
        common: Common,
        models: Mapping[ModelKey, Model],
        folder: str,
        runner: Runner,
    ) -> None:
        self._batch, self._common, self._models = batch, common, models
        self._folder, self._runner = folder, runner
        self._truth = batch.truth
        self._heard: dict[tuple[str, int], Outcome] = {}

    def rows_of(self, subject: Subject) -> Iterator[ResultRow]:
        said: dict[int, Outcome] = {}
        for protocol, delay in self._batch.asked(subject, self._common):
            row = self._blank(subject, protocol, delay)
            if subject.task == "detection":
                yield _filled(row, self._alarm_of(subject))
                continue
            row, silence = self._told(row, subject)
            if row.told_ns is None:
                yield dataclasses.replace(row, status="no_alarm", reason=silence)
                continue
            if row.told_ns not in said:
                said[row.told_ns] = self._ask(subject, row.told_ns)
            yield _filled(row, said[row.told_ns])

    def _told(self, row: ResultRow, subject: Subject) -> tuple[ResultRow, str]:
        """Add what the subject is told; where that is nothing, say why."""
        if row.protocol in ("oracle", "delayed"):
            onset = self._truth.onset_ns
            assert onset is not None
            return dataclasses.replace(row, told_ns=onset + round((row.delay_s or 0.0) * S_NS), told_by="truth"), ""
        number = self._batch.alarm if row.protocol == "detected" else self._batch.triggers[subject.trigger or ""]
        assert number is not None
        detector = self._common.subjects[number]
        heard = self._alarm_of(detector)
        told = heard.value["alarm_ns"] if heard.status == "ok" else None
        why = "raised no alarm" if heard.status == "ok" else f"failed ({heard.status}: {heard.reason})"
        return dataclasses.replace(row, told_ns=told, told_by=detector.name), f"{detector.name} {why}"

    def _alarm_of(self, detector: Subject) -> Outcome:
        key = (detector.name, detector.seed)
        if key not in self._heard:
            self._heard[key] = self._ask(detector, None)
        return self._heard[key]

    def _ask(self, subject: Subject, told: int | None) -> Outcome:
        model = self._models[subject.model(self._batch.fold)]
        if model.status != "ok":
            return Outcome(status=model.status, reason=f"fit: {model.reason}", seconds=0.0)
        request = Request(
            number=next_number(),
            kind=VERBS[subject.task],
            spec=subject.spec,
            seed=subject.seed,
            episodes=(self._folder,),
            model=model.parcel,
            told_ns=told or 0,
        )
        return self._runner.run(request, self._common.limits)

    def _blank(self, subject: Subject, protocol: str, delay: float | None) -> ResultRow:
        common, fold = self._common, self._batch.fold
        return ResultRow(
            baseline=subject.name,
            kind=subject.kind,
            needs=subject.needs,
            settings=subject.settings,
            dataset=common.dataset,
            version=common.version,
            split=common.split,
            fold=fold,
            task=subject.task,
            protocol=protocol,
            delay_s=delay,
            seed=subject.seed,
            status="ok",
            usual=common.usual.get(fold) if subject.task == "rca" else None,
            fit_seconds=round(self._models[subject.model(fold)].seconds, 6),
            code=common.code,
            libraries=common.libraries,
            truth=self._truth,
        )


def _needs(subjects: Any) -> frozenset[str]:
    return frozenset(need for subject in subjects for need in subject.needs)


def _filled(row: ResultRow, outcome: Outcome) -> ResultRow:
    value: Mapping[str, Any] = outcome.value if outcome.status == "ok" else {}
    return dataclasses.replace(
        row,
        status=outcome.status,
        reason=outcome.reason,
        seconds=round(outcome.seconds, 6),
        cpu_seconds=None if outcome.cpu_seconds is None else round(outcome.cpu_seconds, 6),
        peak_bytes=outcome.peak_bytes,
        alarm_ns=value.get("alarm_ns"),
        ranking=value.get("ranking", {}),
        answer=StoredAnswer(value.get("text", "{}")),
    )


class _Told(threading.local):
    """Answers of this thread that nobody was told of yet, and when somebody was."""

    def __init__(self) -> None:
        self.waiting = 0
        self.last = time.monotonic()


_told = _Told()


def report(answers: int, *, now: bool = False) -> None:
    """Tell the client about progress now and then, where this runs on a dask worker."""
    _told.waiting += answers
    if not _told.waiting or (not now and time.monotonic() - _told.last < _REPORT_EVERY_S):
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(PROGRESS_TOPIC, _told.waiting)
    _told.waiting, _told.last = 0, time.monotonic()
