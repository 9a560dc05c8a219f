"""A function is a localizer: it is run as a registered class is, without a registration."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from faultset.baselines import Ranking
from faultset.core.errors import UsageError
from faultset.core.landlock import landlock_version
from faultset.evaluators import evaluate

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md"


@pytest.fixture(scope="module", autouse=True)
def _functions_travel_by_value() -> Iterator[None]:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def by_name(episode: Any, alarm: int) -> dict[str, float]:
    """Suspect services by where their names are in the alphabet."""
    return {service: float(ord(service[0])) for service in episode.services}


def looks_at_the_truth(episode: Any, alarm: int) -> dict[str, float]:
    folder = Path(episode._folder)
    return dict.fromkeys(episode.services, float(len((folder / "truth" / "label.parquet").read_bytes())))


def test_functions_and_lambdas_are_scored_beside_registered_methods(example_dataset: Path) -> None:
    methods = {
        "mine": by_name,
        "short": lambda episode, alarm: dict.fromkeys(episode.services[:1], 1.0),
        "ranked": lambda episode, alarm: Ranking.of({episode.services[0]: 1.0}, episode.services),
        "wrong": lambda episode, alarm: [1, 2],
    }
    done = evaluate(example_dataset, methods, protocol="oracle", workers=1)
    outcomes = {row.baseline: (row.status, row.reason) for row in done.rows}
    wrong = outcomes.pop("wrong")
    assert outcomes == dict.fromkeys(("mine", "short", "ranked"), ("ok", ""))
    assert wrong == ("invalid", "scores must map services to numbers, got list")
    answers = {name: [row.ranking for row in done.rows if row.baseline == name] for name in ("short", "ranked")}
    assert answers["short"] == answers["ranked"]
    mixed = evaluate(example_dataset, ["random", by_name], protocol="oracle", workers=1)
    assert {entry.baseline for table in mixed.tables for entry in table.entries} == {"random", "by_name"}
    codes = {row.method_code for row in done.rows if row.baseline in ("mine", "short")}
    assert not any(code.startswith("faultset ") for code in codes)


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_function_cannot_read_the_truth(example_dataset: Path) -> None:
    done = evaluate(example_dataset, [looks_at_the_truth], protocol="oracle", workers=1)
    assert {row.status for row in done.rows} == {"error"}
    assert all(row.reason.startswith("PermissionError") for row in done.rows)


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        ([lambda episode, alarm: {}], "a lambda has no name"),
        ({"mine": lambda episode: {}}, 'the function "mine" must take two arguments'),
        ({"max-z": by_name}, 'the name "max-z" belongs to a baseline'),
        ({"mine": "max-z"}, "a method must be a function"),
        ([42], "a method must be a function"),
        ([dict], "is not a baseline"),
    ],
)
def test_what_is_no_method_is_refused_in_one_sentence(example_dataset: Path, methods: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        evaluate(example_dataset, methods)


def test_the_example_of_the_page_runs(example_dataset: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "error_lines" in block]
    assert "datasets/sample" in code
    script = tmp_path / "mine.py"
    script.write_text(code.replace("datasets/sample", str(example_dataset)))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "error_lines" in done.stdout
    assert "random" in done.stdout
