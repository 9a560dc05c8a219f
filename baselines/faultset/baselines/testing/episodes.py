"""Synthetic episodes for checks, and modified copies of them."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.baselines.contract import Labelled
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

Edit = Callable[[pa.Table], pa.Table | None]
"""Table -> changed table, or None to remove it."""
Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Content of `context.json` -> changed content."""


@dataclass(frozen=True, kw_only=True)
class ExampleEpisodes:
    """Six synthetic episodes, three of them with a fault."""

    root: Path
    training: tuple[Labelled, ...]
    _copies: dict[str, EpisodeView] = field(default_factory=dict, repr=False)
    _reversed: list[Labelled] = field(default_factory=list, repr=False)

    @property
    def faulty(self) -> Labelled:
        """Return the first episode with a fault."""
        return next(item for item in self.training if item.fault_type is not None)

    def path(self, view: EpisodeView) -> Path:
        """Return the folder of an episode."""
        return self.root / "episodes" / view.episode

    def alter(
        self,
        name: str,
        edits: Mapping[str, Edit],
        context: Change = lambda content: content,
        source: EpisodeView | None = None,
    ) -> EpisodeView:
        """Return a copy of an episode with changed tables or context.

        Parameters
        ----------
        name
            Name of the change; copies are cached by it.
        source
            Episode to copy; the first with a fault by default.
        """
        if name not in self._copies:
            self._copies[name] = self._copy(source or self.faulty.view, edits, context)
        return self._copies[name]

    @property
    def reversed_names(self) -> dict[str, str]:
        """Return a new name for each service, so that the sort order is reversed."""
        services = sorted(self.faulty.view.services)
        return {name: f"s{len(services) - index}-{name}" for index, name in enumerate(services)}

    def reversed_order(self) -> ExampleEpisodes:
        """Return the episodes with renamed services whose sort order is reversed."""
        if not self._reversed:
            names = self.reversed_names
            edits = dict.fromkeys(TABLES, build_renaming(names))
            for item in self.training:
                view = self.alter(f"reversed {item.view.episode}", edits, build_context_renaming(names), item.view)
                causes = tuple(names[cause] for cause in item.causes)
                service = None if item.service is None else names[item.service]
                self._reversed.append(replace(item, view=view, service=service, causes=causes))
        return ExampleEpisodes(root=self.root, training=tuple(self._reversed))

    def _copy(self, view: EpisodeView, edits: Mapping[str, Edit], context: Change) -> EpisodeView:
        source = self.path(view)
        target = Path(tempfile.mkdtemp(dir=self.root)) / source.name
        (target / "telemetry").mkdir(parents=True)
        content = json.loads((source / "context.json").read_text("utf-8"))
        (target / "context.json").write_text(json.dumps(context(content)), "utf-8")
        for path in sorted((source / "telemetry").iterdir()):
            if path.stem not in edits:
                (target / "telemetry" / path.name).hardlink_to(path)
                continue
            table = edits[path.stem](pq.read_table(path))
            if table is not None:
                pq.write_table(table, target / "telemetry" / path.name)
        return CachingView(target)


@functools.cache
def example_episodes() -> ExampleEpisodes:
    """Write the episodes into a temporary folder, once per process."""
    root = Path(tempfile.mkdtemp(prefix="faultset-examples-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    write_example_dataset(root, episodes=6, seed=1, baseline_s=60, fault_s=60)
    dataset = open_dataset(root)
    training = []
    for episode in dataset.episodes:
        label = dataset.label(episode)
        training.append(
            Labelled(
                view=CachingView(dataset.path(episode)),
                service=next(iter(label.targets), None),
                system_level=label.system_level,
                fault_type=label.fault_type,
                causes=tuple(label.targets),
                onset_ns=label.onset_ns,
            )
        )
    return ExampleEpisodes(root=root, training=tuple(training))


class CachingView(EpisodeView):
    """View that caches tables and wide frames, and returns copies of frames."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._tables: dict[Any, pa.Table] = {}
        self._wide: dict[Any, pd.DataFrame] = {}

    def __reduce__(self) -> tuple[type[CachingView], tuple[Path]]:
        return CachingView, (self._path,)

    def table(self, name: str, columns: Any = None, filters: Any = None) -> pa.Table:
        if filters is not None:
            return super().table(name, columns, filters)
        key = (name, None if columns is None else tuple(columns))
        if key not in self._tables:
            self._tables[key] = super().table(name, columns)
        return self._tables[key]

    def wide(self, step_s: float | str = 1.0, roles: Any = None) -> pd.DataFrame:
        key = (step_s, None if roles is None else frozenset(roles))
        if key not in self._wide:
            self._wide[key] = super().wide(step_s, roles)
        return self._wide[key].copy()


class ReorderedView(EpisodeView):
    """View that caches wide frames with shuffled columns."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path)
        self.frames: dict[Any, pd.DataFrame] = {}
        self._seed = seed

    def wide(self, step_s: float | str = 1.0, roles: Any = None) -> pd.DataFrame:
        key = (step_s, None if roles is None else tuple(roles))
        if key not in self.frames:
            frame = super().wide(step_s, roles)
            order = np.random.default_rng(self._seed).permutation(frame.shape[1])
            self.frames[key] = frame.iloc[:, order]
        return self.frames[key]


class DeclaredView(EpisodeView):
    """View that reads another view and records undeclared inputs."""

    def __init__(self, view: EpisodeView, tables: tuple[str, ...], needs: frozenset[str] = frozenset()) -> None:
        self._context = view.context
        self.undeclared: set[str] = set()
        self._view, self._declared, self._needs = view, tables, needs

    @property
    def alarm_location(self) -> AlarmLocation | None:
        if "alarm_location" not in self._needs:
            self.undeclared.add("alarm_location")
        return AlarmLocation(service=self.context.workload_entry)

    def table(self, name: str, columns: Any = None, filters: Any = None) -> pa.Table:
        if name not in self._declared:
            self.undeclared.add(name)
        return self._view.table(name, columns, filters)

    def wide(self, step_s: float | str = 1.0, roles: Any = None) -> pd.DataFrame:
        if "metrics" not in self._declared:
            self.undeclared.add("metrics")
        return self._view.wide(step_s, roles)

    def note_skipped_series(self, series: Iterable[tuple[str, str]], *, comparable: bool = True) -> None:
        self._view.note_skipped_series(series, comparable=comparable)

    def silent_steps(self, step_ns: int) -> npt.NDArray[np.bool_]:
        return self._view.silent_steps(step_ns)


def remove_rows(rows: pa.Table) -> pa.Table:
    """Remove all rows."""
    return rows.slice(0, 0)


def with_column(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    """Replace the values of a column."""
    return rows.set_column(rows.schema.get_field_index(column), column, values)


def read_times_ns(rows: pa.Table, column: str = "time") -> np.ndarray:
    """Return a time column as integer nanoseconds."""
    return rows[column].cast("int64").to_numpy()


def build_renaming(names: Mapping[str, str]) -> Edit:
    """Return an edit that renames services, and pods and objects whose name begins with a service."""

    def rename_text(text: str | None) -> str | None:
        owner = next((name for name in names if text == name or (text or "").startswith(f"{name}-")), None)
        return text if owner is None or text is None else names[owner] + text.removeprefix(owner)

    def edit(rows: pa.Table) -> pa.Table:
        for column in ("service", "peer_service", "reported_service", "pod", "name"):
            if column in rows.column_names:
                coded = rows[column].cast(pa.string()).combine_chunks().dictionary_encode()
                words = pa.array([rename_text(word) for word in coded.dictionary.to_pylist()], pa.string())
                rows = with_column(rows, column, words.take(coded.indices))
        return rows

    return edit


def build_context_renaming(names: Mapping[str, str]) -> Change:
    """Return a change of the context that renames services."""

    def change(content: dict[str, Any]) -> dict[str, Any]:
        return content | {
            "services": [names[name] for name in content["services"]],
            "calls": [[names[name] for name in call] for call in content["calls"]],
            "workload_entry": names[content["workload_entry"]],
        }

    return change


def shift_times(shift_ns: int) -> Mapping[str, Edit]:
    """Return edits that shift all times of an episode."""

    def edit(rows: pa.Table) -> pa.Table:
        for column in rows.schema:
            if pa.types.is_timestamp(column.type):
                times = pa.array(read_times_ns(rows, column.name) + shift_ns)
                rows = with_column(rows, column.name, times.cast(column.type))
        return rows

    return dict.fromkeys(TABLES, edit)


def _make_constant(rows: pa.Table) -> pa.Table:
    return with_column(rows, "value", pa.array(np.full(len(rows), 4.0)))


def _keep_first_second(rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array(read_times_ns(rows) < read_times_ns(rows).min() + 1_000_000_000))


def _add_gaps(rows: pa.Table) -> pa.Table:
    values = rows["value"].to_numpy().copy()
    values[::7] = np.nan
    return with_column(rows, "value", pa.array(values, from_pandas=False))


def _rename_to_unknown(rows: pa.Table) -> pa.Table:
    names = pa.array([None if row % 3 else "who-is-this" for row in range(len(rows))], pa.string())
    return with_column(rows, "service", names)


def _replace_states(rows: pa.Table) -> pa.Table:
    texts = ["{", "[]", "{}", '{"replicas": "many", "containers": 3}', '{"containers": [null, {}]}']
    state = pa.array([texts[row % len(texts)] for row in range(len(rows))], pa.string())
    kinds = ["Deployment", "Pod", "Endpoints", "PersistentVolume", "Thing"]
    kind = pa.array([kinds[row // 3 % len(kinds)] for row in range(len(rows))], pa.string())
    return with_column(with_column(rows, "state", state), "kind", kind)


EMPTY: Mapping[str, Edit] = dict.fromkeys(TABLES, remove_rows)
"""Edits that empty all tables."""
UNUSUAL_DATA: Mapping[str, Mapping[str, Edit]] = {
    "constant series": {"metrics": _make_constant},
    "single sample": {"metrics": _keep_first_second},
    "gaps": {"metrics": _add_gaps},
    "rows of unknown services": dict.fromkeys(("metrics", "spans", "logs", "events", "objects"), _rename_to_unknown),
    "states without meaning": {"objects": _replace_states},
}
