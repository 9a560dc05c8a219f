from __future__ import annotations

import pickle
import shutil

import pandas as pd
import pyarrow as pa
import pytest

from faultset.core.errors import DataError, UsageError
from faultset.datasets import open_dataset
from faultset.datasets.format.schemas import SCHEMA_VERSION, TABLES
from faultset.datasets.metrics.roles import role_of
from faultset.datasets.views import EpisodeView


@pytest.fixture
def view(example_root):
    dataset = open_dataset(example_root)
    return next(dataset.view(episode) for episode in dataset.episodes if dataset.label(episode).fault)


def everything(view: EpisodeView) -> list[pd.DataFrame]:
    frames = [getattr(view, table)() for table in TABLES]
    return [*frames, view.wide(), view.table("logs", columns=["message"]).to_pandas()]


def test_a_view_gives_all_it_has_without_the_truth_being_there(example_copy):
    dataset = open_dataset(example_copy)
    views = [dataset.view(episode) for episode in dataset.episodes]
    before = [everything(view) for view in views]
    for episode in dataset.episodes:
        shutil.rmtree(dataset.path(episode) / "truth")
    after = [everything(EpisodeView(dataset.root / "episodes" / view.episode)) for view in views]
    for old, new in zip(before, after, strict=True):
        for one, other in zip(old, new, strict=True):
            pd.testing.assert_frame_equal(one, other)


def test_nothing_reachable_from_a_view_says_what_happened(example_root):
    dataset = open_dataset(example_root)
    for episode in dataset.episodes:
        label = dataset.label(episode)
        seen = reachable(dataset.view(episode))
        assert not any(isinstance(item, str) and label.fault and label.fault in item for item in seen)
        assert label.inject_start_ns is None or label.inject_start_ns not in seen
        names = {item for item in seen if isinstance(item, str)}
        assert not {"label", "truth", "targets", "inject_start", "verdict"} & names


def test_no_public_attribute_of_a_view_is_a_path(view):
    public = [name for name in dir(view) if not name.startswith("_")]
    assert set(public) == {
        *TABLES,
        "tables",
        "alarm_location",
        "context",
        "episode",
        "note_skipped_series",
        "file_stamps",
        "once",
        "services",
        "calls",
        "window",
        "reference",
        "silent_steps",
        "catalogue",
        "table",
        "pieces",
        "wide",
    }


def reachable(root: object) -> list[object]:
    """Return every plain value that public and private attributes lead to."""
    found: list[object] = []
    waiting, known = [root], set()
    while waiting:
        item = waiting.pop()
        if id(item) in known:
            continue
        known.add(id(item))
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, tuple | list | set | frozenset):
            waiting += item
        elif isinstance(item, str | int | float):
            found.append(item)
        elif hasattr(item, "__dict__"):
            found += list(vars(item))
            waiting += vars(item).values()
    return found


def test_a_view_pickles_small_and_works_after(view):
    copied = pickle.loads(pickle.dumps(view))
    assert len(pickle.dumps(view)) < 4000
    pd.testing.assert_frame_equal(copied.wide(), view.wide())


@pytest.mark.parametrize(("step", "same"), [("1s", 1.0), ("500ms", 0.5), (2, 2.0), (" 2s ", 2.0)])
def test_a_step_may_be_written_as_on_the_command_line(view, step, same):
    pd.testing.assert_frame_equal(view.wide(step), view.wide(same))


@pytest.mark.parametrize("step", [0, -1, float("inf"), float("nan"), "1", "fast", "", None, [1], 1e-9, "9" * 400 + "h"])
def test_an_impossible_step_is_refused_in_a_sentence(view, step):
    with pytest.raises(UsageError, match="step must be"):
        view.wide(step)


def test_windows_and_candidates_come_from_the_context(view):
    start, end = view.window
    assert view.reference[0] == start < view.reference[1] < end
    assert "frontend" in view.services
    assert ("frontend", "search") in view.calls


def test_frames_have_categories_and_times_in_utc(view):
    frame = view.metrics()
    assert frame.columns.tolist() == TABLES["metrics"].names
    assert str(frame["metric"].dtype) == "category"
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert str(view.requests()["scheduled"].dtype) == "datetime64[ns, UTC]"


def test_a_table_can_be_read_in_part(view):
    logs = view.table("logs", columns=["time", "message"], filters=[("service", "==", "geo")])
    assert logs.column_names == ["time", "message"]
    assert 0 < len(logs) < len(view.table("logs"))
    errors = view.table("spans", filters=[("status", "in", ["error"])])
    assert set(errors["status"].to_pylist()) <= {"error"}
    assert pa.types.is_dictionary(errors.schema.field("status").type)


def test_unknown_tables_columns_and_roles_are_named(view):
    with pytest.raises(UsageError, match='unknown table "metric"; did you mean "metrics"'):
        view.table("metric")
    with pytest.raises(UsageError, match='unknown column of table logs "mesage"; did you mean "message"'):
        view.table("logs", columns=["mesage"])
    with pytest.raises(UsageError, match='unknown role "latecy"; did you mean "latency"'):
        view.wide(roles=["latecy"])


@pytest.mark.parametrize("roles", [["cpu"], ["latency"], ["errors", "traffic"], ["state", "memory"]])
def test_a_frame_of_some_roles_is_that_part_of_the_whole(view, roles):
    whole = view.wide()
    part = view.wide(roles=roles)
    expected = [metric for _, metric in whole.columns if role_of(metric) in roles]
    assert part.columns.get_level_values("metric").tolist() == expected
    pd.testing.assert_frame_equal(part, whole[part.columns])


def test_a_role_that_nobody_exports_gives_no_columns(view):
    assert view.wide(roles=["disk"]).shape == (len(view.wide()), 0)


def test_row_groups_without_the_role_are_not_read(write_episode, sample, monkeypatch):
    monkeypatch.setattr("faultset.datasets.format.storage.ROW_GROUP_ROWS", 10)
    rows = [sample(f"{name}", at + 0.5, at) for name in ("container_memory_rss", "up", "zzz") for at in range(20)]
    view = EpisodeView(write_episode("e1", metrics=rows))
    import pyarrow.parquet as pq

    read: list[int] = []
    original = pq.ParquetFile.read_row_groups

    def recording(self, groups, **options):
        read.extend(groups)
        return original(self, groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", recording)
    assert view.wide(roles=["state"])["geo", "up"].count() == 20
    assert read == [2, 3]


def test_an_episode_brings_roles_of_its_own(write_episode, tmp_path, sample):
    import json

    path = write_episode("e1", metrics=[sample("shop_latency_p99", 0.5, 1.0)])
    context = json.loads((path / "context.json").read_text())
    context["metric_roles"] = [
        {
            "source": "shop",
            "metric": "shop_latency_*",
            "role": "latency",
            "unit": "s",
            "kind": "gauge",
            "combine": "max",
        }
    ]
    (path / "context.json").write_text(json.dumps(context))
    view = pickle.loads(pickle.dumps(EpisodeView(path)))
    assert view.wide(roles=["latency"]).columns.tolist() == [("geo", "shop_latency_p99")]


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "missing", "empty"])
@pytest.mark.parametrize("filters", [None, [("service", "==", "geo")]])
def test_a_damaged_file_is_named_in_one_sentence(example_copy, damage, filters):
    dataset = open_dataset(example_copy)
    episode = dataset.episodes[0]
    view = dataset.view(episode)
    file = dataset.path(episode) / "telemetry" / "metrics.parquet"
    content = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "overwritten":
        file.write_bytes(content[:100] + bytes(len(content) - 200) + content[-100:])
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"")
    for read in (lambda: view.table("metrics", filters=filters), view.wide):
        with pytest.raises(DataError, match=r"metrics\.parquet is (missing|truncated or damaged)") as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_episode_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"is not an episode: it has no context\.json"):
        EpisodeView(tmp_path)


@pytest.mark.parametrize("found", [99, 0, "1", None])
def test_a_context_of_another_schema_version_names_both(write_episode, found):
    import json

    path = write_episode("e1")
    context = json.loads((path / "context.json").read_text())
    (path / "context.json").write_text(json.dumps(context | {"schema_version": found}))
    with pytest.raises(DataError, match=rf"must have schema version {SCHEMA_VERSION}, but has \"?{found}\"?;"):
        EpisodeView(path)
