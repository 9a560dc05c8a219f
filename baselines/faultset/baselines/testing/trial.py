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

from faultset.baselines.api.contract import Detection, Diagnosis, Labelled, Ranking
from faultset.baselines.api.registry import BaselineSpec
from faultset.baselines.api.tables import read_table
from faultset.baselines.testing.episodes import DeclaredView, ExampleEpisodes, example_episodes
from faultset.datasets.views import EpisodeView

Answer = Detection | Ranking | Diagnosis
_TOLERANCE = 1e-9


def alarm_time(view: EpisodeView) -> int:
    """Return the middle of the view after the reference."""
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
        """Return the answer of a fitted copy, or of an instance, to an episode with an alarm in its middle."""
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
        watched = DeclaredView(view, self.spec.tables, self.spec.needs)
        answer = self._answers[view.episode] = self.answer(watched)
        self.undeclared = watched.undeclared
        if "spans" not in self.spec.tables:
            # Without declared calls, some methods look for them in spans.
            alone = self.examples.altered("no declared calls", {}, lambda context: context | {"calls": []})
            watched_alone = DeclaredView(alone, self.spec.tables, self.spec.needs)
            self.answer(watched_alone)
            self.undeclared |= watched_alone.undeclared
        return answer

    def assert_same(self, found: Answer, circumstance: str, expected: Answer | None = None) -> None:
        """Check that an answer equals the expected one."""
        difference = _difference(found, self.expected if expected is None else expected)
        assert not difference, f"{self.spec.name}: another answer {circumstance}: {difference}"

    def assert_sound(self, found: Answer, view: EpisodeView, circumstance: str) -> None:
        """Check the requirements that every answer must meet."""
        problem = _unsound(found, view)
        assert problem is None, f"{self.spec.name}: {problem} ({circumstance})"


def labelled_faults(examples: ExampleEpisodes) -> list[Labelled]:
    """Return the training episodes with a fault."""
    return [item for item in examples.training if item.fault_type is not None]


def _difference(found: Answer, expected: Answer) -> str:
    """Return how an answer differs from the expected one, except for rounding errors."""
    if not (isinstance(found, Detection) and isinstance(expected, Detection)):
        return "" if _nearly(found, expected) else f"{found} instead of {expected}"
    if not np.array_equal(found.times_ns, expected.times_ns):
        return f"{len(found.times_ns)} samples instead of {len(expected.times_ns)}, or at other times"
    apart = np.abs(found.scores - expected.scores)
    if (apart > _TOLERANCE * np.maximum(np.abs(found.scores), np.abs(expected.scores))).any():
        worst = int(apart.argmax())
        return f"score {found.scores[worst]!r} instead of {expected.scores[worst]!r} at sample {worst}, and elsewhere"
    for name in ("flags", "threshold", "alarm_ns", "evidence"):
        own, wanted = getattr(found, name), getattr(expected, name)
        same = np.array_equal(own, wanted) if name == "flags" else _nearly(own, wanted)
        if not same:
            return f"{name} {own} instead of {wanted}"
    return ""


def _nearly(one: Any, other: Any) -> bool:
    """Return whether two values are equal except for rounding errors."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(_nearly(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_nearly(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_nearly, one, other))
    return bool(one == other)


def _unsound(found: Answer, view: EpisodeView) -> str | None:
    problems = _detection_problems if isinstance(found, Detection) else _other_problems
    for broken, sentence in problems(found, view):  # type: ignore[operator]
        if broken:
            return sentence
    for item in found.evidence:
        if item.service not in view.services or not np.isfinite(item.score) or not item.subject:
            return f"evidence needs a candidate, a finite score and a subject: {item}"
    return None


def _detection_problems(found: Detection, view: EpisodeView) -> Any:
    inside = (found.times_ns > view.reference[1]) & (found.times_ns <= view.window[1])
    yield not (np.isfinite(found.scores).all() and np.isfinite(found.threshold)), "scores and threshold must be finite"
    yield not np.array_equal(found.flags, found.scores > found.threshold), "flags must be the scores above threshold"
    yield bool((np.diff(found.times_ns) <= 0).any()), "times must increase"
    yield not inside.all(), "times must lie after the reference and within the view"
    yield not (found.alarm_ns is None or found.alarm_ns in found.times_ns), "the alarm must be one of the times"


def _other_problems(found: Ranking | Diagnosis, view: EpisodeView) -> Any:
    yield not 0 <= found.confidence <= 1, f"confidence must lie between 0 and 1, not {found.confidence}"
    yield found.abstains != (found.confidence == 0), "confidence is 0 exactly where the method abstains"
    if isinstance(found, Ranking):
        scores = [*found.scores.values(), *found.metrics.values(), *found.pods.values()]
        yield not found.scores.keys() <= {*view.services}, "only candidates may be ranked"
        yield not all(0 < score < np.inf for score in scores), "scores must be positive and finite"
        yield not {service for service, _ in found.metrics} <= found.scores.keys(), "metrics must be of ranked services"
        owners = _services_of_pods(view) if found.pods else {}
        known_pods = all(owners.get(pod, set()) & found.scores.keys() for pod in found.pods)
        yield not known_pods, "pods must be of ranked services"


def _services_of_pods(view: EpisodeView) -> dict[str, set[str]]:
    """Return the services of every pod in the tables of an episode."""
    owners: dict[str, set[str]] = {}
    for name, pod in {"metrics": "pod", "spans": "pod", "logs": "pod", "events": "name", "objects": "name"}.items():
        rows = read_table(view, name, ("service", pod) if pod == "pod" else ("service", pod, "kind"))
        if pod == "name":
            rows = rows.filter(pc.field("kind") == "Pod")
        for service, named in set(zip(rows["service"].to_pylist(), rows[pod].to_pylist(), strict=True)):
            owners.setdefault(named, set()).add(service)
    return owners
