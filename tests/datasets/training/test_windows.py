"""Windows of episodes and recordings."""

from __future__ import annotations

import shutil
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.recordings.cuts import cut_view
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.window_view import WindowView, window_views
from faultset.datasets.training import (
    EpisodeWindows,
    FeatureColumns,
    RecordingWindows,
    dataset_folds,
    episode_labels,
    jax_batches,
    tf_dataset,
    torch_dataset,
)
from faultset.datasets.training import windows as windows_module
from faultset.datasets.training.columns import OTHER_LINES, log_lines, service_calls
from faultset.datasets.training.features import CLIP, _compute_deviation, step_features
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from tests.datasets.recorded_samples import SECOND, at


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Six synthetic episodes of eighty seconds, three of them with a fault."""
    root = tmp_path_factory.mktemp("training") / "data"
    write_example_dataset(root, episodes=6, seed=3, baseline_s=40, fault_s=40)
    return open_dataset(root)


@pytest.fixture(scope="module")
def columns(dataset: Dataset) -> FeatureColumns:
    return FeatureColumns.of(dataset.view(episode) for episode in dataset.episodes)


def test_folds_are_those_of_an_evaluation(dataset: Dataset):
    source = DatasetSource.of(dataset)
    for split in (None, "cross-3", *dataset.splits):
        assert dataset_folds(dataset, split) == list(
            EvaluationScope(source=source, settings=EvaluationSettings(split=split)).folds
        )


def test_windows_are_cut_as_asked(dataset: Dataset, columns: FeatureColumns):
    windows = EpisodeWindows(dataset, dataset.episodes[:2], columns, length=10, stride=7)
    batches = list(windows.batches(4))
    assert sum(map(len, batches)) == len(windows)
    assert max(map(len, batches)) == 4
    one = batches[0]
    assert one.values.shape == one.mask.shape == (4, 10, len(columns))
    assert (one.values.dtype, one.mask.dtype, one.labels.dtype) == (np.float32, np.bool_, np.int8)
    assert one.labels.shape == (4, 10)
    start_ns, _ = dataset.view(dataset.episodes[0]).window
    assert (one.ends_ns - start_ns).tolist() == [(10 + 7 * n) * SECOND for n in range(4)]
    np.testing.assert_array_equal(windows[1].values[0], one.values[1])
    np.testing.assert_array_equal(windows[-1].values, batches[-1].values[-1:])
    assert not one.values[~one.mask].any()
    with pytest.raises(IndexError):
        windows[len(windows)]


def test_parts_end_where_the_reference_ends(dataset: Dataset, columns: FeatureColumns):
    episode = dataset.episodes[1]
    reference_end_ns = dataset.view(episode).reference[1]
    healthy = EpisodeWindows(dataset, [episode], columns, length=5, section="reference")
    later = EpisodeWindows(dataset, [episode], columns, length=5, section="later")
    assert max(b.ends_ns.max() for b in healthy.batches()) <= reference_end_ns
    assert min(b.ends_ns.min() for b in later.batches()) - 5 * SECOND >= reference_end_ns
    assert not any(batch.labels.any() for batch in healthy.batches())


def test_a_step_is_labelled_by_what_it_has_seen(dataset: Dataset, columns: FeatureColumns):
    for label in episode_labels(dataset).values():
        windows = EpisodeWindows(dataset, [label.episode], columns, length=1)
        found = np.concatenate([batch.labels[:, 0] for batch in windows.batches()])
        ends = np.concatenate([batch.ends_ns for batch in windows.batches()])
        expected = ends > label.onset_ns if label.onset_ns is not None else np.zeros(len(ends))
        np.testing.assert_array_equal(found, expected)


def test_groups_are_clusters(dataset: Dataset, columns: FeatureColumns):
    windows = EpisodeWindows(dataset, dataset.episodes, columns, length=20, stride=20)
    labels = episode_labels(dataset)
    for batch in windows.batches():
        assert [windows.clusters[g] for g in batch.groups] == [labels[e].cluster for e in batch.episodes]


def test_other_labels_change_no_input(dataset: Dataset, columns: FeatureColumns):
    class Permuted(Dataset):
        def label(self, episode: str):
            return dataset.label(dataset.episodes[dataset.episodes.index(episode) - 1])

    permuted = Permuted(dataset.root, dataset.version_file)
    own, other = (
        list(EpisodeWindows(d, dataset.episodes, columns, length=8, stride=8).batches()) for d in (dataset, permuted)
    )
    assert any((a.labels != b.labels).any() for a, b in zip(own, other, strict=True))
    for a, b in zip(own, other, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.mask, b.mask)


def test_inputs_are_made_without_the_truth(dataset: Dataset, columns: FeatureColumns, tmp_path: Path):
    shutil.copytree(dataset.root, tmp_path / "copy")
    for truth in (tmp_path / "copy" / "episodes").glob("*/truth"):
        shutil.rmtree(truth)
    blind = [EpisodeView(tmp_path / "copy" / "episodes" / episode) for episode in dataset.episodes]
    assert FeatureColumns.of(blind) == columns
    for view, episode in zip(blind, dataset.episodes, strict=True):
        np.testing.assert_array_equal(
            step_features(view, columns).values, step_features(dataset.view(episode), columns).values
        )


def test_no_input_tells_time_or_fault(dataset: Dataset, columns: FeatureColumns):
    labels = [label for label in episode_labels(dataset).values() if label.faulty]
    assert labels
    for label in labels:
        assert label.onset_ns is not None
        assert not any(str(label.fault) in name for name in columns.names)
        values = step_features(dataset.view(label.episode), columns).values
        for instant in (label.onset_ns, label.onset_ns / 1e3, label.onset_ns / 1e6, label.onset_ns / 1e9):
            assert not np.isclose(values, instant, rtol=1e-6).any()
    # a target has columns as every other service has them
    owners = {service for modality, service, _ in columns.columns if modality == "metrics"}
    assert owners == set(dataset.view(dataset.episodes[0]).services)


def test_counts_are_those_of_the_tables(dataset: Dataset, columns: FeatureColumns):
    view = dataset.view(dataset.episodes[1])
    features = step_features(view, columns)
    of = {name: features.values[:, place] for place, name in enumerate(columns.names)}
    lines, calls = log_lines(view), service_calls(view)
    assert sum(v.sum() for name, v in of.items() if name.startswith("logs/")) == len(lines)
    assert len(calls)
    assert sum(v.sum() for name, v in of.items() if name.endswith("/calls")) == len(calls)
    assert sum(v.sum() for name, v in of.items() if name.endswith("/errors")) == calls["failed"].sum()
    edge = calls["edge"].iloc[0]
    own = calls[calls["edge"] == edge]
    total = (of[f"traces/{edge}/calls"] * of[f"traces/{edge}/latency_s"]).sum()
    assert total == pytest.approx(own["seconds"].sum(), rel=1e-4)
    place = columns.names.index(f"traces/{edge}/latency_s")
    np.testing.assert_array_equal(features.mask[:, place], of[f"traces/{edge}/calls"] > 0)


def test_a_call_counts_when_it_has_ended(dataset: Dataset, columns: FeatureColumns):
    view = dataset.view(dataset.episodes[0])
    calls, features = service_calls(view), step_features(view, columns)
    edge = calls["edge"].iloc[0]
    steps = np.ceil((calls.loc[calls["edge"] == edge, "end"].to_numpy() - view.window[0]) / SECOND).astype(int) - 1
    expected = np.bincount(steps, minlength=len(features.values))
    np.testing.assert_array_equal(features.values[:, columns.names.index(f"traces/{edge}/calls")], expected)


def test_unknown_templates_are_counted_together(dataset: Dataset):
    few = FeatureColumns.of([dataset.view(dataset.episodes[0])], modalities=("logs",), max_templates=1)
    view = dataset.view(dataset.episodes[1])
    values = step_features(view, few).values
    other = [place for (_, text), place in few.positions("logs").items() if text == OTHER_LINES]
    assert values[:, other].sum() > 0
    assert values.sum() == len(log_lines(view))


def test_what_was_not_recorded_is_masked(dataset: Dataset, columns: FeatureColumns, tmp_path: Path):
    source = dataset.path(dataset.episodes[0])
    shutil.copytree(source, tmp_path / source.name)
    for table in ("metrics", "logs", "spans"):
        (tmp_path / source.name / "telemetry" / f"{table}.parquet").unlink()
    features = step_features(EpisodeView(tmp_path / source.name), columns)
    assert not features.mask.any()
    assert not features.values.any()
    with pytest.raises(DataError, match="no episode has"):
        FeatureColumns.of([EpisodeView(tmp_path / source.name)])


def test_calls_without_a_peer_are_found_by_their_parents(dataset: Dataset, monkeypatch: pytest.MonkeyPatch):
    view = dataset.view(dataset.episodes[0])
    table = view.table("spans")

    def without_peers(self, name, columns=None, filters=None) -> pa.Table:
        place = table.schema.get_field_index("peer_service")
        return table.set_column(place, "peer_service", pa.nulls(len(table), pa.string())).select(list(columns or ()))

    known = set(service_calls(view)["edge"])
    monkeypatch.setattr(EpisodeView, "table", without_peers)
    found = set(service_calls(view)["edge"])
    assert found
    assert found <= known


def test_one_episode_is_read_at_a_time(dataset: Dataset, columns: FeatureColumns, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []

    def counted(view: EpisodeView, chosen: FeatureColumns):
        read.append(view.episode)
        return step_features(view, chosen)

    monkeypatch.setattr(windows_module, "step_features", counted)
    windows = EpisodeWindows(dataset, dataset.episodes, columns, length=4)
    assert read == []
    stream = windows.batches(8, seed=1)
    next(stream)
    assert len(read) == 1
    rest = list(stream)
    assert sorted(read) == sorted(dataset.episodes)
    assert len(rest) > 6
    again = [batch.ends_ns.tolist() for batch in windows.batches(8, seed=1)]
    assert again[1:] == [batch.ends_ns.tolist() for batch in rest]
    assert again != [batch.ends_ns.tolist() for batch in windows.batches(8)]


def test_impossible_windows_are_refused(dataset: Dataset, columns: FeatureColumns):
    with pytest.raises(UsageError, match="must be at least 1"):
        EpisodeWindows(dataset, dataset.episodes, columns, length=0)
    with pytest.raises(UsageError, match="smaller length"):
        EpisodeWindows(dataset, dataset.episodes, columns, length=1000)
    with pytest.raises(UsageError, match="modality"):
        FeatureColumns.of([], modalities=("smoke",))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="role"):
        FeatureColumns.of([dataset.view(dataset.episodes[0])], roles=("smoke",))
    only = FeatureColumns.of([dataset.view(dataset.episodes[0])], modalities=("metrics",), roles=("cpu",))
    assert 0 < len(only) < len(columns)


class TestFrameworks:
    """Each framework gets what it asks for; stand-ins prove shapes where it is not installed."""

    @pytest.fixture
    def windows(self, dataset: Dataset, columns: FeatureColumns) -> EpisodeWindows:
        return EpisodeWindows(dataset, dataset.episodes[:2], columns, length=6, stride=3)

    def test_a_missing_framework_is_one_sentence(self, windows: EpisodeWindows, monkeypatch: pytest.MonkeyPatch):
        for name, call in (("torch", torch_dataset), ("tensorflow", tf_dataset), ("jax", jax_batches)):
            monkeypatch.setitem(sys.modules, name, None)
            monkeypatch.setitem(sys.modules, f"{name}.numpy", None)
            with pytest.raises(UsageError, match=f"{name} is not installed"):
                call(windows)

    def test_torch_by_its_interface(self, windows: EpisodeWindows, monkeypatch: pytest.MonkeyPatch):
        data = types.SimpleNamespace(Dataset=object)
        fake = types.ModuleType("torch")
        fake.utils, fake.from_numpy = types.SimpleNamespace(data=data), lambda array: ("tensor", array)  # type: ignore[attr-defined]
        for name, module in (("torch", fake), ("torch.utils", fake), ("torch.utils.data", fake)):
            monkeypatch.setitem(sys.modules, name, module)
        made = torch_dataset(windows)
        assert len(made) == len(windows)
        item = made[3]
        assert item["values"][0] == "tensor"
        assert item["values"][1].shape == item["mask"][1].shape == (6, len(windows.columns))
        assert item["labels"][1].shape == (6,)
        assert item["end_ns"] == windows[3].ends_ns[0]

    def test_tensorflow_by_its_interface(self, windows: EpisodeWindows, monkeypatch: pytest.MonkeyPatch):
        fake = types.ModuleType("tensorflow")
        kinds = {name: np.dtype(name) for name in ("float32", "int8", "int64", "bool")}
        vars(fake).update(kinds, TensorSpec=lambda shape, dtype: (shape, dtype))
        from_generator = lambda make, output_signature: (list(make()), output_signature)  # noqa: E731
        fake.data = types.SimpleNamespace(Dataset=types.SimpleNamespace(from_generator=from_generator))  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tensorflow", fake)
        batches, signature = tf_dataset(windows, 5)
        assert sum(len(batch["values"]) for batch in batches) == len(windows)
        for batch in batches:
            assert batch.keys() == signature.keys()
            for name, (shape, dtype) in signature.items():
                assert batch[name].dtype == dtype
                assert batch[name].shape[1:] == shape[1:]

    def test_jax_by_its_interface(self, windows: EpisodeWindows, monkeypatch: pytest.MonkeyPatch):
        fake = types.ModuleType("jax.numpy")
        fake.asarray = lambda array: ("jax", array)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))
        monkeypatch.setitem(sys.modules, "jax.numpy", fake)
        batches = list(jax_batches(windows, 5))
        assert sum(len(batch["ends_ns"]) for batch in batches) == len(windows)
        assert batches[0]["values"][0] == "jax"
        assert batches[0]["values"][1].shape == (5, 6, len(windows.columns))

    def test_torch_itself(self, windows: EpisodeWindows):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        loader = torch.utils.data.DataLoader(torch_dataset(windows), batch_size=4)
        assert next(iter(loader))["values"].shape == (4, 6, len(windows.columns))

    def test_tensorflow_itself(self, windows: EpisodeWindows):
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
        assert next(iter(tf_dataset(windows, 4)))["values"].shape == (4, 6, len(windows.columns))

    def test_jax_itself(self, windows: EpisodeWindows):
        pytest.importorskip("jax", reason="JAX is not installed")
        assert next(jax_batches(windows, 4))["values"].shape == (4, 6, len(windows.columns))


def test_arrays_have_the_order_and_shapes_of_scikit_learn(dataset: Dataset, columns: FeatureColumns):
    windows = EpisodeWindows(dataset, dataset.episodes, columns, length=4, stride=4)
    inputs, labels, groups = windows.arrays()
    batches = list(windows.batches(5))
    np.testing.assert_array_equal(inputs, np.concatenate([b.values.reshape(len(b), -1) for b in batches]))
    np.testing.assert_array_equal(labels, np.concatenate([b.labels.max(axis=1) for b in batches]))
    np.testing.assert_array_equal(groups, np.concatenate([b.groups for b in batches]))
    assert {*labels.tolist()} == {0, 1}
    with pytest.raises(UsageError, match=r"take 0\.\d GB, more than the limit of 0\.0 GB"):
        windows.arrays(max_bytes=1000)


def test_arrays_leave_out_what_has_no_known_label(dataset: Dataset, columns: FeatureColumns):
    class Unsure(Dataset):
        def label(self, episode: str):
            label = dataset.label(episode)
            return replace(label, inject_start_ns=None, faults=()) if episode == faulty else label

    faulty = next(episode.id for episode in dataset if episode.label.is_faulty)
    unsure = Unsure(dataset.root, dataset.version_file)
    sizes = [len(EpisodeWindows(unsure, names, columns).arrays()[1]) for names in (dataset.episodes, [faulty])]
    certain = [name for name in dataset.episodes if name != faulty]
    assert sizes == [len(EpisodeWindows(dataset, certain, columns)), 0]


class TestServices:
    """Columns per service mean the same in every application, and tell the service at fault from the others."""

    def test_rows_are_of_one_service(self, dataset: Dataset):
        columns = FeatureColumns.per_service(step_s="2s")
        windows = EpisodeWindows(dataset, dataset.episodes, columns, length=3, stride=2)
        services = dataset.view(dataset.episodes[0]).services
        one = EpisodeWindows(dataset, dataset.episodes[:1], columns, length=3, stride=2)
        batches = list(one.batches(len(one)))
        assert batches[0].services == tuple(name for name in services for _ in range(len(one) // len(services)))
        assert batches[0].values.shape == (len(one), 3, len(columns))
        assert windows[len(one)].episodes == (dataset.episodes[1],)
        np.testing.assert_array_equal(windows[7].values[0], batches[0].values[7])
        assert len(windows) == sum(len(batch) for batch in windows.batches(10))

    def test_only_the_service_at_fault_is_labelled_and_it_deviates_most(self, dataset: Dataset):
        columns = FeatureColumns.per_service()
        for episode in dataset:
            windows = EpisodeWindows(dataset, [episode.id], columns, length=1, section="later")
            (batch,) = windows.batches(len(windows))
            causes = episode_labels(dataset, [episode.id])[episode.id].causes
            labelled = {name for name, label in zip(batch.services, batch.labels[:, 0], strict=True) if label}
            assert labelled == causes
            if causes:
                means = {
                    name: batch.values[[service == name for service in batch.services]].mean()
                    for name in episode.view.services
                }
                assert max(means, key=lambda name: means[name]) in causes

    def test_the_reference_is_the_measure(self, dataset: Dataset, recwarn: pytest.WarningsRecorder):
        columns = FeatureColumns.per_service()
        windows = EpisodeWindows(dataset, dataset.episodes, columns, length=1, section="reference")
        for batch in windows.batches(len(windows)):
            assert batch.values[batch.mask].max() < np.log1p(10)
        assert not recwarn.list

    def test_a_constant_series_that_moves_has_the_largest_deviation(self):
        known = np.array([True, True, True, False])
        assert _compute_deviation(np.array([0.0, 0, 0, 5]), known).tolist() == [0, 0, 0, CLIP]
        assert _compute_deviation(np.array([3.0, 3, 3, 3]), known).tolist() == [0, 0, 0, 0]
        assert not _compute_deviation(np.array([1.0, 2, 3, 4]), np.zeros(4, dtype=bool)).any()

    def test_impossible_columns_are_refused(self):
        for options in ({"roles": ["clock"]}, {"roles": ["smoke"]}, {"modalities": ["smoke"]}, {"step_s": "x"}):
            with pytest.raises(UsageError):
                FeatureColumns.per_service(**options)  # type: ignore[arg-type]


@pytest.fixture
def recording_columns(recording: Recording[Any]) -> FeatureColumns:
    return FeatureColumns.of(
        window_views(recording.view, recording.view.segments, 600), step_s=20, modalities=("metrics",)
    )


def crossings(windows: RecordingWindows, border_s: float) -> int:
    """Return how many windows contain a time."""
    length_ns = windows.length * 20 * SECOND
    ends = np.concatenate([batch.ends_ns for batch in windows.batches()])
    return int(((ends - length_ns < at(border_s)) & (ends > at(border_s))).sum())


def test_windows_never_cross_a_split_a_segment_or_a_void(
    recording: Recording[Any], recording_columns: FeatureColumns, recorded_root: Any
) -> None:
    split = open_dataset(recorded_root).recording_splits["by-time"]
    sides = [
        RecordingWindows([recording], recording_columns, side, length=10)
        for side in (split.train, split.validation, split.test)
    ]
    ends = [{int(end) for batch in windows.batches() for end in batch.ends_ns} for windows in sides]
    assert not ends[0] & ends[1]
    assert not ends[1] & ends[2]
    everything = RecordingWindows([recording], recording_columns, length=10)
    for border_s in (1800, 2400, 2650, 2700):
        assert crossings(everything, border_s) == 0
    assert crossings(everything, 1200) > 0
    assert len(everything) == sum(map(len, everything.batches()))


def test_labels_are_one_during_incidents(recording: Recording[Any], recording_columns: FeatureColumns) -> None:
    windows = RecordingWindows([recording], recording_columns, length=1)
    steps = {
        int(batch.ends_ns[row]): int(batch.labels[row, 0]) for batch in windows.batches() for row in range(len(batch))
    }
    faulty = {end for end, label in steps.items() if label == 1}
    assert {
        end for end in steps if at(500) < end <= at(810) or at(1000) < end <= at(1130) or at(2500) < end <= at(2710)
    } == faulty
    healthy = RecordingWindows([recording], recording_columns, length=5, healthy=True)
    assert {label for batch in healthy.batches() for label in batch.labels.ravel().tolist()} == {0}


def test_blocks_give_the_windows_of_one_block(
    recording: Recording[Any], recording_columns: FeatureColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RecordingWindows([recording], recording_columns, length=8, stride=3).arrays()
    monkeypatch.setattr(windows_module, "BLOCK_S", 200.0)
    blocks = RecordingWindows([recording], recording_columns, length=8, stride=3).arrays()
    for first, second in zip(whole, blocks, strict=True):
        assert np.allclose(first, second)
    shuffled = list(RecordingWindows([recording], recording_columns, length=8, stride=3).batches(seed=1))
    assert sorted(int(end) for batch in shuffled for end in batch.ends_ns) == sorted(whole[2].tolist())


def test_windows_that_cannot_be_made_are_refused(recording: Recording[Any], recording_columns: FeatureColumns) -> None:
    with pytest.raises(UsageError, match="a window has 900 steps of 20 s, but all stretches are shorter"):
        RecordingWindows([recording], recording_columns, length=900)
    with pytest.raises(UsageError, match="must be at least 1, got 0 and 1"):
        RecordingWindows([recording], recording_columns, length=0)
    with pytest.raises(UsageError, match="columns per service need a healthy reference"):
        RecordingWindows([recording], FeatureColumns.per_service())


def test_a_window_in_memory_reads_like_one_in_files(recording: Recording[Any], tmp_path: Any) -> None:
    stretch = Stretch("r1", at(570), at(640))
    memory = WindowView(recording.view, stretch, at(600))
    files = cut_view(
        recording.view,
        tmp_path,
        start_ns=stretch.start_ns,
        end_ns=stretch.end_ns,
        reference_end_ns=at(600),
        episode="r1",
    )
    assert memory.context == files.context
    for table in files.tables:
        assert memory.table(table).to_pylist() == files.table(table).to_pylist()
    assert memory.table("metrics", ["value"], [("kind", "==", "gauge")]).num_rows == 14
    assert np.array_equal(memory.silent_steps(SECOND), files.silent_steps(SECOND))
    # the window in memory also has the sample before it
    assert memory.wide(5)["geo", "level"].equals(files.wide(5)["geo", "level"])
