"""The command `doctor --fault`: a fault tried in memory."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from faultset.collector.apps import load_app
from faultset.collector.cli.doctor import doctor
from faultset.collector.faults import registry
from faultset.collector.faults.registry import FaultSpec, faults


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
    assert "test_doctor.py, line " in done.output
    assert "Traceback" not in done.output
