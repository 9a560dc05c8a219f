from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.core.console import root
from faultset.datasets.cli.versions import _list_fault_rows
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.context import read_context
from faultset.datasets.format.versions import create_version


@pytest.fixture
def run():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(root, ["dataset", *(str(argument) for argument in arguments)])


def test_show_counts_episodes_tables_and_splits(run, example_root):
    result = run("show", example_root)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["example", "4", "2", "2"] in lines
    assert ["2", "none", "(plain)"] in lines
    assert any(line[:2] == ["1", "cpu-hog,"] for line in lines)
    assert ["by-fault", "fault", "2", "2"] in lines
    assert any(line[:1] == ["telemetry/metrics"] for line in lines)
    assert "The data is synthetic." in result.stdout


def test_show_counts_many_faults_in_a_screen(run, example_root):
    rows = [{"app": "a", "fault": f"fault-{n}", "verdict": "manifest", "episodes": 2} for n in range(70)]
    assert _list_fault_rows(rows) == [{"episodes": 2, "faults": sorted(row["fault"] for row in rows)}]


@pytest.mark.parametrize(
    ("options", "number"),
    [([], 4), (["--faults", "cpu-hog"], 1), (["--faults", "none"], 2), (["--verdicts", "manifest"], 2),
     (["--faults", "cpu-hog,none", "--apps", "example"], 3), (["--faults", "none", "--verdicts", "manifest"], 0)],
)  # fmt: skip
def test_episodes_are_listed_by_what_was_asked_for(run, example_root, options, number):
    result = run("episodes", example_root, *options, "--json")
    assert result.exit_code == 0
    records = json.loads(result.stdout)
    assert len(records) == number
    dataset = open_dataset(example_root)
    for record in records:
        label = dataset.label(record["episode"])
        assert record["target"] == ", ".join(label.targets)
        assert (record["onset_s"] is None) == (label.onset_ns is None)
        assert record["duration_s"] == 40
    table = run("episodes", example_root, *options)
    assert [line.split()[0] for line in table.stdout.splitlines()[1:]] == [record["episode"] for record in records]


@pytest.mark.parametrize("option", ["--faults", "--apps", "--verdicts"])
def test_what_no_episode_has_is_refused_by_name(run, example_root, option):
    result = run("episodes", example_root, option, "nothing")
    assert result.exit_code == 2
    assert "nothing" in result.stderr


def test_show_as_json_has_everything(run, example_root):
    shown = json.loads(run("show", example_root, "--json").stdout)
    assert shown["version"] == "1.0.0"
    assert sum(row["episodes"] for row in shown["episodes"]) == 4
    assert {row["table"] for row in shown["tables"]} >= {"telemetry/metrics", "truth/label"}
    assert shown["provenance"]["synthetic"] is True


def test_verify_says_that_all_is_well(run, example_root):
    result = run("verify", example_root)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "No errors."


@pytest.mark.parametrize("options", [[], ["--json"], ["--version", "1.0.0"]])
def test_verify_exits_3_when_something_is_wrong(run, example_copy, options):
    dataset = open_dataset(example_copy)
    (dataset.path(dataset.episodes[0]) / "telemetry" / "logs.parquet").unlink()
    result = run("verify", example_copy, *options)
    assert result.exit_code == 3
    assert "logs.parquet" in result.stdout
    assert "has 1 error" in result.stderr
    if "--json" in options:
        assert any(finding["severity"] == "error" for finding in json.loads(result.stdout))


def test_versions_and_diff_follow_what_was_added(run, write_episode, tmp_path):
    write_episode("e1")
    create_version(tmp_path, provenance={})
    write_episode("e2")
    create_version(tmp_path, provenance={})
    listed = json.loads(run("versions", tmp_path, "--json").stdout)
    assert [(row["version"], row["episodes"]) for row in listed] == [("1.0.0", 1), ("1.1.0", 2)]
    assert run("versions", tmp_path).stdout.splitlines()[1].startswith("1.0.0 ")
    assert json.loads(run("diff", tmp_path, "1.0.0", "1.1.0", "--json").stdout) == [
        {"change": "added", "episode": "e2", "files": []}
    ]
    assert "hold the same episodes" in run("diff", tmp_path, "1.0.0", "1.0.0").stdout


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["episodes"], ["verify"], ["versions"], ["diff", "1.0.0", "1.1.0"]],
    ids=lambda words: words[0],
)
def test_a_folder_that_is_no_dataset_exits_3(run, tmp_path, arguments):
    command, *rest = arguments
    result = run(command, tmp_path / "nowhere", *rest)
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: there is no dataset at")


@pytest.mark.parametrize("command", ["show", "episodes", "verify", "versions", "diff"])
def test_every_command_has_help_with_an_example(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"faultset dataset {command} faultset-data/" in result.stdout


def test_doctor_names_episodes_without_a_usable_reference(run, example_copy):
    assert "no metric sample in the reference" not in run("doctor", example_copy).stdout
    opened = open_dataset(example_copy)
    for folder in map(opened.path, opened.episodes):
        path = folder / "telemetry" / "metrics.parquet"
        table = pq.read_table(path)
        late = table["time"].cast(pa.int64()).to_numpy() >= read_context(folder).reference_end_ns
        pq.write_table(table.filter(pa.array(late)), path)
    result = run("doctor", example_copy, "--json")
    assert result.exit_code == 0
    (issue,) = json.loads(result.stdout)["data_issues"]
    assert "no metric sample in the reference of 4 episodes" in issue["problem"]


def test_an_export_for_duckdb_names_the_extra_with_its_package(run, example_root, tmp_path):
    done = run("export", example_root, tmp_path / "views", "--as", "duckdb")
    assert f"duckdb -init {tmp_path}/views/views.sql" in done.stdout
    assert "pip install '.[sql]'" in done.stdout
