"""What `evaluate` and `faultset list baselines` say when they are asked for something impossible."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultset.baselines import Ranking, TrainingFreeBaseline, baseline
from faultset.baselines.registry import list_baselines
from faultset.core.errors import DataError, UsageError
from faultset.datasets import EpisodeView, export_dataset, open_dataset
from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry
from faultset.evaluators import EvaluationStart, evaluation_call
from faultset.evaluators.cli.compare import compare
from faultset.evaluators.cli.evaluate import evaluate, parse_memory, parse_seconds
from faultset.evaluators.cli.listing import baselines
from faultset.evaluators.execution.plan import STRONGEST, choose_baselines, inputs_beyond_telemetry
from faultset.evaluators.execution.settings import LARGEST_SEED
from faultset.evaluators.leaderboards.track_records import MAIN_DATASET, read_track_records
from faultset.evaluators.results.rows import read_rows


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(evaluate, [str(argument) for argument in arguments])


def test_a_folder_that_is_no_dataset(tmp_path: Path):
    result = invoke(tmp_path)
    assert result.exit_code == 3
    assert "is not a dataset" in result.stderr
    assert invoke(tmp_path / "nothing").exit_code == 3
    assert not (tmp_path.parent / "results").exists()


def test_a_version_that_does_not_exist(example_dataset: Path):
    result = invoke(example_dataset, "--version", "9.9.9")
    assert result.exit_code == 3
    assert 'has no version "9.9.9"' in result.stderr


def test_an_unknown_baseline_gets_a_suggestion(example_dataset: Path, tmp_path: Path):
    result = invoke(example_dataset, "--baselines", "ksigam", "--out", tmp_path)
    assert result.exit_code == 2
    assert 'did you mean "ksigma"' in result.stderr


def test_an_unknown_task_gets_a_suggestion(example_dataset: Path, tmp_path: Path):
    result = invoke(example_dataset, "--tasks", "detction", "--out", tmp_path)
    assert result.exit_code == 2
    assert 'did you mean "detection"?' in result.stderr


def test_baselines_that_do_not_fit_the_task(example_dataset: Path, tmp_path: Path):
    result = invoke(example_dataset, "--baselines", "ksigma", "--tasks", "localization", "--out", tmp_path)
    assert result.exit_code == 2
    assert "no chosen baseline performs localization" in result.stderr


def test_a_damaged_file_is_named_before_anything_runs(example_dataset: Path, tmp_path: Path):
    copy = tmp_path / "data"
    shutil.copytree(example_dataset, copy)
    victim = sorted((copy / "episodes").glob("*/telemetry/metrics.parquet"))[0]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content)
    result = invoke(copy, "--out", tmp_path / "out")
    assert result.exit_code == 3
    assert "has changed since the version was created" in result.stderr
    assert victim.parent.parent.name in result.stderr


@pytest.mark.parametrize(
    "chosen", [("ksigma", "max-z"), pytest.param(("ksigma", "max-z", "spot", "rca-tree"), marks=pytest.mark.slow)]
)
def test_data_that_is_damaged_meanwhile_is_left_out_and_the_rest_is_reported(
    chosen: tuple[str, ...], example_dataset: Path, tmp_path: Path
):
    copy, out = tmp_path / "copy", tmp_path / "out"
    shutil.copytree(example_dataset, copy, ignore=shutil.ignore_patterns(".cache"))
    dataset = open_dataset(copy)
    victim = dataset.path(dataset.episodes[0]) / "telemetry" / "metrics.parquet"
    whole = victim.read_bytes()

    def damage(_: EvaluationStart) -> None:
        victim.write_bytes(whole[:-9])

    with pytest.raises(DataError, match=r"metrics.parquet is truncated or damaged .* missing from the results in"):
        evaluation_call.evaluate(copy, chosen, protocol="oracle", workers=1, out=out, started=damage)
    rows = read_rows(out / "results.parquet")
    assert dataset.episodes[0] not in {row.episode for row in rows}
    assert (out / "report.html").exists()
    # What is whole was answered once, and is not asked for again.
    victim.write_bytes(whole)
    kept: list[int] = []
    again = evaluation_call.evaluate(
        copy, chosen, protocol="oracle", workers=1, out=out, started=lambda start: kept.append(start.reused)
    )
    assert {row.episode for row in again.rows} == set(dataset.episodes)
    assert kept[0] > 0


def test_a_folder_that_cannot_be_written(example_dataset: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = invoke(example_dataset, "--out", tmp_path / "file" / "results")
    assert result.exit_code == 2
    assert "results cannot be written" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--timeout", "0s", "the timeout must be above 0 s"),
        ("--timeout", "60", "not a duration"),
        ("--memory-limit", "lots", "must be an amount such as 2GiB"),
        ("--memory-limit", "1MB", "must be at least 256MiB"),
        ("--memory-limit", "9" * 300 + "GiB", "must be at most 1024TiB"),
        ("--memory-limit", "9" * 400, "must be at most 1024TiB"),
        ("--memory-limit", "2PiB", "must be at most 1024TiB"),
        ("--workers", "0", "1<=x<=1024"),
        ("--workers", "9" * 300, "1<=x<=1024"),
        ("--seed", "9" * 300, "the seed must be from 0 to"),
        ("--seed", str(2**63), "the seed must be from 0 to"),
        ("--delays", "soon", "a delay must be auto or a number of seconds"),
        ("--thresholds", "best", "threshold policy"),
        ("--thresholds", "train-quantile(7)", "between 0 and 1"),
        ("--scheduler", "nowhere", "is not the address of a dask scheduler"),
        ("--scheduler", "tls://127.0.0.1:9", "needs certificates, but dask has none"),
    ],
)
def test_impossible_limits(example_dataset: Path, option: str, value: str, said: str):
    result = invoke(example_dataset, option, value)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_largest_seed_gives_rows_of_methods_that_draw(example_dataset: Path, tmp_path: Path):
    chosen = ("--baselines", "random-detector,isolation-forest", "--workers", 1, "--thresholds", "reference")
    result = invoke(example_dataset, *chosen, "--seed", LARGEST_SEED, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert {row.status for row in read_rows(tmp_path / "results.parquet")} == {"ok"}


def test_help_has_an_example():
    result = invoke("--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout


def test_an_unknown_unit_of_memory_is_refused():
    with pytest.raises(UsageError):
        parse_memory("2 apples")


def test_baselines_are_listed_with_what_they_need():
    result = CliRunner().invoke(baselines, ["--json"])
    assert result.exit_code == 0
    records = {record["name"]: record for record in json.loads(result.stdout)}
    assert records["ksigma"]["task"] == "detection"
    assert records["sli-rule"]["needs"] == ["sli"]
    assert records["epsilon-diagnosis"]["paper"] == "Shan et al., ε-Diagnosis, WWW 2019"
    table = CliRunner().invoke(baselines, ["--task", "localization"]).stdout
    assert "ksigma" not in table
    line = next(line for line in table.splitlines() if line.startswith("epsilon-diagnosis"))
    for text in ("metrics", "instant", "0.54"):
        assert text in line
    assert CliRunner().invoke(baselines, ["--task", "x"]).exit_code == 2


def test_groups_stand_for_baselines_and_mix_with_names():
    everything = {spec.name: spec for spec in choose_baselines(["all"])}
    named = {spec.name for spec in choose_baselines(["named"])}
    assert named == {name for name, spec in everything.items() if spec.kind == "named"}
    mixed = {spec.name for spec in choose_baselines(["named", "baro", "controls"])}
    assert mixed == named | {"baro"} | {name for name, spec in everything.items() if spec.kind == "control"}


def test_the_strongest_are_the_best_five_of_each_task_in_the_track_records():
    best: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for spec in list_baselines().values():
        more_input = {"sli", "alarm_location"} & set(inputs_beyond_telemetry(spec))
        if spec.kind != "control" and not spec.extra and not more_input:
            records = read_track_records().get(spec.name, ())
            best[spec.task] += [(-record.value, spec.name) for record in records if record.dataset == MAIN_DATASET]
    assert {name for entries in best.values() for _, name in sorted(entries)[:5]} == STRONGEST


@pytest.mark.usefixtures("own_registries")
def test_the_default_is_the_named_the_controls_the_strongest_of_each_task_and_methods_of_others():
    @baseline("other-rule", title="S", task="localization", paper="none", kind="rule", tables=("metrics",))
    class OtherRule(TrainingFreeBaseline):
        def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
            return Ranking()

    default = {spec.name: spec for spec in choose_baselines([])}
    fixed = {spec.name for group in ("named", "controls") for spec in choose_baselines([group]) if not spec.extra}
    assert default.keys() == fixed | STRONGEST | {"other-rule"}


def test_a_grid_of_delays_is_given_in_seconds_or_taken_as_it_is():
    assert parse_seconds(None) == ()
    assert parse_seconds("auto") == "auto"
    assert parse_seconds("30s,0, 5") == (0.0, 5.0, 30.0)


@pytest.mark.slow
def test_an_evaluation_that_was_stopped_goes_on_where_it_was(
    example_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from faultset.evaluators.execution import method_runs

    run_plan = method_runs.run_plan

    def stopped(plan, client, progress, keep, *others):
        def keep_one(rows):
            keep(rows)
            raise KeyboardInterrupt

        return run_plan(plan, client, progress, keep_one, *others)

    arguments = (example_dataset, "--out", tmp_path, "--workers", 1, "--baselines", "ksigma,max-z")
    with monkeypatch.context() as patch:
        patch.setattr(method_runs, "run_plan", stopped)
        first = invoke(*arguments)
    assert first.exit_code == 130, first.output
    assert (tmp_path / "results.partial.arrows").exists()
    assert not (tmp_path / "results.parquet").exists()
    with monkeypatch.context() as patch:
        patch.setattr(method_runs, "find_dashboard", lambda client: None)
        again = invoke(*arguments)
    assert again.exit_code == 0, again.output
    assert "Dashboard" not in again.stderr
    assert "Resuming: " in again.stderr
    assert not (tmp_path / "results.partial.arrows").exists()
    assert "interrupted" not in invoke(*arguments).stderr


def test_relative_folders_may_have_a_colon(example_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(example_dataset, "run-10:00")
    for out in ("out:1", "out:2"):
        result = invoke("run-10:00", "--baselines", "always-yes,max-z", "--workers", 1, "--out", out)
        assert result.exit_code == 0, result.stderr
    assert read_rows(Path("out:1/results.parquet")) == read_rows(tmp_path / "out:1" / "results.parquet")
    assert CliRunner().invoke(compare, ["out:1", "out:2"]).exit_code == 0


def test_episodes_without_a_label_are_left_out_or_refused(example_dataset: Path, tmp_path: Path):
    export_dataset("wide-csv", example_dataset, tmp_path / "files")
    episode = next(iter(open_dataset(example_dataset)))
    file = tmp_path / "files" / "features" / f"{episode.id}.csv"
    start_s = episode.context.view_start_ns / 10**9
    unlabelled = {"start": start_s + 15, "end": start_s + 30}
    healthy = {"start": start_s, "end": start_s + 14}
    for name, content in {"both": {"incidents": [unlabelled], "healthy": [healthy]}, "one": [unlabelled]}.items():
        incidents = tmp_path / f"{name}.yaml"
        incidents.write_text(json.dumps(content))
        import_telemetry([file], tmp_path / name, TelemetryOptions(incidents=incidents))
    done = invoke(tmp_path / "both", "--baselines", "always-yes", "--out", tmp_path / "results")
    assert done.exit_code == 0, done.output
    assert "1 without a fault; headlines count manifest episodes; 1 without a label left out" in " ".join(
        done.stdout.split()
    )
    assert {row.truth.no_fault_kind for row in read_rows(tmp_path / "results" / "results.parquet")} == {"plain"}
    refused = invoke(tmp_path / "one", "--baselines", "always-yes", "--out", tmp_path / "nothing")
    assert (refused.exit_code, "faultset diagnose" in refused.output) == (3, True)


def test_an_evaluation_says_what_it_will_do_and_its_progress_ends_with_the_report(
    example_dataset: Path, tmp_path: Path
):
    reports: list[bool] = []
    evaluation_call.evaluate(
        example_dataset,
        ["always-yes"],
        workers=1,
        out=tmp_path,
        progress=lambda done, total: reports.append((done == total) <= (tmp_path / "report.html").exists()),
    )
    assert all(reports)
    said = invoke(example_dataset, "--baselines", "always-yes,max-z", "--workers", 1, "--fresh", "--out", tmp_path)
    first = " ".join(said.stderr.partition(" at a time")[0].split())
    assert re.fullmatch(
        r"4 episodes \(2 with a fault, 2 without\), 2 methods, \d+ answers: about .+ s and \d+ kB, 1", first
    )
    assert len(said.stdout.splitlines()) < 45
