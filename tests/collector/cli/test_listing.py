"""What `faultset list` prints fits into a terminal of 100 columns, and JSON has the rest."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from faultset.core.console import root


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
