"""`faultset diagnose` prints an analysis, writes a page, and refuses unclear sources in one sentence."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.times import utc_text
from faultset.datasets import create_version, export_dataset
from faultset.datasets.explorer.page import pack_content
from faultset.datasets.format.recordings import RecordingWriter
from faultset.evaluators.cli.diagnose import diagnose
from faultset.evaluators.diagnosis.analysis import diagnose as analyse
from tests.datasets.recorded_samples import TRUTH, at, context, write_chunks

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODE = "a5edb68659bc"
FEW = ["--methods", "nsigma,event-log"]


def run(*arguments: str):
    return CliRunner().invoke(diagnose, list(arguments))


def test_json_and_python_agree():
    done = run(str(SAMPLE), "--episode", EPISODE, *FEW, "--since", "25s", "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    end_ns = shown["window_ns"][1]
    analysis = analyse(SAMPLE / "episodes" / EPISODE, at_ns=end_ns - 25 * 10**9, methods=["nsigma", "event-log"])
    assert [suspect["service"] for suspect in shown["suspects"]] == [s.service for s in analysis.suspects]
    assert shown["moment_from"] == "given"


def test_a_page_shows_suspects_and_answers_without_the_truth(tmp_path, monkeypatch):
    contents = []
    monkeypatch.setattr(
        "faultset.datasets.explorer.page.pack_content",
        lambda content: contents.append(content) or pack_content(content),
    )
    done = run(str(SAMPLE / "episodes" / EPISODE), *FEW, "--at", "02:11:30", "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 0, done.output
    assert re.search(r"page\.html, 0\.\d MB", done.stderr)
    heading, episode = contents
    assert (heading["truth"], "truth" in episode) == (False, False)
    assert episode["incident"]["moment"] == 33.0
    assert [suspect["service"] for suspect in episode["incident"]["suspects"]][:1] == ["reservation"]
    methods = [answer["method"] for answer in episode["answers"]]
    assert methods == ["trace-errors", "baro-change-point", "log-rate", "nsigma", "event-log", "loudest-log"]


def test_telemetry_files_are_imported_for_the_answer_alone(example_dataset, tmp_path):
    export_dataset("otlp-json", example_dataset, tmp_path / "files")
    folder = next(path for path in sorted((tmp_path / "files").iterdir()) if path.is_dir())
    methods = ["--methods", "tracerca", "--json"]
    whole = run(str(folder / "traces.jsonl"), str(folder / "logs.jsonl"), *methods, "--since", "15s")
    assert whole.exit_code == 0, whole.output
    end_ns = json.loads(whole.stdout)["window_ns"][1]
    start, end = (datetime.fromtimestamp(end_ns // 10**9 - before_s, UTC).isoformat() for before_s in (5, 0))
    incidents = tmp_path / "incidents.yaml"
    incidents.write_text(json.dumps({"incidents": [{"name": "mine", "start": start, "end": end}]}))
    named = run(str(folder), *methods, "--incidents", str(incidents), "--incident", "mine")
    assert named.exit_code == 0, named.output
    shown = json.loads(named.stdout)
    assert (shown["moment_from"], end_ns // 10**9 - shown["moment_ns"] // 10**9) == ("given", 5)
    assert run(str(folder), *methods, "--incidents", str(incidents), "--incident", "other").exit_code == 2


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A dataset with one recording."""
    write_chunks(RecordingWriter(tmp_path / "recorded", context()), [0, 1, 3], TRUTH)
    create_version(tmp_path / "recorded", provenance={})
    return tmp_path / "recorded"


def test_of_a_recording_the_minutes_around_a_time_are_read(recorded):
    moment = utc_text(at(1000))
    done = run(str(recorded), *FEW, "--at", moment, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["window_ns"] == [at(700), at(1120)]
    assert (shown["reference_ns"][1], shown["moment_ns"]) == (at(868), at(1000))
    named = run(str(recorded), *FEW, "--incident", "b", "--json")
    assert json.loads(named.stdout)["moment_ns"] == at(1000)
    for arguments, message in {
        (): "give the time of the incident with --at, or --incident",
        ("--incident", "z"): "must be the id of an incident",
        ("--incident", "b", "--at", moment): "leave out --episode and --at",
        ("--at", utc_text(at(1500))): "at least 10 s after the start of telemetry without a gap",
        ("--at", moment, "--episode", "r2"): "has no recording",
    }.items():
        assert message in run(str(recorded), *FEW, *arguments).output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((str(SAMPLE),), 2, "has 10 episodes"),
        ((str(SAMPLE), "--episode", "nothing"), 3, "no episode"),
        (
            (str(SAMPLE / "episodes" / EPISODE), "--episode", EPISODE),
            2,
            "--episode does not apply to the folder of one episode",
        ),
        ((str(SAMPLE), "--episode", EPISODE, "--at", "02:11", "--since", "5s"), 2, "--since cannot be combined"),
        ((str(SAMPLE), "--episode", EPISODE, "--since", "2h"), 2, "must be inside the telemetry"),
        (("no-such-folder",), 3, "no-such-folder must be an existing file or folder"),
    ],
)
def test_an_unclear_source_is_one_sentence(arguments, code, message):
    done = run(*arguments)
    assert (done.exit_code, done.output.count("\n")) == (code, 1)
    assert message in done.output
