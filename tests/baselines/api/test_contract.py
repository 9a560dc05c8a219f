"""What every registered baseline keeps to; subjects are found through the registry."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from faultset.baselines.api.contract import Detection, Detector, Diagnoser, Diagnosis, Labelled, Localizer, Ranking
from faultset.baselines.api.registry import BaselineSpec, list_baselines
from faultset.baselines.api.tables import read_table
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

SPECS = list_baselines()
DETECTORS = [spec for spec in SPECS.values() if spec.task == "detection"]
LOCALIZERS = [spec for spec in SPECS.values() if spec.task == "localization"]
DIAGNOSERS = [spec for spec in SPECS.values() if spec.task == "rca"]
SHAPES: Mapping[str, type] = {"detection": Detector, "localization": Localizer, "rca": Diagnoser}
Answer = Detection | Ranking | Diagnosis
SECOND = 1_000_000_000
TIME = {name: "scheduled" if name == "requests" else "time" for name in TABLES}

Edit = Callable[[pa.Table], pa.Table | None]


def ids(spec: BaselineSpec) -> str:
    return spec.name


every = pytest.mark.parametrize("spec", list(SPECS.values()), ids=ids)
every_detector = pytest.mark.parametrize("spec", DETECTORS, ids=ids)
every_diagnoser = pytest.mark.parametrize("spec", DIAGNOSERS, ids=ids)


@pytest.fixture(scope="module")
def training(example) -> list[Labelled]:
    """The example's episodes with their answers."""
    found = []
    for episode in example.episodes:
        label = example.label(episode)
        found.append(
            Labelled(
                view=example.view(episode),
                service=label["targets"][0] if label["targets"] else None,
                system_level=label["system_level"],
                fault_type=label["fault_type"],
                causes=tuple(label["targets"] or ()),
                onset_ns=label["inject_start"],
            )
        )
    return found


@pytest.fixture(scope="module")
def made(training) -> Callable[..., Any]:
    """Builds baselines: those that may know truths get some, learned once for each baseline and seed."""
    learned: dict[tuple[str, int], Any] = {}

    def build(spec: BaselineSpec, seed: int = 0) -> Any:
        instance: Any = spec.build(seed=seed)
        if "labels" in spec.needs:
            if (spec.name, seed) not in learned:
                learned[spec.name, seed] = pickle.dumps(instance.fit(training))
            instance = pickle.loads(learned[spec.name, seed])
        return instance

    return build


def alarm_of(view: EpisodeView) -> int:
    end = view.reference[1]
    return end + (view.view[1] - end) // 2


def answer(spec: BaselineSpec, view: EpisodeView, instance: Any) -> Answer:
    if spec.task == "detection":
        return instance.detect(view)
    if spec.task == "localization":
        return instance.localize(view, alarm_of(view))
    return instance.diagnose(view, alarm_of(view))


@pytest.fixture(scope="module")
def usual(example, faulty, made) -> Callable[[BaselineSpec], Answer]:
    """Answers of freshly made baselines to the episode with a fault, computed once."""
    found: dict[str, Answer] = {}

    def of(spec: BaselineSpec) -> Answer:
        if spec.name not in found:
            found[spec.name] = answer(spec, example.view(faulty), made(spec))
        return found[spec.name]

    return of


def assert_same(one: Answer, other: Answer) -> None:
    assert type(one) is type(other)
    if isinstance(one, Detection) and isinstance(other, Detection):
        for name in ("times_ns", "scores", "flags"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (one.threshold, one.alarm_ns, one.evidence) == (other.threshold, other.alarm_ns, other.evidence)
    else:
        assert one == other


def owners_of_pods(view: EpisodeView) -> dict[str, set[str]]:
    """Services of every pod that some table of an episode names."""
    owners: dict[str, set[str]] = {}
    for name, pod in {"metrics": "pod", "spans": "pod", "logs": "pod", "events": "name", "objects": "name"}.items():
        rows = read_table(view, name, ("service", pod) if pod == "pod" else ("service", pod, "kind"))
        if pod == "name":
            rows = rows.filter(pc.field("kind") == "Pod")
        for service, named in set(zip(rows["service"].to_pylist(), rows[pod].to_pylist(), strict=True)):
            owners.setdefault(named, set()).add(service)
    return owners


def assert_sound(found: Answer, view: EpisodeView) -> None:
    """Check what holds for any answer, however little there was to go by."""
    services = set(view.services)
    if isinstance(found, Detection):
        assert np.isfinite(found.scores).all()
        assert np.isfinite(found.threshold)
        np.testing.assert_array_equal(found.flags, found.scores > found.threshold)
        assert (np.diff(found.times_ns) > 0).all()
        assert ((found.times_ns > view.reference[1]) & (found.times_ns <= view.view[1])).all()
        assert found.alarm_ns is None or found.alarm_ns in found.times_ns
    elif isinstance(found, Diagnosis):
        assert 0 <= found.confidence <= 1
        assert found.abstains == (found.confidence == 0)
    else:
        assert set(found.scores) <= services
        assert all(0 < score < np.inf for score in found.scores.values())
        assert 0 <= found.confidence <= 1
        assert found.abstains == (found.confidence == 0)
        assert set(found.ordered) == set(found.scores)
        assert {service for service, _ in found.metrics} <= set(found.scores)
        assert all(0 < score < np.inf for score in found.metrics.values())
        assert all(0 < score < np.inf for score in found.pods.values())
        owners = owners_of_pods(view) if found.pods else {}
        assert all(owners.get(pod, set()) & set(found.scores) for pod in found.pods)
    for item in found.evidence:
        assert item.service in services
        assert np.isfinite(item.score)
        assert item.subject


@every
def test_it_says_what_it_is(spec: BaselineSpec) -> None:
    assert isinstance(spec.build(), SHAPES[spec.task])
    text = str(spec.factory.__doc__)
    assert text.lstrip().startswith("Control") == (spec.kind == "control")
    assert spec.kind in ("control", "rule") or "References" in text
    assert spec.title
    assert spec.paper
    assert spec.complexity.startswith("O(")
    assert set(spec.tables) <= TABLES.keys()
    assert spec.needs <= {"sli", "labels"}
    assert spec.task != "rca" or "labels" in spec.needs
    assert ("sli" in spec.needs) == ("requests" in spec.tables)
    assert all(sentence.endswith(".") for sentence in spec.departures)
    built = spec.build()
    assert (built.name, built.needs, built.tables) == (spec.name, spec.needs, spec.tables)


@every
def test_equal_seeds_give_equal_answers_whatever_came_before(spec: BaselineSpec, usual, made, example, faulty) -> None:
    view = example.view(faulty)
    assert_sound(usual(spec), view)
    instance = made(spec)
    answer(spec, example.view(example.episodes[0]), instance)
    assert_same(usual(spec), answer(spec, view, instance))


def view_path(example: Any, episode: str) -> Any:
    return example.root / "episodes" / episode


@every
def test_a_seed_matters_only_where_it_is_taken(spec: BaselineSpec, made) -> None:
    if spec.stochastic:
        assert made(spec, seed=7).seed == 7
    else:
        made(spec, seed=7)


class Shared(EpisodeView):
    """Hands out the same frames every time, as a cache would, with the columns in an order of its own."""

    def __init__(self, path: Any, seed: int | None = None) -> None:
        super().__init__(path)
        self.frames: dict[Any, pd.DataFrame] = {}
        self.seed = seed

    def wide(self, step_s: float = 1.0, roles: Any = None) -> pd.DataFrame:
        if (step_s, roles) not in self.frames:
            frame = super().wide(step_s, roles)
            if self.seed is not None:
                order = np.random.default_rng(self.seed).permutation(frame.shape[1])
                frame = frame.iloc[:, order]
            self.frames[step_s, roles] = frame
        return self.frames[step_s, roles]


@every
def test_it_leaves_its_input_alone_and_ignores_column_order(spec: BaselineSpec, usual, made, example, faulty) -> None:
    path = view_path(example, faulty)
    shared = Shared(path, seed=3)
    assert_same(usual(spec), answer(spec, shared, made(spec)))
    for (step_s, roles), frame in shared.frames.items():
        pd.testing.assert_frame_equal(frame, Shared(path, seed=3).wide(step_s, roles))


@every
def test_it_travels_to_other_processes(spec: BaselineSpec, usual, made, training, example, faulty) -> None:
    known = training if "labels" in spec.needs else [example.view(example.episodes[0])]
    copy = pickle.loads(pickle.dumps(made(spec).fit(known)))
    found = answer(spec, pickle.loads(pickle.dumps(example.view(faulty))), copy)
    assert_same(usual(spec), pickle.loads(pickle.dumps(found)))
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "table"),
    [pytest.param(spec, table, id=f"{spec.name}-{table}") for spec in SPECS.values() for table in spec.tables],
)
def test_it_survives_a_missing_and_an_empty_table(spec: BaselineSpec, table: str, made, faulty, alter) -> None:
    for edit in (lambda rows: None, lambda rows: rows.slice(0, 0)):
        view = alter(faulty, {table: edit})
        assert_sound(answer(spec, view, made(spec)), view)


def nothing(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


@every
def test_it_does_not_invent_without_evidence(spec: BaselineSpec, made, faulty, alter) -> None:
    view = alter(faulty, dict.fromkeys(TABLES, nothing))
    found = answer(spec, view, made(spec))
    assert_sound(found, view)
    if not spec.tables:
        return
    if isinstance(found, Detection):
        assert found.alarm_ns is None
    else:
        assert found.abstains


def constant(rows: pa.Table) -> pa.Table:
    return replaced(rows, "value", pa.array(np.full(len(rows), 4.0)))


def instants(rows: pa.Table, column: str = "time") -> np.ndarray:
    return rows[column].cast("int64").to_numpy()


def replaced(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(column), column, values)


def first_instant(rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array(instants(rows) < instants(rows).min() + SECOND))


def gaps(rows: pa.Table) -> pa.Table:
    values = rows["value"].to_numpy().copy()
    values[::7] = np.nan
    return replaced(rows, "value", pa.array(values, from_pandas=False))


def strangers(rows: pa.Table) -> pa.Table:
    names = pa.array([None if row % 3 else "who-is-this" for row in range(len(rows))], pa.string())
    return replaced(rows, "service", names)


def garbled(rows: pa.Table) -> pa.Table:
    texts = ["{", "[]", "{}", '{"replicas": "many", "containers": 3}', '{"containers": [null, {}]}']
    state = pa.array([texts[row % len(texts)] for row in range(len(rows))], pa.string())
    kinds = ["Deployment", "Pod", "Endpoints", "PersistentVolume", "Thing"]
    kind = pa.array([kinds[row // 3 % len(kinds)] for row in range(len(rows))], pa.string())
    rows = replaced(rows, "state", state)
    return replaced(rows, "kind", kind)


ODD: Mapping[str, Mapping[str, Edit]] = {
    "constant series": {"metrics": constant},
    "single sample": {"metrics": first_instant},
    "gaps": {"metrics": gaps},
    "rows of unknown services": dict.fromkeys(("metrics", "spans", "logs", "events", "objects"), strangers),
    "states without meaning": {"objects": garbled},
}


@pytest.mark.parametrize(
    ("spec", "case"),
    [
        pytest.param(spec, case, id=f"{spec.name}-{case}")
        for spec in SPECS.values()
        for case in ODD
        if set(ODD[case]) & set(spec.tables)
    ],
)
def test_it_survives_odd_data(spec: BaselineSpec, case: str, made, faulty, alter) -> None:
    view = alter(faulty, ODD[case])
    assert_sound(answer(spec, view, made(spec)), view)


@every
def test_it_survives_a_single_candidate(spec: BaselineSpec, made, faulty, alter) -> None:
    def alone(text: str) -> str:
        return json.dumps(json.loads(text) | {"services": ["geo"], "calls": [], "workload_entry": "geo"})

    view = alter(faulty, {}, context=alone)
    assert view.services == ("geo",)
    assert_sound(answer(spec, view, made(spec)), view)


@every_detector
def test_it_does_not_look_ahead(spec: BaselineSpec, usual, made, example, faulty, alter) -> None:
    view = example.view(faulty)
    cut = alarm_of(view) + SECOND // 3

    def past(name: str) -> Edit:
        def keep(rows: pa.Table) -> pa.Table:
            known = instants(rows, TIME[name])
            if name == "requests":
                # Who does not answer in time looks the same as who never will.
                latency = rows["latency_ns"].to_numpy()
                late = known + latency > cut
                outcome = np.where(late, "unfinished", np.array(rows["outcome"].to_pylist(), dtype=object))
                rows = replaced(rows, "latency_ns", pa.array(latency, pa.int64(), mask=late))
                rows = replaced(rows, "outcome", pa.array(outcome, pa.string()))
            return rows.filter(pa.array(known < cut))

        return keep

    full = usual(spec)
    short = answer(spec, alter(faulty, {name: past(name) for name in TABLES}), made(spec))
    assert isinstance(full, Detection)
    assert isinstance(short, Detection)
    count = int((full.times_ns <= cut).sum())
    assert count > 10
    np.testing.assert_array_equal(full.times_ns[:count], short.times_ns[:count])
    np.testing.assert_allclose(full.scores[:count], short.scores[:count])
    np.testing.assert_array_equal(full.flags[:count], short.flags[:count])


@every_detector
def test_it_covers_the_view_after_the_reference(spec: BaselineSpec, usual, example, faulty) -> None:
    view = example.view(faulty)
    found = usual(spec)
    assert isinstance(found, Detection)
    step = round(view.context.resolution_s * SECOND)
    assert found.times_ns[0] <= view.reference[1] + 2 * step
    assert found.times_ns[-1] > view.view[1] - step
    assert (np.diff(found.times_ns) <= step).all()


@pytest.mark.parametrize("spec", [spec for spec in DETECTORS if spec.tables], ids=ids)
def test_higher_means_worse_and_beats_a_coin(spec: BaselineSpec, made, example) -> None:
    if spec.name == "missing-edge":
        pytest.skip("in the example no call stops")
    right = 0
    for episode in example.episodes:
        onset = example.label(episode)["inject_start"]
        found = answer(spec, example.view(episode), made(spec))
        assert isinstance(found, Detection)
        if onset is None:
            right += found.alarm_ns is None
            continue
        right += found.alarm_ns is not None and found.alarm_ns > onset
        late = found.times_ns > onset
        assert found.scores[late].mean() > found.scores[~late].mean()
    assert right > len(example.episodes) / 2


@pytest.mark.parametrize("spec", [spec for spec in LOCALIZERS if spec.tables], ids=ids)
def test_it_beats_chance_where_it_answers(spec: BaselineSpec, made, example) -> None:
    places: list[float] = []
    answered = 0
    for episode in example.episodes:
        label = example.label(episode)
        if label["fault"] is None:
            continue
        view = example.view(episode)
        found = made(spec).localize(view, int(label["inject_start"]) + 4 * SECOND)
        answered += not found.abstains
        order: Sequence[str] = found.ordered
        left_out = (len(order) + 1 + len(view.services)) / 2
        target = label["targets"][0]
        places.append(order.index(target) + 1 if target in order else left_out)
    if not answered:
        pytest.skip("the example has none of its signs")
    if spec.name == "last-change":
        pytest.skip("changes in the example are at random")
    assert np.mean(places) < (len(example.view(example.episodes[0]).services) + 1) / 2


@every_diagnoser
def test_it_answers_with_pairs_that_it_was_taught(spec: BaselineSpec, usual, training) -> None:
    found = usual(spec)
    assert isinstance(found, Diagnosis)
    assert (found.system_level, found.fault_type) in {(one.system_level, one.fault_type) for one in training}


@every_diagnoser
def test_it_abstains_when_it_was_taught_nothing(spec: BaselineSpec, training, example, faulty) -> None:
    healthy = [one for one in training if one.fault_type is None]
    for known in ([], healthy):
        assert answer(spec, example.view(faulty), spec.build().fit(known)).abstains  # type: ignore[union-attr]


def renamed(rows: pa.Table) -> pa.Table:
    for column in ("service", "peer_service", "reported_service"):
        if column in rows.column_names:
            names = [None if name is None else f"x-{name}" for name in rows[column].to_pylist()]
            rows = replaced(rows, column, pa.array(names, pa.string()))
    return rows


@every_diagnoser
def test_names_of_services_do_not_matter(spec: BaselineSpec, usual, made, faulty, alter) -> None:
    def strange(text: str) -> str:
        context = json.loads(text)
        context["services"] = [f"x-{name}" for name in context["services"]]
        context["calls"] = [[f"x-{name}" for name in call] for call in context["calls"]]
        return json.dumps(context | {"workload_entry": f"x-{context['workload_entry']}"})

    view = alter(faulty, dict.fromkeys(TABLES, renamed), context=strange)
    found, expected = answer(spec, view, made(spec)), usual(spec)
    assert isinstance(found, Diagnosis)
    assert isinstance(expected, Diagnosis)
    assert (found.system_level, found.fault_type) == (expected.system_level, expected.fault_type)
    assert found.confidence == pytest.approx(expected.confidence)


def test_no_baseline_can_reach_the_truth() -> None:
    import faultset.baselines as package
    from faultset.baselines.api import registry

    assert registry.get_baseline("ksigma").name == "ksigma"
    for folder in package.__path__:
        import pathlib

        for path in pathlib.Path(folder).glob("**/*.py"):
            text = path.read_text()
            assert "datasets.truth" not in text, path
            assert "datasets.versions" not in text, path
