"""Exports, their expected size, and what comes back when they are imported again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, UsageError
from faultset.core.plugins import plugins
from faultset.datasets.cli import exchange as command
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import GROUP, ExportOptions, ExportPlan, export_dataset
from faultset.datasets.format.labels import Label
from faultset.datasets.imports.importer import import_dataset


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(faultset, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def sample(few_episodes: Path) -> Dataset:
    return open_dataset(few_episodes)


@pytest.fixture(scope="module")
def faulty(sample) -> list[str]:
    return [episode for episode in sample.episodes if sample.label(episode).fault is not None]


@pytest.fixture(scope="module")
def as_rcaeval(few_episodes, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("rcaeval") / "cases"
    export_dataset("rcaeval", few_episodes, out)
    return out


@pytest.fixture(scope="module")
def from_rcaeval(as_rcaeval, tmp_path_factory) -> Dataset:
    out = tmp_path_factory.mktemp("rcaeval") / "back"
    import_dataset("rcaeval", as_rcaeval, out, workers=1)
    return open_dataset(out)


@pytest.fixture(scope="module")
def as_rcabench(few_episodes, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("rcabench") / "packs"
    export_dataset("rcabench", few_episodes, out)
    return out


@pytest.fixture(scope="module")
def from_rcabench(as_rcabench, tmp_path_factory) -> Dataset:
    out = tmp_path_factory.mktemp("rcabench") / "back"
    import_dataset("rcabench", as_rcabench, out, workers=1)
    return open_dataset(out)


def same_fault(dataset: Dataset, wanted: Label) -> str:
    """Return the imported episode of a label; the sample has each fault once."""
    return next(episode for episode in dataset.episodes if dataset.label(episode).fault == wanted.fault)


def test_wide_tables_have_the_columns_of_their_own_episode_and_no_label_among_them(example_root, tmp_path):
    export_dataset("wide-csv", example_root, tmp_path / "csv")
    export_dataset("wide-parquet", example_root, tmp_path / "parquet")
    dataset = open_dataset(example_root)
    columns: set[str] = set()
    for episode in dataset.episodes:
        text = pd.read_csv(tmp_path / "csv" / "features" / f"{episode}.csv")
        binary = pd.read_parquet(tmp_path / "parquet" / "features" / f"{episode}.parquet")
        assert list(text.columns) == list(binary.columns)
        wide = dataset.view(episode).wide()
        assert list(binary.columns) == ["time", *(f"{service}/{metric}" for service, metric in wide.columns)]
        columns |= {*binary.columns}
        service, metric = wide.columns[0]
        pd.testing.assert_series_equal(
            binary[f"{service}/{metric}"], wide.iloc[:, 0], check_names=False, check_index=False
        )
        pd.testing.assert_series_equal(text.iloc[:, 1], binary.iloc[:, 1])
    labels = pd.read_csv(tmp_path / "csv" / "labels.csv")
    assert set(labels["episode"]) == set(dataset.episodes)
    assert not set(labels.columns) & columns
    faulty = labels[labels["fault"].notna()]
    assert (faulty["inject_start_ns"] > faulty["reference_end_ns"]).all()


def test_only_the_chosen_roles_are_exported(example_root, tmp_path):
    export_dataset("wide-parquet", example_root, tmp_path / "out", options=ExportOptions(step_s=5.0, roles=["cpu"]))
    frame = pd.read_parquet(next((tmp_path / "out" / "features").iterdir()))
    assert all("cpu" in name for name in frame.columns if name != "time")
    assert len(frame) == 8


def test_rcaeval_gets_wide_rates_and_gives_them_back(sample, faulty, from_rcaeval):
    assert len(from_rcaeval.episodes) == len(faulty)
    for episode in faulty:
        back = from_rcaeval.view(same_fault(from_rcaeval, sample.label(episode)))
        wide, again = sample.view(episode).wide(), back.wide()
        wide = wide.loc[:, wide.notna().any()]
        assert set(again.columns) == set(wide.columns)
        # A recording ends with its last sample.
        pd.testing.assert_frame_equal(again, wide[again.columns].loc[again.index], check_freq=False)


def test_rcaeval_gives_the_truth_back_to_the_second(sample, faulty, from_rcaeval):
    for episode in faulty:
        wanted = sample.label(episode)
        label = from_rcaeval.label(same_fault(from_rcaeval, wanted))
        assert label.targets == wanted.targets
        assert label.inject_start_ns == wanted.inject_start_ns // 10**9 * 10**9
        assert from_rcaeval.view(label.episode).context.app == sample.view(episode).context.app


def test_rcaeval_gives_spans_back_to_the_microsecond_and_log_lines_whole(sample, faulty, from_rcaeval):
    episode = faulty[0]
    view = sample.view(episode)
    back = from_rcaeval.view(same_fault(from_rcaeval, sample.label(episode)))
    end = back.window[1]
    spans, again = view.spans(), back.spans()
    spans = spans[
        (spans["time"].astype("int64") // 1_000 * 1_000 >= back.window[0]) & (spans["time"].astype("int64") < end)
    ]
    merged = spans.merge(again, on=["trace_id", "span_id"], suffixes=("", "_back"))
    assert len(merged) == len(spans) == len(again)
    assert (merged["time"].astype("int64") // 1_000 == merged["time_back"].astype("int64") // 1_000).all()
    assert ((merged["duration_ns"] - merged["duration_ns_back"]).abs() <= 500).all()
    assert (merged["operation"].astype(str) == merged["operation_back"].astype(str)).all()
    assert merged["parent_span_id"].equals(merged["parent_span_id_back"])
    assert (merged["service"].astype(str) == merged["service_back"].astype(str)).all()
    assert merged["status_code"].equals(merged["status_code_back"])
    assert (merged.loc[merged["status"] == "error", "status_back"] == "error").all()
    logs = view.logs()
    logs = logs[(logs["time"].astype("int64") >= back.window[0]) & (logs["time"].astype("int64") < end)]
    assert sorted(logs["message"]) == sorted(back.logs()["message"])


def test_rcaevals_index_names_every_case(as_rcaeval, faulty):
    index = pd.read_parquet(as_rcaeval / "cases.parquet")
    assert len(index) == len(faulty)
    assert {"dataset", "case", "root_cause_service", "fault", "n_metrics", "inject_time"} <= set(index.columns)
    assert all((as_rcaeval / case / "metrics.parquet").is_file() for case in index["case"])


def test_rcabench_gives_samples_back_exactly(sample, faulty, from_rcabench):
    for episode in faulty:
        wanted = sample.view(episode).table("metrics")
        back = from_rcabench.view(same_fault(from_rcabench, sample.label(episode))).table("metrics")
        wanted = wanted.filter(pa.array(word != "bucket" for word in wanted["kind"].to_pylist()))
        keys = ["time", "service", "pod", "container", "metric", "labels"]
        left, right = (
            table.select([*keys, "kind", "value"]).to_pandas().astype(dict.fromkeys(keys[1:], object))
            for table in (wanted, back)
        )
        merged = left.merge(right, on=keys, suffixes=("", "_back"))
        assert len(merged) == len(left) == len(right)
        assert (merged["value"] == merged["value_back"]).all()
        moved = merged[merged["kind"].astype(str) != merged["kind_back"].astype(str)]
        # A sum that never moved in the episode looks like a level.
        assert moved.groupby(keys[1:], dropna=False)["value"].nunique().max() in (1, float("nan")) or moved.empty


def test_rcabench_gives_spans_logs_and_truth_back(sample, faulty, from_rcabench):
    episode = faulty[0]
    view, wanted = sample.view(episode), sample.label(episode)
    name = same_fault(from_rcabench, wanted)
    back, label = from_rcabench.view(name), from_rcabench.label(name)
    assert back.window == view.window
    assert label.targets == wanted.targets
    assert abs(label.inject_start_ns - wanted.inject_start_ns) < 1_000
    kept = ["trace_id", "span_id", "parent_span_id", "duration_ns", "service", "pod", "operation", "kind", "status"]
    first, again = (one.table("spans", [*kept, "status_code"]).to_pylist() for one in (view, back))
    order = lambda row: (row["trace_id"], row["span_id"])  # noqa: E731
    assert sorted(first, key=order) == sorted(again, key=order)
    lines = ["service", "pod", "container", "level", "message", "trace_id", "span_id"]
    first, again = (one.table("logs", lines).to_pylist() for one in (view, back))
    assert sorted(map(repr, first)) == sorted(map(repr, again))


def test_datapacks_have_the_columns_that_their_readers_check(as_rcabench):
    pack = next(path for path in (as_rcabench / "data" / "sample").iterdir())
    traces = pq.read_schema(pack / "normal_traces.parquet")
    assert traces.field("duration").type == pa.uint64()
    assert traces.field("time").type.tz == "UTC"
    for stage in ("normal", "abnormal"):
        histogram = pq.read_schema(pack / f"{stage}_metrics_histogram.parquet")
        assert {"time", "metric", "service_name", "count", "sum", "min", "max"} <= set(histogram.names)
        extra = set(histogram.names) - {"time", "metric", "service_name", "count", "sum", "min", "max"}
        assert all(name.startswith("attr.") for name in extra)
    labels = pq.read_table(as_rcabench / "meta" / "sample" / "labels.parquet")
    assert labels.column_names == ["dataset", "datapack", "gt.level", "gt.name"]


def test_the_command_names_what_has_no_place(few_episodes, tmp_path):
    code, text, errors = run("dataset", "export", few_episodes, tmp_path / "out", "--as", "rcaeval")
    assert code == 0
    assert text == f"2 episodes in {tmp_path / 'out'}.\n"
    assert "Skipped 1: RCAEval needs a fault, but the episode has none." in errors


@pytest.mark.parametrize(
    ("layout", "code", "sentence"),
    [
        ("rcaevla", 2, 'unknown layout "rcaevla"; did you mean "rcaeval"?'),
        ("wide-csv", 3, "must be a new or empty folder"),
    ],
)
def test_a_bad_request_is_one_sentence_and_writes_nothing(example_root, tmp_path, layout, code, sentence):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    found, text, errors = run("dataset", "export", example_root, tmp_path / "out", "--as", layout)
    assert (found, text) == (code, "")
    assert sentence in errors
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_export_that_fails_leaves_nothing(example_root, tmp_path, monkeypatch):
    from faultset.datasets.exports import wide

    monkeypatch.setattr(wide.WideCSV, "finish", lambda self: (_ for _ in ()).throw(DataError("no")))
    with pytest.raises(DataError):
        export_dataset("wide-csv", example_root, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_layout_gives_a_reason_for_what_it_cannot_hold(example_root, tmp_path):
    dataset = open_dataset(example_root)
    healthy = [episode for episode in dataset.episodes if dataset.label(episode).fault is None]
    for name in plugins(GROUP):
        done = export_dataset(name, example_root, tmp_path / name)
        expected = set(healthy) if name in ("openrca", "rcaeval", "rcabench", "tsb-ad") else set()
        assert set(done.left_out) == expected


@pytest.mark.parametrize("layout", ["rcaeval", "rcabench", "wide-parquet"])
def test_relative_folders_may_have_a_colon(tmp_path, monkeypatch, layout):
    write_example_dataset(tmp_path / "run-10:00", episodes=2, seed=1, baseline_s=20, fault_s=20)
    monkeypatch.chdir(tmp_path)
    written = open_dataset("run-10:00")
    service = written.view(written.episodes[0]).services[0]
    assert len(written.view(written.episodes[0]).table("metrics", filters=[("service", "in", [service])]))
    code, _, errors = run("dataset", "export", "run-10:00", "export-10:00", "--as", layout)
    assert code == 0, errors
    if layout != "wide-parquet":
        for target, command in (("import-10:00", "evaluate import-10:00"), ("my import:1", "evaluate 'my import:1'")):
            code, out, errors = run("dataset", "import", layout, "export-10:00", target)
            assert code == 0, errors
            assert f"  {command}\n" in out


SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
DESCRIPTIONS = 60_000
"""Bytes of what is about all episodes, which a trial of one episode counts for each."""


def export(*arguments: object) -> Result:
    return CliRunner().invoke(faultset, ["dataset", "export", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("layout", sorted(plugins(GROUP)))
def test_the_expected_size_is_about_the_size(layout: str, few_episodes: Path, tmp_path: Path):
    plans: list[ExportPlan] = []
    options = ExportOptions(roles=["cpu", "latency"])
    target = tmp_path / "out"
    done = export_dataset(layout, few_episodes, target, options=options, max_bytes=None, announce=plans.append)
    (plan,) = plans
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert size / 2 - DESCRIPTIONS < plan.expected_bytes < size * 2 + DESCRIPTIONS
    assert plan.faulty + plan.healthy == done.episodes
    assert plan.expected_s > 0
    assert not [path.name for path in target.iterdir() if path.name.startswith(".")]


def test_a_large_export_is_refused_without_yes_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "MAX_GB", 0.001)
    result = export(SAMPLE, tmp_path / "out", "--as", "windows")
    assert result.exit_code == 2
    assert "10 episodes (7 with a fault, 3 without), about" in result.stderr
    assert "--yes" in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
    dry = export(SAMPLE, tmp_path / "out", "--as", "windows", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stderr.startswith("10 episodes (7 with a fault, 3 without), about")
    assert len(dry.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert export(SAMPLE, tmp_path / "out", "--as", "windows", "--roles", "cpu", "--yes").exit_code == 0


def test_progress_ends_when_everything_is_written(example_root: Path, tmp_path: Path):
    """The last step is only counted when all windows have been read."""
    steps: list[tuple[int, int, int]] = []

    def watch(finished: int, total: int) -> None:
        written = sum(1 for path in tmp_path.rglob("values.npy") if np.load(path, mmap_mode="r").any())
        steps.append((finished, total, written))

    export_dataset("windows", example_root, tmp_path / "out", options=ExportOptions(step_s=0.5), progress=watch)
    assert {total for _, total, _ in steps} == {4}
    assert [finished for finished, _, _ in steps] == sorted(finished for finished, _, _ in steps)
    assert next(written for finished, _, written in steps if finished == 1) == 0
    assert steps[-1] == (4, 4, 2)


def test_windows_per_service_have_one_set_of_columns_and_name_their_service(example_root: Path, tmp_path: Path):
    assert export(example_root, tmp_path / "out", "--as", "windows", "--step", "500ms", "--per-service").exit_code == 0
    dataset = open_dataset(example_root)
    for side, episodes in dataset.splits["by-episode"].items():
        names = np.load(tmp_path / "out" / side / "services.npy")
        of = np.load(tmp_path / "out" / side / "episodes.npy")
        assert {*of.tolist()} == {*episodes}
        for episode in episodes:
            assert {*names[of == episode].tolist()} == {*dataset.view(episode).services}
        labels = np.load(tmp_path / "out" / side / "labels.npy")
        for episode, service in {*zip(of[labels.any(axis=1)], names[labels.any(axis=1)], strict=True)}:
            assert service in dataset.label(str(episode)).targets


def test_services_are_refused_where_a_layout_has_no_windows(example_root: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="needs a layout with windows"):
        export_dataset("wide-csv", example_root, tmp_path / "out", options=ExportOptions(per_service=True))


@pytest.mark.parametrize("step", ["inf", "9" * 400 + "h", "1000h", "0s", "-1s", "nan"])
def test_an_impossible_step_is_one_sentence(step: str, example_root: Path, tmp_path: Path):
    result = export(example_root, tmp_path / "out", "--as", "wide-csv", "--step", step)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/proc/x", "n" * 300, "file/x", "loop/x", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_one_sentence(name: str, example_root: Path, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    result = export(example_root, tmp_path / name, "--as", "wide-csv")
    assert result.exit_code in (2, 3)
    assert [line[:7] for line in result.stderr.splitlines()] == ["Error: "]
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}


def test_folders_of_the_user_beside_the_target_are_left_alone(example_root: Path, tmp_path: Path):
    for name in ("out.incomplete", ".out.incomplete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="holds other data"):
        export_dataset("wide-csv", example_root, tmp_path / "out")
    assert [path.read_text() for path in tmp_path.rglob("mine.txt")] == ["mine", "mine"]
