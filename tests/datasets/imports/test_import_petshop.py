"""PetShop's scenarios on small files in their documented shape, and its traps."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.imports.formats.petshop import CASE_ROWS, REFERENCE_ROWS
from faultset.datasets.testing import check_importer
from tests.datasets.imports.importing import load, problems

SECOND = 10**9
STEP = 300
NORMAL_START = 1_692_608_400
ISSUE_START = 1_681_857_120
NODES = ("PetSite", "PetSearch_AWS::ECS::Fargate", "https://sqs.us-west-2/queue_AWS::SQS::Queue", 'a "b", c_remote')
SIGNALS = (("latency", "Average"), ("latency", "p99"), ("requests", "Sum"), ("availability", "Average"))


def frame(start: int, rows: int, nodes: tuple[str, ...] = NODES) -> pd.DataFrame:
    columns = pd.MultiIndex.from_tuples(
        [(node, *signal) for signal in SIGNALS for node in nodes], names=["microservice", "metric", "statistic"]
    )
    index = pd.Index([float(start + STEP * row) for row in range(rows)], name="unix_timestamp")
    data = [[0.01 * row + column for column in range(len(columns))] for row in range(rows)]
    return pd.DataFrame(data, index=index, columns=columns)


def write_scenario(root: Path, name: str, *, normal_rows: int | None = 80) -> Path:
    scenario = root / name
    scenario.mkdir(parents=True)
    graph = pd.DataFrame(0, index=list(NODES), columns=list(NODES))
    graph.iloc[0, 1] = graph.iloc[1, 2] = 1
    graph.to_csv(scenario / "graph.csv")
    if normal_rows:
        (scenario / "noissue").mkdir()
        frame(NORMAL_START, normal_rows).to_csv(scenario / "noissue" / "metrics.csv")
    return scenario


def write_issue(
    scenario: Path, name: str, *, metric: str | None = None, node: str = NODES[1], nodes: tuple[str, ...] = NODES
) -> Path:
    folder = scenario / name
    folder.mkdir(parents=True)
    rows = frame(ISSUE_START, CASE_ROWS, nodes)
    rows.iloc[0, 3] = float("nan")
    rows.to_csv(folder / "metrics.csv")
    target = {
        "target": {"node": "PetSite", "metric": "latency", "agg": "Average", "timestamp": ISSUE_START + 485},
        "root_cause": {"node": node, "metric": metric},
        "metadata": {
            "reproducibility": {"command": "aws ssm put-parameter --name '/petstore/searchdelay' --value '1'"}
        },
    }
    (folder / "target.json").write_text(json.dumps(target))
    return folder


def write_sample(root: Path) -> Path:
    scenario = write_scenario(root, "low_traffic")
    write_issue(scenario, "train/issue_0")
    write_issue(scenario, "test/issue_10", metric="latency")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "dataset")


imported = partial(load, "petshop")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """An import of the unchanged sample."""
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder / "in")
    return imported(folder / "in", folder / "out")


def faulty(dataset: Dataset) -> list[str]:
    return [episode for episode in dataset.episodes if dataset.label(episode).fault]


def test_issues_and_stretches_without_one_become_episodes_that_verify(root: Path, tmp_path: Path) -> None:
    dataset = imported(root, tmp_path / "out")
    labels = [dataset.label(episode) for episode in dataset.episodes]

    assert [label.fault for label in labels].count("searchdelay") == 2
    # 80 rows are cut at 40, 48, 56, 64 and 72, as the source's measure of specificity does.
    assert [label.no_fault_kind for label in labels].count("plain") == 5
    assert not [finding for finding in verify(tmp_path / "out") if finding.severity == "error"]


def test_normal_rows_of_another_day_are_moved_before_the_case_without_a_gap(dataset: Dataset) -> None:
    view = dataset.view(faulty(dataset)[0])
    context = view.context
    times = view.metrics()["time"].astype("int64").drop_duplicates().sort_values()

    assert (times.diff().dropna() == STEP * SECOND).all()
    assert len(times) == REFERENCE_ROWS + CASE_ROWS
    assert context.reference_end_ns == ISSUE_START * SECOND
    first = int(times.iloc[0]) - context.reference_moved_ns
    assert first == (NORMAL_START + 20 * STEP) * SECOND


def test_the_last_normal_rows_are_the_reference_and_values_stay_with_their_rows(dataset: Dataset) -> None:
    view = dataset.view(faulty(dataset)[0])
    rows = view.metrics()
    series = rows[(rows["service"] == "PetSite") & (rows["metric"] == "latency_Average")]["value"].tolist()

    assert series[:2] == pytest.approx([0.20, 0.21])
    assert series[-CASE_ROWS:] == pytest.approx([0.00, 0.01, 0.02, 0.03, 0.04])


def test_names_with_commas_quotes_and_colons_are_candidates_as_they_stand(dataset: Dataset) -> None:
    view = dataset.view(faulty(dataset)[0])

    assert set(view.services) == set(NODES)
    assert set(view.calls) == {(NODES[0], NODES[1]), (NODES[1], NODES[2])}
    assert view.context.workload_entry == "PetSite"
    assert set(view.metrics()["service"]) == set(NODES)


def test_the_label_holds_the_node_and_the_metric_where_the_source_names_one(dataset: Dataset) -> None:
    causes = [dataset.label(episode).root_causes[0] for episode in faulty(dataset)]

    assert {cause.service for cause in causes} == {NODES[1]}
    assert {cause.metric for cause in causes} == {None, "latency"}
    onset = dataset.label(faulty(dataset)[0]).inject_start_ns
    assert onset == (ISSUE_START + 485) * SECOND


def test_where_the_alarm_was_seen_is_in_the_label_and_not_in_the_view(root: Path, tmp_path: Path) -> None:
    for target in root.glob("low_traffic/*/*/target.json"):
        content = json.loads(target.read_text())
        content["target"]["node"] = NODES[2]
        target.write_text(json.dumps(content))
    dataset = imported(root, tmp_path / "out")
    places = {dataset.label(episode).alarm_location for episode in faulty(dataset)}
    assert places == {AlarmLocation(service=NODES[2], metric="latency_Average")}
    assert {dataset.label(e).alarm_location for e in set(dataset.episodes) - set(faulty(dataset))} == {None}
    assert {dataset.view(e).alarm_location for e in dataset.episodes} == {None}
    assert {dataset.view(e).context.workload_entry for e in dataset.episodes} == {NODES[0]}


def test_cells_without_a_value_have_no_row(dataset: Dataset) -> None:
    sizes = {len(dataset.view(episode).metrics()) for episode in faulty(dataset)}

    assert sizes == {(REFERENCE_ROWS + CASE_ROWS) * len(NODES) * len(SIGNALS) - 1}


def test_a_scenario_without_normal_metrics_takes_the_rows_before_the_issue(tmp_path: Path) -> None:
    root = tmp_path / "dataset"
    write_issue(write_scenario(root, "temporal_traffic1", normal_rows=None), "train/issue_0")
    dataset = imported(root, tmp_path / "out")
    context = dataset.view(dataset.episodes[0]).context

    assert (context.view_start_ns, context.reference_end_ns) == (ISSUE_START * SECOND, (ISSUE_START + STEP) * SECOND)
    assert context.reference_moved_ns == 0
    assert any("no normal metrics" in problem for problem in problems(root))


def test_an_issue_that_names_an_unknown_node_cannot_be_imported(root: Path, tmp_path: Path) -> None:
    write_issue(root / "low_traffic", "train/issue_1", node="Nobody")

    with pytest.raises(DataError, match="the root cause Nobody of low_traffic/train/issue_1 must"):
        imported(root, tmp_path / "out")


def test_nodes_that_the_normal_metrics_do_not_know_are_told_and_imported(root: Path, tmp_path: Path) -> None:
    write_issue(root / "low_traffic", "train/issue_1", nodes=(*NODES, "S3_AWS::S3"))
    dataset = imported(root, tmp_path / "out")

    assert any("S3_AWS::S3" in dataset.view(episode).services for episode in dataset.episodes)
    assert any(
        "1 nodes are not in the normal metrics (S3_AWS::S3)" in issue.problem for issue in examine(root).data_issues
    )


def test_one_root_cause_for_every_issue_is_an_oddity(root: Path) -> None:
    assert any("Every issue has the root cause" in problem for problem in problems(root))

    write_issue(root / "low_traffic", "train/issue_1", node="PetSite")
    assert not any("Every issue has the root cause" in problem for problem in problems(root))


def test_a_byte_order_mark_and_hidden_folders_do_no_harm(root: Path, tmp_path: Path) -> None:
    path = root / "low_traffic" / "train" / "issue_0" / "metrics.csv"
    path.write_text("﻿" + path.read_text(encoding="utf-8"), encoding="utf-8")
    (root / "low_traffic" / "train" / ".DS_Store").write_text("x")
    dataset = imported(root, tmp_path / "out")

    assert len(faulty(dataset)) == 2


def test_a_torn_table_is_named(root: Path, tmp_path: Path) -> None:
    path = root / "low_traffic" / "train" / "issue_0" / "metrics.csv"
    path.write_text("microservice,a\nmetric,latency\n")

    with pytest.raises(DataError, match=r"issue_0/metrics\.csv must be a table of metrics with three header rows"):
        imported(root, tmp_path / "out")


def test_the_importer_keeps_what_importers_promise(root: Path) -> None:
    check_importer("petshop", root)
