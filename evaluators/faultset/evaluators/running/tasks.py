"""Units of work: fit a few baselines, or ask several about one episode. They run on dask workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.evaluators.rows import ResultRow, Status, Truth
from faultset.evaluators.running.pool import machine_pool
from faultset.evaluators.running.runner import Limits, Outcome, Runner, next_number
from faultset.evaluators.running.work import Lessons, Request

PROGRESS_TOPIC = "faultset-answers"
ModelKey = tuple[str, int, int]
"""Baseline, seed, fold."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A baseline with a seed: what is fitted once per fold and then asked about every episode."""

    name: str
    kind: str
    task: str
    needs: tuple[str, ...]
    seed: int
    spec: bytes
    settings: str


@dataclass(frozen=True, kw_only=True)
class Model:
    """A fitted baseline as bytes, or why there is none."""

    status: Status
    data: bytes = b""
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FitBatch:
    """Baselines to fit on the same training episodes."""

    fold: int
    folders: tuple[str, ...]
    subjects: tuple[Subject, ...]
    lessons: Lessons
    limits: Limits

    def __call__(self) -> dict[ModelKey, Model]:
        """Fit one after the other in one runner, which so reads the training episodes once."""
        models = {}
        with machine_pool().lend(f"fold {self.fold}") as runner:
            for subject in self.subjects:
                outcome = runner.run(self._request(subject), self.limits.for_fit())
                models[subject.name, subject.seed, self.fold] = Model(
                    status=outcome.status,
                    data=outcome.value or b"",
                    reason=outcome.reason,
                    seconds=outcome.seconds,
                )
                _report(1)
        return models

    def _request(self, subject: Subject) -> Request:
        return Request(number=next_number(), kind="fit", spec=subject.spec, seed=subject.seed, episodes=self.folders)


@dataclass(frozen=True, kw_only=True)
class Common:
    """What all rows of an evaluation share."""

    dataset: str
    version: str
    split: str
    code: str
    libraries: str


@dataclass(frozen=True, kw_only=True)
class EpisodeBatch:
    """Baselines to ask about one episode, so that its frames are computed once."""

    fold: int
    folder: str
    truth: Truth
    subjects: tuple[Subject, ...]
    protocols: tuple[str, ...]
    alarm: Subject | None
    """The named detector whose alarm localizers are told; None when no localizer needs one."""
    limits: Limits
    common: Common

    @property
    def answers(self) -> int:
        """Number of rows that will come of it."""
        return sum(len(self._protocols_of(subject)) for subject in self.subjects)

    def __call__(self, *fitted: Mapping[ModelKey, Model]) -> list[ResultRow]:
        """Ask detectors first, then localizers, with the models that were fitted on this fold."""
        models = {key: model for part in fitted for key, model in part.items()}
        rows: list[ResultRow] = []
        with machine_pool().lend(self.folder) as runner:
            ask = lambda subject, told: self._ask(runner, models, subject, told)  # noqa: E731
            heard = ask(self.alarm, None) if self.alarm is not None else None
            for subject in sorted(self.subjects, key=lambda s: (s.task, s.name, s.seed)):
                for row in self._rows_of(subject, ask, heard, models):
                    rows.append(row)
                    _report(1)
        return rows

    def _protocols_of(self, subject: Subject) -> tuple[str, ...]:
        if subject.task == "detection":
            return ("detected",)
        return self.protocols if self.truth.faulty else ()

    def _rows_of(
        self,
        subject: Subject,
        ask: Callable[[Subject, int | None], Outcome],
        heard: Outcome | None,
        models: Mapping[ModelKey, Model],
    ) -> Iterator[ResultRow]:
        for protocol in self._protocols_of(subject):
            row = self._blank(subject, protocol, models)
            if subject.task == "detection":
                same = self.alarm is not None and (subject.name, subject.seed) == (self.alarm.name, self.alarm.seed)
                outcome = heard if same and heard is not None else ask(subject, None)
                yield _filled(row, outcome)
            elif protocol == "oracle":
                told = self.truth.onset_ns
                yield _filled(dataclasses.replace(row, told_ns=told, told_by="truth"), ask(subject, told))
            else:
                assert self.alarm is not None
                assert heard is not None
                told = heard.value["alarm_ns"] if heard.status == "ok" else None
                row = dataclasses.replace(row, told_ns=told, told_by=self.alarm.name)
                if told is None:
                    why = "raised no alarm" if heard.status == "ok" else f"failed ({heard.status}: {heard.reason})"
                    yield dataclasses.replace(row, status="no_alarm", reason=f"{self.alarm.name} {why}")
                else:
                    yield _filled(row, ask(subject, told))

    def _ask(self, runner: Runner, models: Mapping[ModelKey, Model], subject: Subject, told: int | None) -> Outcome:
        model = models[subject.name, subject.seed, self.fold]
        if model.status != "ok":
            return Outcome(status=model.status, reason=f"fit: {model.reason}", seconds=0.0)
        request = Request(
            number=next_number(),
            kind="detect" if subject.task == "detection" else "localize",
            spec=subject.spec,
            seed=subject.seed,
            episodes=(self.folder,),
            model=model.data,
            told_ns=told or 0,
        )
        return runner.run(request, self.limits)

    def _blank(self, subject: Subject, protocol: str, models: Mapping[ModelKey, Model]) -> ResultRow:
        return ResultRow(
            baseline=subject.name,
            kind=subject.kind,
            needs=subject.needs,
            settings=subject.settings,
            dataset=self.common.dataset,
            version=self.common.version,
            split=self.common.split,
            fold=self.fold,
            task=subject.task,
            protocol=protocol,
            seed=subject.seed,
            status="ok",
            fit_seconds=round(models[subject.name, subject.seed, self.fold].seconds, 6),
            code=self.common.code,
            libraries=self.common.libraries,
            truth=self.truth,
        )


def _filled(row: ResultRow, outcome: Outcome) -> ResultRow:
    value: dict[str, Any] = dict(outcome.value or {}) if outcome.status == "ok" else {}
    return dataclasses.replace(
        row,
        status=outcome.status,
        reason=outcome.reason,
        seconds=round(outcome.seconds, 6),
        cpu_seconds=None if outcome.cpu_seconds is None else round(outcome.cpu_seconds, 6),
        peak_bytes=outcome.peak_bytes,
        alarm_ns=value.pop("alarm_ns", None),
        ranking=value.pop("ranking", {}),
        answer=value,
    )


def _report(answers: int) -> None:
    """Tell the client about progress, where this runs on a dask worker."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(PROGRESS_TOPIC, answers)


def divide(items: Sequence[Subject], pieces: int) -> list[tuple[Subject, ...]]:
    """Deal items out in turn into at most `pieces` groups, none of them empty."""
    return [tuple(items[i::pieces]) for i in range(min(pieces, len(items)))]
