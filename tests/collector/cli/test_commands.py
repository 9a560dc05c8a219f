"""Short commands: doctor, recover, list, record, and Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.apps import load_app
from faultset.collector.cli.cluster import interrupts, raised_interrupts
from faultset.collector.cli.doctor import doctor
from faultset.collector.cli.record import record
from faultset.collector.cli.recover import recover
from faultset.collector.faults import registry
from faultset.collector.faults.registry import FaultSpec, faults
from faultset.core.console import root


def test_a_fault_is_tried_on_every_target_without_touching_anything() -> None:
    done = CliRunner().invoke(doctor, ["--fault", "target-port", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["target"] for row in rows] == list(faults()["target-port"].targets(load_app("hotel")))
    assert all("points to port" in row["evidence"] and row["calls"] for row in rows)


def test_a_fault_without_a_target_there_is_one_sentence() -> None:
    done = CliRunner().invoke(doctor, ["--fault", "revoke-auth", "--app", "astronomy-shop"])
    assert done.exit_code == 2
    assert "choose another application with --app" in done.output


def test_an_error_in_a_fault_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(platform, target, rng):
        raise KeyError("port")

    spec = FaultSpec(**{**vars(faults()["target-port"]), "name": "broken", "inject": broken})
    monkeypatch.setitem(registry._faults, "broken", spec)
    done = CliRunner().invoke(doctor, ["--fault", "broken"])
    assert done.exit_code == 2
    assert "the function of fault broken on " in done.output
    assert "test_commands.py, line " in done.output
    assert "Traceback" not in done.output


def test_recover_may_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        done = CliRunner().invoke(recover, ["--out", str(tmp_path)])
        assert done.exit_code == 0
        assert "nothing to remove" in done.output


def test_a_named_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(recover, ["--out", str(tmp_path / "daat")])
    assert done.exit_code == 3
    assert f"folder {tmp_path / 'daat'} does not exist; give a dataset with --out" in done.stderr


def test_a_default_folder_that_is_not_there_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(recover, []).exit_code == 0


def printed(*words: str) -> str:
    done = CliRunner().invoke(root, ["list", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "apps",
        "faults",
        "baselines",
        "faults --app hotel",
        "faults --app social",
        "faults --app astronomy-shop",
        "faults --app tidb",
    ],
)
def test_a_table_is_no_wider_than_100_columns(words: str) -> None:
    lines = [line.rstrip() for line in printed(*words.split()).splitlines()]
    assert len(lines) > 3
    assert max(map(len, lines)) <= 100


def test_faults_are_shown_with_their_labels_or_with_their_targets_in_one_application() -> None:
    assert "Authentication Issue" in printed("faults")
    assert "mongodb-geo, mongodb-rate" in printed("faults", "--app", "hotel")
    with_labels, with_targets = (
        json.loads(printed("faults", "--json")),
        json.loads(printed("faults", "--app", "hotel", "--json")),
    )
    assert {row["fault"]: row.get("targets") for row in with_labels} == dict.fromkeys(
        row["fault"] for row in with_targets
    )
    assert {row["fault"]: row["targets"] for row in with_targets}["revoke-auth"] == ["mongodb-geo", "mongodb-rate"]


def test_the_services_of_an_application_are_counted_in_the_table_and_named_in_json() -> None:
    (hotel,) = [line.split() for line in printed("apps").splitlines() if line.startswith("hotel ")]
    (named,) = [app["services"] for app in json.loads(printed("apps", "--json")) if app["app"] == "hotel"]
    assert int(hotel[1]) == len(named) == 18
    assert "mongodb-rate" in named


SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
WINDOW = ["--from", "2026-01-01T10:00:00Z", "--to", "2026-01-01T11:00:00Z"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*WINDOW, "--jaeger", "http://a", "--tempo", "http://b"], "--jaeger and --tempo cannot be combined"),
        (["--from", "yesterday", "--to", "2026-01-01T11:00:00Z"], "--from must be a time such as"),
        (["--from", "2026-01-01T11:00:00Z", "--to", "2026-01-01T10:00:00Z"], "--to must be after --from"),
        (["--from", "2026-01-01T11:00:00Z", "--to", "2999-01-01T10:00:00Z"], "in the future"),
        (WINDOW, "nothing to record from"),
        ([*WINDOW, "--loki", "loki:3100"], "--loki must be a URL"),
        ([*WINDOW, "--loki", "http://127.0.0.1:1", "--roles", "cpus"], "cpus"),
        ([*WINDOW, "--loki", "http://127.0.0.1:1", "--at", "soon"], "--at must be a time such as"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(record, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_never_overwritten() -> None:
    result = CliRunner().invoke(record, [*WINDOW, "--loki", "http://127.0.0.1:1", "--out", str(SAMPLE)])
    assert result.exit_code == 2
    assert "already holds a dataset" in result.output


NUMBERS = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in NUMBERS]


def test_signals_are_collected_and_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = handlers()
    with interrupts() as received:
        for number in NUMBERS:
            signal.raise_signal(number)
    assert received == list(NUMBERS)
    assert capsys.readouterr().err.count("stopping") == 1
    assert handlers() == before


def test_sigterm_interrupts_as_the_keyboard_does() -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), raised_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert handlers() == before
