"""A baseline under test, with fitted copies and cached answers."""

from __future__ import annotations

import dataclasses
import functools
import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from faultset.baselines.contract import Detection, Diagnosis, Labelled, Ranking
from faultset.baselines.registry import BaselineSpec
from faultset.baselines.testing.episodes import DeclaredView, ExampleEpisodes, example_episodes
from faultset.datasets.views import EpisodeView, read_table

Answer = Detection | Ranking | Diagnosis
_TOLERANCE = 1e-9


def alarm_time(view: EpisodeView) -> int:
    """Return the midpoint between the end of the reference and the end of the view."""
    end = view.reference[1]
    return end + (view.window[1] - end) // 2


class BaselineTrial:
    """Builds, fits and runs a baseline on synthetic episodes.

    Parameters
    ----------
    spec
        The baseline.
    examples
        Episodes for training and answers; the shared synthetic ones by default.
    """

    def __init__(self, spec: BaselineSpec, examples: ExampleEpisodes | None = None) -> None:
        self.spec = spec
        self.examples: ExampleEpisodes = examples or example_episodes()
        self._fitted: dict[int, bytes] = {}
        self._answers: dict[str, Answer] = {}
        self.undeclared: set[str] = set()
        """Inputs that were read without declaration while `expected` was computed."""

    @property
    def training(self) -> list[Any]:
        """Return labelled episodes if the baseline needs `labels`, otherwise views of healthy episodes."""
        if "labels" in self.spec.needs:
            return list(self.examples.training)
        return [item.view for item in self.examples.training if item.fault_type is None]

    def fitted(self, seed: int = 0) -> Any:
        """Return a fresh unpickled copy of the fitted baseline."""
        if seed not in self._fitted:
            self._fitted[seed] = pickle.dumps(self.original if seed == 0 else self._fit(seed))
        return pickle.loads(self._fitted[seed])

    @functools.cached_property
    def original(self) -> Any:
        """Return the fitted baseline itself, which was never pickled."""
        return self._fit(0)

    def _fit(self, seed: int) -> Any:
        fitted: Any = self.spec.build(seed=seed).fit(self.training)
        assert fitted is not None, f'{self.spec.name}: "fit" returns None; it must return the baseline itself'
        return fitted

    def answer(self, view: EpisodeView, instance: Any = None) -> Answer:
        """Return the answer of a fitted copy, or of an instance, to an episode with an alarm at `alarm_time`."""
        method = self.fitted() if instance is None else instance
        if self.spec.task == "detection":
            return method.detect(view)
        if self.spec.task == "localization":
            return method.localize(view, alarm_time(view))
        return method.diagnose(view, alarm_time(view))

    def first_answer(self, view: EpisodeView) -> Answer:
        """Return the cached answer of a fresh copy to an unchanged episode."""
        if view.episode not in self._answers:
            self._answers[view.episode] = self.answer(view)
        return self._answers[view.episode]

    @functools.cached_property
    def expected(self) -> Answer:
        """Return the answer to the unchanged faulty episode."""
        view = self.examples.faulty.view
        recorder = DeclaredView(view, self.spec.tables, self.spec.needs)
        answer = self._answers[view.episode] = self.answer(recorder)
        self.undeclared = recorder.undeclared
        if "spans" not in self.spec.tables:
            # Without declared calls, some methods read them from spans.
            view = self.examples.alter("no declared calls", {}, lambda content: content | {"calls": []})
            recorder = DeclaredView(view, self.spec.tables, self.spec.needs)
            self.answer(recorder)
            self.undeclared |= recorder.undeclared
        return answer

    def assert_same(self, result: Answer, circumstance: str, expected: Answer | None = None) -> None:
        """Check that an answer equals the expected one."""
        difference = _describe_difference(result, self.expected if expected is None else expected)
        assert not difference, f"{self.spec.name}: the answer differs {circumstance}: {difference}"

    def assert_valid(self, result: Answer, view: EpisodeView, circumstance: str) -> None:
        """Check the requirements that every answer must meet."""
        problem = _find_problem(result, view)
        assert problem is None, f"{self.spec.name}: {problem} ({circumstance})"


def labelled_faults(examples: ExampleEpisodes) -> list[Labelled]:
    """Return the training episodes with a fault."""
    return [item for item in examples.training if item.fault_type is not None]


def _describe_difference(result: Answer, expected: Answer) -> str:
    """Return how an answer differs from the expected one, except for rounding errors."""
    if not (isinstance(result, Detection) and isinstance(expected, Detection)):
        return "" if _is_close(result, expected) else f"{result} instead of {expected}"
    if len(result.times_ns) != len(expected.times_ns):
        return f"{len(result.times_ns)} samples instead of {len(expected.times_ns)}"
    if not np.array_equal(result.times_ns, expected.times_ns):
        return "samples at other times"
    differences = np.abs(result.scores - expected.scores)
    if (differences > _TOLERANCE * np.maximum(np.abs(result.scores), np.abs(expected.scores))).any():
        worst = int(differences.argmax())
        return f"score {result.scores[worst]!r} instead of {expected.scores[worst]!r} at sample {worst}"
    for name in ("flags", "threshold", "alarm_ns", "evidence"):
        value, expected_value = getattr(result, name), getattr(expected, name)
        same = np.array_equal(value, expected_value) if name == "flags" else _is_close(value, expected_value)
        if not same:
            return f"{name} {value} instead of {expected_value}"
    return ""


def _is_close(first: Any, second: Any) -> bool:
    """Return whether two values are equal except for rounding errors."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=_TOLERANCE)
    if type(first) is not type(second):
        return False
    if dataclasses.is_dataclass(first):
        return all(_is_close(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(first))
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(_is_close(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_is_close, first, second))
    return bool(first == second)


def _find_problem(result: Answer, view: EpisodeView) -> str | None:
    problems = _list_detection_problems if isinstance(result, Detection) else _list_other_problems
    for broken, sentence in problems(result, view):  # type: ignore[operator]
        if broken:
            return sentence
    for item in result.evidence:
        if item.service not in view.services or not np.isfinite(item.score) or not item.subject:
            return f"evidence needs a candidate, a finite score and a subject: {item}"
    return None


def _list_detection_problems(result: Detection, view: EpisodeView) -> Any:
    inside = (result.times_ns > view.reference[1]) & (result.times_ns <= view.window[1])
    yield (
        not (np.isfinite(result.scores).all() and np.isfinite(result.threshold)),
        "scores and threshold must be finite",
    )
    yield (
        not np.array_equal(result.flags, result.scores > result.threshold),
        "flags must be true exactly where scores exceed the threshold",
    )
    yield bool((np.diff(result.times_ns) <= 0).any()), "times must increase"
    yield not inside.all(), "times must be after the reference and within the view"
    yield not (result.alarm_ns is None or result.alarm_ns in result.times_ns), "the alarm must be one of the times"


def _list_other_problems(result: Ranking | Diagnosis, view: EpisodeView) -> Any:
    yield not 0 <= result.confidence <= 1, f"confidence must be from 0 to 1, got {result.confidence}"
    yield result.abstains != (result.confidence == 0), "confidence must be 0 if and only if the method abstains"
    if isinstance(result, Ranking):
        scores = [*result.scores.values(), *result.metrics.values(), *result.pods.values()]
        yield not result.scores.keys() <= {*view.services}, "only candidates may be ranked"
        yield not all(0 < score < np.inf for score in scores), "scores must be positive and finite"
        yield (
            not {service for service, _ in result.metrics} <= result.scores.keys(),
            "metrics must belong to ranked services",
        )
        owners = _find_services_of_pods(view) if result.pods else {}
        known_pods = all(owners.get(pod, set()) & result.scores.keys() for pod in result.pods)
        yield not known_pods, "pods must belong to ranked services"


def _find_services_of_pods(view: EpisodeView) -> dict[str, set[str]]:
    """Return the services of every pod in the tables of an episode."""
    owners: dict[str, set[str]] = {}
    for name, pod in {"metrics": "pod", "spans": "pod", "logs": "pod", "events": "name", "objects": "name"}.items():
        rows = read_table(view, name, ("service", pod) if pod == "pod" else ("service", pod, "kind"))
        if pod == "name":
            rows = rows.filter(pc.field("kind") == "Pod")
        for service, pod_name in set(zip(rows["service"].to_pylist(), rows[pod].to_pylist(), strict=True)):
            owners.setdefault(pod_name, set()).add(service)
    return owners
