"""Result rows come back from a file, and from compressed parts, as they were stored."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import resource
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.baselines.registry import get_baseline
from faultset.core.errors import DataError, UsageError
from faultset.datasets import RootCause
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.labels import LabelledFault, LabelledInterval
from faultset.evaluators.cli.evaluate import evaluate
from faultset.evaluators.evaluation import FILES, Evaluation
from faultset.evaluators.evaluation_call import results_folder
from faultset.evaluators.execution.method_runs import Checkpoint
from faultset.evaluators.execution.plan import build_runs
from faultset.evaluators.execution.settings import EvaluationSettings
from faultset.evaluators.leaderboards.formats import markdown
from faultset.evaluators.leaderboards.formats import show_leaderboard as show
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.results.provenance import read_parameters, settings_hash
from faultset.evaluators.results.rows import (
    ROWS_VERSION,
    CompressedRows,
    check_writable,
    compress_rows,
    read_rows,
    write_rows,
    writing,
)
from faultset.evaluators.results.truth import FaultTruth, build_truth


def test_rows_survive_being_stored(make, tmp_path: Path):
    rows = [make.detection(make.truth("e1"), range(65, 101)), make.detection(make.healthy("h1"), [])]
    rows += [
        make.row(
            make.truth("e9", calls=(("a", "b"),)),
            ranking={"a": 0.5},
            given_alarm_ns=7,
            alarm_source="ksigma",
            needs=("sli",),
        )
    ]
    write_rows(rows, tmp_path / "results.parquet")
    assert read_rows(tmp_path / "results.parquet") == sorted(rows, key=lambda row: row.key)


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    (tmp_path / "results.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read as results"):
        read_rows(tmp_path / "results.parquet")


@pytest.mark.parametrize("version", [ROWS_VERSION - 1, ROWS_VERSION + 1])
def test_rows_of_another_version_are_refused(make, tmp_path: Path, version: int):
    path = tmp_path / "results.parquet"
    write_rows([make.row(make.truth())], path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"faultset.rows": str(version)}), path)
    with pytest.raises(DataError, match=f"holds results in layout {version}, expected {ROWS_VERSION}; run"):
        read_rows(path)


def test_every_fault_of_an_episode_is_stored(make, tmp_path: Path):
    faults = (FaultTruth("crash", "b", "Application", "Code Defect"), FaultTruth("loss", "c", None, None))
    truth = make.truth(
        fault="crash + loss", targets=("b", "c"), causes=(("b",), ("c",)), faults=faults, pauses=((3, 5), (7, 9))
    )
    write_rows([make.row(truth)], tmp_path / "results.parquet")
    (row,) = read_rows(tmp_path / "results.parquet")
    assert row.truth == truth


SERVICES = [f"service-{number}" for number in range(20)]


def test_rows_come_back_with_one_truth_for_each_episode(make):
    rows = [make.detection(make.truth("e1"), range(65, 101)), make.detection(make.healthy("h1"), [])]
    rows += [make.row(make.truth("e1"), ranking={"a": 0.5, "b": float("-inf")}, given_alarm_ns=7, needs=("sli",))]
    parts = CompressedRows()
    parts.add(rows[:2])
    parts.add([])
    parts.add(rows[2:])
    found = parts.rows()
    assert found == rows
    assert len(parts) == 3
    assert found[0].truth is found[2].truth


def test_rows_take_a_quarter_of_what_the_objects_of_a_message_take(make):
    draw = random.Random(1)
    rows = [
        make.row(make.truth(f"e{number}"), ranking={name: draw.random() for name in SERVICES}) for number in range(40)
    ]
    message = pickle.dumps(rows)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        received = pickle.loads(message)
        objects = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(compress_rows(received)) < objects / 4


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the kernel refuse larger files of this process, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", ["file/results", "x" * 300, "a/../file/b"])
def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, name: str):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"results cannot be written to .*; choose another --out"):
        check_writable(tmp_path / name)


@pytest.mark.parametrize("folder", ["/proc/results", "/proc/self/results", "/sys/results", "/dev/null/results", "a\0b"])
def test_a_place_of_the_system_is_refused(folder: str):
    with pytest.raises(UsageError, match="results cannot be written to"):
        check_writable(Path(folder))


def test_a_full_disk_is_noticed_before_any_method_runs(tmp_path: Path):
    with files_of_at_most(100), pytest.raises(DataError, match="no space left on the disk of"):
        check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_evaluations_that_try_one_folder_at_once_do_not_disturb_each_other(tmp_path: Path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(check_writable, [tmp_path / "new"] * 400))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_disk_that_fills_up_leaves_whole_results_or_the_earlier_ones(make, tmp_path: Path):
    rows = [make.detection(make.truth(f"e{i}"), range(65, 101)) for i in range(4)]
    earlier = Evaluation(rows=tuple(rows[:2]), digest="earlier")
    earlier.write(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    for size in (4096, 8192, 16384):
        with files_of_at_most(size), pytest.raises(DataError, match="no space left"):
            Evaluation(rows=tuple(rows), digest="later").write(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == set(FILES)
        for name in FILES:
            content = (tmp_path / name).read_bytes()
            assert content == before[name] or len(content) <= size, "whole: nothing larger could be written"


def test_a_checkpoint_on_a_full_disk_is_one_sentence(make, tmp_path: Path):
    rows = [make.detection(make.truth(f"e{i}"), range(65, 101)) for i in range(40)]
    with Checkpoint(tmp_path, {}) as checkpoint:
        checkpoint.begin({})
        with files_of_at_most(2000), pytest.raises(DataError, match="no space left"), writing(tmp_path):
            checkpoint.add(rows)


def test_results_do_not_go_through_links_that_came_with_the_data(make, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    for name in FILES:
        os.symlink(victim, folder / name)
    Evaluation(rows=(make.row(make.truth()),)).write(folder)
    assert victim.read_text() == "mine"
    assert not any((folder / name).is_symlink() for name in FILES)


@pytest.mark.parametrize("name", ["results", "results/data"])
def test_a_link_where_results_belong_is_refused(tmp_path: Path, name: str):
    (tmp_path / "data").mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.symlink(tmp_path, tmp_path / name)
    with pytest.raises(UsageError, match="is a link; remove it, or choose the results folder"):
        results_folder(str(tmp_path / "data"))


def test_names_are_neither_markup_nor_terminal_commands(make):
    from rich.console import Console

    evil = 'x<svg onload="alert(1)">|\x1b[2J\x1b]0;title\x07'
    rows = [make.row(make.truth("e1", app=evil, fault=evil), evil, ranking={"b": 1.0}, reason=evil, status="error")]
    board = build_leaderboard(rows)
    text = markdown(board)
    assert "<svg" not in text
    assert "&lt;svg" in text
    assert "\x1b" not in text
    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        show(board, console)
    assert "\x1b" not in console.export_text()
    assert "\x07" not in console.export_text()


def test_two_datasets_in_one_folder_keep_their_results_apart(example_dataset: Path, tmp_path: Path):
    import shutil

    for name in ("one", "two"):
        shutil.copytree(example_dataset, tmp_path / name)
        done = CliRunner().invoke(evaluate, [str(tmp_path / name), "--baselines", "always-yes", "--workers", "1"])
        assert done.exit_code == 0, done.output
    for name in ("one", "two"):
        assert name in (tmp_path / "results" / name / "leaderboard.md").read_text()


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ({"kind": "Pod", "name": "geo-5d9-x2k"}, ("geo-5d9-x2k",)),
        ({"kind": "Pod", "name": "geo"}, ()),
        ({"kind": "Deployment", "name": "geo-5d9-x2k"}, ()),
    ],
    ids=["a pod by its name", "any pod of the service", "another kind"],
)
def test_the_truth_names_a_pod_only_by_its_own_name(example_dataset, cause, expected) -> None:
    dataset = open_dataset(example_dataset)
    episode = next(name for name in dataset.episodes if dataset.label(name).fault)
    causes = (RootCause(service="geo", accepted=("geo",), **cause),)
    truth = build_truth(replace(dataset.label(episode), root_causes=causes), dataset.view(episode).context)
    assert truth.pod_causes == expected
    assert replace(truth, pod_causes=()).causes == (("geo",),)


def interval(begin_s: float, end_s: float, onset_ns: int) -> LabelledInterval:
    begin_ns, end_ns = (onset_ns + round(at_s * SECOND) for at_s in (begin_s, end_s))
    return LabelledInterval(begin_ns=begin_ns, end_ns=end_ns, first_intensity=1.0, last_intensity=1.0)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([[(0, 30)]], []),
        ([[(0, 3), (5, 8), (10, 30)]], [(3, 5), (8, 10)]),
        ([[(0, 3), (5, 8)], [(2, 5), (7, 9)]], [(9, None)]),
        ([[(0, 3), (5, 30)], []], []),
        ([], []),
    ],
    ids=["always there", "comes and goes", "one covers the other", "one is not recorded", "none is recorded"],
)
def test_pauses_are_the_times_after_the_onset_in_which_no_fault_acts(example_dataset, times, expected) -> None:
    dataset = open_dataset(example_dataset)
    episode = next(name for name in dataset.episodes if dataset.label(name).fault)
    label = dataset.label(episode)
    onset_ns = label.inject_start_ns
    assert onset_ns is not None
    faults = tuple(
        LabelledFault(
            fault=f"f{number}",
            target="geo",
            parameters={},
            inject_start_ns=onset_ns,
            intervals=tuple(interval(begin_s, end_s, onset_ns) for begin_s, end_s in found),
        )
        for number, found in enumerate(times)
    )
    truth = build_truth(replace(label, faults=faults), dataset.view(episode).context)
    ends = [label.view_end_ns if end is None else onset_ns + end * SECOND for _, end in expected]
    assert truth.pauses == tuple(
        (onset_ns + begin * SECOND, end) for (begin, _), end in zip(expected, ends, strict=True)
    )


def test_settings_have_a_stable_name():
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})


def test_parameters_are_the_defaults_that_a_baseline_is_built_with():
    found = read_parameters(get_baseline("autoencoder"))
    assert found == {"hidden": (16, 4, 16), "updates": 500}
    assert read_parameters(get_baseline("always-no")) == {}


def test_other_parameters_are_another_key():
    spec = get_baseline("pooled-pca")
    other = dataclasses.replace(spec, factory=lambda variance=0.5: spec.factory(variance=variance))
    runs = [build_runs([one], EvaluationSettings())[0][0] for one in (spec, other)]
    assert runs[0].settings != runs[1].settings
