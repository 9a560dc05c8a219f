"""A condition holds where it says, and gates a build by the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.errors import UsageError
from faultset.evaluators.cli.compare import compare as compare_command
from faultset.evaluators.comparison.conditions import Condition, find_violations
from faultset.evaluators.comparison.pairing import compare
from faultset.evaluators.leaderboards.formats import write_json
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.results.rows import write_rows

RIGHT, WRONG = {"b": 2.0, "a": 1.0}, {"a": 2.0, "b": 1.0}


@pytest.fixture
def folders(make, tmp_path: Path) -> tuple[Path, Path]:
    """Results before and after `worse` lost six of eight answers, `better` won one, and `same` none."""
    answers = {
        "old": {"worse": [RIGHT] * 8, "better": [WRONG] * 8, "same": [RIGHT] * 8},
        "new": {"worse": [WRONG] * 6 + [RIGHT] * 2, "better": [RIGHT] + [WRONG] * 7, "same": [RIGHT] * 8},
    }
    for name, of in answers.items():
        rows = [
            make.row(make.truth(f"e{i}", fault=f"fault-{i}"), method, ranking=ranking)
            for method, rankings in of.items()
            for i, ranking in enumerate(rankings)
        ]
        (tmp_path / name).mkdir()
        write_rows(rows, tmp_path / name / "results.parquet")
        write_json(build_leaderboard(rows), tmp_path / name / "leaderboard.json")
    return tmp_path / "old", tmp_path / "new"


@pytest.mark.parametrize(
    ("text", "methods"),
    [
        ("ac@1 drops", ["worse"]),
        ("AC@1 drops by 0.75", ["worse"]),
        ("ac1 drops by 0.76", []),
        ("ac1 rises", ["better"]),
        ("ac1 rises by 0.2", []),
        ("ac1 drops for same", []),
        ("ac1 drops by 0.1 for worse", ["worse"]),
        ("avg@5 drops", ["worse"]),
    ],
)
def test_a_condition_holds_for_the_methods_that_changed_so(folders, text: str, methods: list[str]):
    sentences = find_violations(compare(*folders), [Condition.parse(text)])
    assert [sentence.split(" of ")[1].split()[0] for sentence in sentences] == methods


def test_only_significant_differences_count_where_that_is_wanted(folders):
    comparison = compare(*folders)
    drop, rise = Condition.parse("ac1 drops"), Condition.parse("ac1 rises")
    assert len(find_violations(comparison, [drop, rise])) == 2
    assert find_violations(comparison, [rise], significance=0.05) == []
    (entry,) = [entry for entry in comparison.tables[0].entries if entry.baseline == "worse"]
    assert bool(find_violations(comparison, [drop], significance=entry.adjusted_p + 0.01))
    assert not find_violations(comparison, [drop], significance=entry.adjusted_p)
    with pytest.raises(UsageError, match="but avg5 is not; choose from ac1"):
        find_violations(comparison, [Condition.parse("avg@5 drops")], significance=0.05)


@pytest.mark.parametrize(
    "text", ["", "ac1", "ac1 falls", "ac1 drops by", "ac1 drops by x", "ac1 drops by -1", "ac1 drops by nan"]
)
def test_what_is_no_condition_is_refused(text: str):
    with pytest.raises(UsageError, match=r"must have the form METRIC drops|must be a number of at least 0"):
        Condition.parse(text)


@pytest.mark.parametrize("text", ["ac2 drops", "ac1 drops for nobody"])
def test_what_is_not_compared_cannot_be_a_condition(folders, text: str):
    with pytest.raises(UsageError, match=r"did you mean|choose from|known"):
        find_violations(compare(*folders), [Condition.parse(text)])


@pytest.mark.parametrize(("text", "code"), [("ac@1 drops", 1), ("ac@1 drops for same", 0), ("ac@1 falls", 2)])
def test_the_command_ends_with_the_code_of_its_condition(folders, text: str, code: int):
    done = CliRunner().invoke(compare_command, [*map(str, folders), "--fail-on", text], standalone_mode=True)
    assert done.exit_code == code, done.output
    assert ("Condition met: AC@1 of worse dropped by 0.75, from 1 to 0.25" in done.stderr) == (code == 1)


def test_results_are_found_in_the_folder_of_their_dataset(folders, tmp_path: Path):
    old, new = folders
    (tmp_path / "results").mkdir()
    new.rename(tmp_path / "results" / "data")
    assert compare(old, tmp_path / "results").episodes == 8
    old.rename(tmp_path / "results" / "other")
    with pytest.raises(UsageError, match=r"must have one results.parquet, but has 2 \(data, other\)"):
        compare(tmp_path / "results" / "other", tmp_path / "results")
