"""Learning from one dataset and testing another: no episode and no cluster is in both."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.baselines.contract import Detection
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import read_context
from faultset.evaluators import evaluate
from faultset.evaluators.cli.evaluate import evaluate as command
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.settings import build_training_data
from tests.evaluators.execution.test_plan import spec_of


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "other"
    write_example_dataset(root, episodes=8, seed=7, baseline_s=20, fault_s=20)
    return root


def source(root: Path) -> DatasetSource:
    return DatasetSource.of(open_dataset(root))


class CountsTraining:
    """Scores every sample by the number of training episodes, and remembers which they were."""

    def fit(self, healthy: Sequence[Any]) -> CountsTraining:
        self.seen = [view.episode for view in healthy]
        return self

    def detect(self, episode: Any) -> Detection:
        if episode.episode in self.seen:
            raise ValueError("it was fitted on this episode")
        return Detection.from_scores(
            episode.wide(1.0).index.as_unit("ns").asi8[-5:], np.full(5, float(len(self.seen))), 0.5
        )


def test_no_episode_and_no_cluster_is_in_both_subsets(example_dataset: Path, other: Path):
    train, test = source(other), source(example_dataset)
    found = build_training_data(train, test)
    learned = {*found.fold.healthy_train, *found.fold.faulty_train}
    tested = {truth.cluster for truth in test.truths}
    assert {truth.cluster for truth in train.truths} & tested  # a leak would be possible
    assert not {truth.cluster for truth in train.truths if truth.episode in learned} & tested
    assert set(found.fold.test) == {truth.episode for truth in test.truths}
    assert set(found.left_out) == {truth.episode for truth in train.truths if truth.cluster in tested}
    assert learned | set(found.left_out) == {truth.episode for truth in train.truths}


def test_methods_learn_from_the_other_dataset_and_all_of_this_one_is_tested(example_dataset: Path, other: Path):
    done = evaluate(
        example_dataset, [spec_of(CountsTraining, own_threshold=True)], train=other, tasks=("detection",), workers=1
    )
    tested = [row for row in done.rows if row.protocol == "detected"]
    assert {row.status for row in tested} == {"ok"}, {row.reason for row in tested}
    assert {row.episode for row in tested} == set(open_dataset(example_dataset).episodes)
    assert {max(row.answer["scores"]) for row in tested} == {4.0}  # the no-fault episodes of the other dataset
    assert {row.split for row in tested} == {"train on other 1.0.0"}
    assert done.settings["train"]["digest"] == source(other).digest
    assert {row.episode for row in done.rows if row.protocol == "calibration"} <= set(open_dataset(other).episodes)


def test_a_dataset_cannot_train_for_itself(example_dataset: Path):
    with pytest.raises(DataError, match=r"example and example share 4 episodes .*; train on a dataset"):
        build_training_data(source(example_dataset), source(example_dataset))


def test_the_same_telemetry_under_another_name_is_refused(example_dataset: Path, other: Path, tmp_path: Path):
    from faultset.datasets.format.versions import create_version

    copy = tmp_path / "copy"
    shutil.copytree(example_dataset, copy)
    shutil.rmtree(copy / "versions")
    for folder in sorted((copy / "episodes").iterdir()):
        renamed = folder.with_name("r" + folder.name[1:])
        folder.rename(renamed)
        context = renamed / "context.json"
        context.write_text(context.read_text().replace(folder.name, renamed.name))
        for path in renamed.rglob("*.parquet"):
            table = pq.read_table(path)
            names = pa.array([renamed.name] * len(table), type=table.schema.field(0).type)
            table = table.set_column(0, table.schema.field(0), names)
            pq.write_table(table, path)
        assert read_context(renamed).episode == renamed.name
    create_version(copy, provenance={})
    with pytest.raises(DataError, match=r"first: r[0-9a-f]+, there called e[0-9a-f]+\)"):
        build_training_data(source(copy), source(example_dataset))


def test_equal_times_alone_are_no_leak(example_dataset: Path, other: Path):
    train = source(other)
    test = source(example_dataset)
    moved = tuple(
        dataclasses.replace(truth, view_start_ns=one.view_start_ns, reference_end_ns=one.reference_end_ns)
        for truth, one in zip(train.truths, (*test.truths, *test.truths), strict=True)
    )
    assert build_training_data(dataclasses.replace(train, truths=moved), test).fold.healthy_train


def test_a_split_and_a_training_dataset_exclude_each_other(example_dataset: Path, other: Path):
    with pytest.raises(UsageError, match="leave out the split"):
        evaluate(example_dataset, ["ksigma"], train=other, split="cross")
    result = CliRunner().invoke(command, [str(example_dataset), "--train", str(other), "--split", "cross"])
    assert result.exit_code == 2
    assert "leave out the split" in result.output
