"""Example episodes with and without faults, and modified copies of them."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.baselines.networks import EXTRA
from faultset.baselines.registry import list_baselines
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

Edit = Callable[[pa.Table], pa.Table | None]
Alter = Callable[..., EpisodeView]
ObservedObjects = Mapping[tuple[str, str, str], list[tuple[int, dict[str, Any]]]]
"""(kind, name, service) -> what was seen, each with the second since the beginning of the view."""
Observe = Callable[..., tuple[EpisodeView, int]]
"""Returns an episode and an alarm 70 s after its beginning."""
SECOND = 1_000_000_000


def keyword_defaults(factory: Callable[..., object]) -> dict[str, Any]:
    """Return the mutable defaults of a factory."""
    return inspect.getattr_static(factory, "__init__").__kwdefaults__


@pytest.fixture(scope="session", autouse=True)
def few_updates() -> Iterator[None]:
    """Limit the training of networks."""
    chosen = [spec for spec in list_baselines().values() if spec.extra == EXTRA]
    defaults = [made for spec in chosen if "updates" in (made := keyword_defaults(spec.factory))]
    before = [made["updates"] for made in defaults]
    for made in defaults:
        made["updates"] = 60
    yield
    for made, updates in zip(defaults, before, strict=True):
        made["updates"] = updates


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Write six episodes, three of them with a fault."""
    root = tmp_path_factory.mktemp("example")
    write_example_dataset(root, episodes=6, seed=1, baseline_s=60, fault_s=60)
    return open_dataset(root)


@pytest.fixture(scope="session")
def faulty(example: Dataset) -> str:
    """Return the id of an episode with a fault."""
    return next(episode for episode in example.episodes if example.label(episode).fault)


@pytest.fixture(scope="session")
def alter(example: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Alter:
    """Copy an episode with edited tables; an edit that returns None removes the table."""

    def copy(episode: str, edits: Mapping[str, Edit], context: Callable[[str], str] = lambda text: text) -> EpisodeView:
        source = Path(example.root) / "episodes" / episode
        target = tmp_path_factory.mktemp("altered") / episode
        (target / "telemetry").mkdir(parents=True)
        (target / "context.json").write_text(context((source / "context.json").read_text()))
        for path in sorted((source / "telemetry").iterdir()):
            edit = edits.get(path.stem)
            if edit is None:
                shutil.copy(path, target / "telemetry" / path.name)
                continue
            table = edit(pq.read_table(path))
            if table is not None:
                pq.write_table(table, target / "telemetry" / path.name)
        assert sorted(path.name for path in target.iterdir()) == ["context.json", "telemetry"]
        return EpisodeView(target)

    return copy


def _rows_of(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([
        pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
        for field in TABLES[table]
    ])  # fmt: skip
    return pa.Table.from_pylist([{"episode": "e", **row} for row in rows], schema=schema)


@pytest.fixture
def observe(example: Dataset, faulty: str, alter: Alter) -> Observe:
    """Build an episode with observed objects: {(kind, name, service): [(second, state), ...]}."""
    start = example.view(faulty).window[0]

    def build(objects: ObservedObjects, events: list[tuple[int, str, str]] | None = None) -> tuple[EpisodeView, int]:
        states = [
            {"time": start + at * SECOND, "kind": kind, "name": name, "service": service, "state": json.dumps(state)}
            for (kind, name, service), seen in objects.items()
            for at, state in seen
        ]
        acts = [
            {"time": start + at * SECOND, "type": "Normal", "reason": reason, "kind": "Deployment"}
            | {"name": service, "service": service, "message": "", "count": 1}
            for at, reason, service in events or []
        ]
        view = alter(
            faulty,
            {"objects": lambda _: _rows_of("objects", states), "events": lambda _: _rows_of("events", acts)},
        )
        return view, start + 70 * SECOND

    return build
