"""A campaign's file is read again whatever its number of episodes, or is not written."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest

from faultset.collector.apps import load_app
from faultset.collector.campaigns import records
from faultset.collector.campaigns.episode_queue import VoidAttempt
from faultset.collector.campaigns.output_folder import CAMPAIGNS
from faultset.collector.campaigns.records import (
    collector_code,
    count_void_attempts,
    read_campaign,
    record_failures,
    write_campaign,
)
from faultset.collector.cli.campaigns import read_config
from faultset.collector.cli.collect import collect
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.core.errors import DataError, FaultsetError
from faultset.datasets.testing import mutate, mutation_seeds

ROOT = Path(__file__).parents[3]
REQUEST = make_request(faults=["pod-kill"], apps=["hotel"], profile="quick")
CAMPAIGN = campaign_id(REQUEST)


def test_a_campaign_of_many_megabytes_is_read_again(tmp_path: Path) -> None:
    write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    record_failures(tmp_path, CAMPAIGN, {"e": "x" * (9 << 20)})
    assert len(read_campaign(tmp_path, CAMPAIGN)["failures"]["e"]) == 9 << 20


def test_void_attempts_of_all_runs_are_counted_apart_for_episodes_with_and_without_a_fault(tmp_path: Path) -> None:
    write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    void = VoidAttempt(episode="e", has_fault=True, attempt=1, cause="host too busy", reason="95 ms late")
    record_failures(tmp_path, CAMPAIGN, {}, [void])
    voids = record_failures(tmp_path, CAMPAIGN, {}, [replace(void, has_fault=False), replace(void, attempt=2)])
    assert len(read_campaign(tmp_path, CAMPAIGN)["void_attempts"]) == 3
    assert count_void_attempts(voids) == {"with a fault": {"host too busy": 2}, "without a fault": {"host too busy": 1}}


def test_the_code_of_every_package_that_shapes_an_episode_is_named_with_the_commit() -> None:
    code = collector_code()
    assert {"platforms", "runtime", "load", "verdicts"} <= code["packages"].keys()
    assert ("commit" in code) == (ROOT / ".git").exists()


def test_a_campaign_that_could_not_be_read_again_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIMIT_BYTES", 1000)
    with pytest.raises(DataError, match="Collect them in several campaigns, each with another --seed"):
        write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    assert not list(tmp_path.rglob("*.json"))


SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
CONFIG = b"faults: [target-port, pod-kill]\napps: hotel\nseed: 7\nprofile: quick\nhealthy: 50s\nnormal: 2\nrate: 20.5\n"
OPTIONS = [name.lstrip("-") for option in collect.params if isinstance(option, click.Option) for name in option.opts]
PLAN = b"""{"app": "hotel", "episode": "e1", "fault": "pod-kill", "mix": "m", "no_fault_kind": null,
"platform": "local", "phases": {"warmup_s": 5.0, "baseline_s": 40.0, "fault_s": 40, "cooldown_s": 5.0},
"profile": "quick", "seed": 3, "rate_rps": 20.0, "step_s": 1.0, "target": "geo"}"""


def check(whole: bytes, read: Callable[[bytes], object]) -> None:
    """Read mutations of a file; some of them must be refused."""
    read(whole)
    refused = 0
    for seed in mutation_seeds():
        said = ""
        try:
            read(mutate(whole, random.Random(seed)))
        except FaultsetError as error:
            refused += 1
            said = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed} ends in {type(error).__name__}: {error}") from error
        assert said.isprintable(), f"seed {seed}"
    assert refused


def test_a_changed_campaign_file_is_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        read_config(file, OPTIONS)

    check(CONFIG, read)


def test_a_changed_app_file_is_read_or_refused(tmp_path: Path, app_file: Path) -> None:
    file = tmp_path / "app.yaml"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        load_app(str(file))

    check(app_file.read_bytes(), read)


def test_a_changed_plan_is_read_or_refused() -> None:
    check(PLAN, lambda content: Plan.from_json(content.decode("utf-8", "replace")))


def test_the_changed_file_of_a_campaign_is_read_or_refused(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE / CAMPAIGNS, tmp_path / CAMPAIGNS)
    [file] = (tmp_path / CAMPAIGNS).iterdir()

    def read(content: bytes) -> None:
        file.write_bytes(content)
        read_campaign(tmp_path, file.stem)

    check(file.read_bytes(), read)


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    """A small application, of the kind that a user writes."""
    from faultset.collector.spec.files import format_spec

    file = tmp_path / "whole.yaml"
    file.write_text(format_spec(load_app("astronomy-shop")))
    return file
