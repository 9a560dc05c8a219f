"""Two runs side by side: what is paired, what is tested, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultset.core.errors import UsageError
from faultset.evaluators.cli.compare import compare as compare_command
from faultset.evaluators.comparison.formats import markdown
from faultset.evaluators.comparison.pairing import compare
from faultset.evaluators.comparison.runs import read_run
from faultset.evaluators.comparison.systems import compare_systems, format_systems
from faultset.evaluators.leaderboards.formats import write_json
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.results.rows import ResultRow, write_rows

RIGHT, WRONG = {"b": 2.0, "a": 1.0}, {"a": 2.0, "b": 1.0}


def stored(rows: list[ResultRow], folder: Path, digest: str = "d" * 64, **settings) -> Path:
    folder.mkdir()
    write_rows(rows, folder / "results.parquet")
    write_json(build_leaderboard(rows, digest=digest, settings=settings), folder / "leaderboard.json")
    return folder


def load_run(make, answers: list[dict[str, float]], baseline: str = "method", **changes) -> list[ResultRow]:
    return [
        make.row(make.truth(f"e{i}", fault=f"fault-{i}"), baseline, ranking=answer, **changes)
        for i, answer in enumerate(answers)
    ]


def compared(old: list[ResultRow], new: list[ResultRow], tmp_path: Path, **settings):
    return compare(read_run(stored(old, tmp_path / "old")), read_run(stored(new, tmp_path / "new", **settings)))


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(compare_command, [str(argument) for argument in arguments])


def test_six_wins_of_six_have_the_exact_p_of_two_in_sixty_four(make, tmp_path: Path):
    comparison = compared(load_run(make, [WRONG] * 6), load_run(make, [RIGHT] * 6), tmp_path)
    (table,) = comparison.tables
    (entry,) = table.entries
    assert entry.differences["ac1"].value == 1.0
    assert entry.paired.test.p == entry.paired.mcnemar.p == entry.adjusted_p == 2 / 64
    assert (len(entry.better), entry.worse, entry.same_answers) == (6, (), 0)
    assert comparison.changes == ()


def test_a_method_that_never_differs_has_no_interval_but_counts_as_a_comparison(make, tmp_path: Path):
    same = load_run(make, [RIGHT] * 6, "steady")
    comparison = compared(load_run(make, [WRONG] * 6) + same, load_run(make, [RIGHT] * 6) + same, tmp_path)
    first, second = comparison.tables[0].entries
    assert (first.baseline, first.adjusted_p) == ("method", 4 / 64)
    assert (second.baseline, second.differences["ac1"].value, second.same_answers) == ("steady", 0.0, 6)
    assert not second.differences["ac1"].interval_known


def test_below_six_clusters_nothing_is_claimed(make, tmp_path: Path):
    comparison = compared(load_run(make, [WRONG] * 5), load_run(make, [RIGHT] * 5), tmp_path)
    assert "5 clusters; a test needs 6" in markdown(comparison)


def test_detection_is_paired_over_fault_and_no_fault_episodes(make, tmp_path: Path):
    fault, calm = make.truth("e1"), make.healthy("h1")
    old = [make.detection(fault, []), make.detection(calm, [])]
    new = [make.detection(fault, range(65, 101)), make.detection(calm, [50, 51])]
    (entry,) = compared(old, new, tmp_path).tables[0].entries
    assert {name: estimate.value for name, estimate in entry.differences.items()} == {
        "timed_balanced_accuracy": 0.0,
        "detected": 1.0,
        "no_false_alarm": -1.0,
    }
    assert (entry.better, entry.worse) == (("e1",), ("h1",))


def test_detection_is_tested_in_what_detectors_rank_by(make, tmp_path: Path):
    faults = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(9)]
    calm = make.healthy("h1")
    old = [make.detection(fault, []) for fault in faults] + [make.detection(calm, [])]
    new = [make.detection(fault, range(65, 101)) for fault in faults[:6]]
    new += [make.detection(fault, []) for fault in faults[6:]] + [make.detection(calm, [50, 51])]
    table = compared(old, new, tmp_path).tables[0]
    (entry,) = table.entries
    # 6 faults more and 1 no-fault episode less: more answers are right, but balanced it is a loss
    assert table.measures[0].name == "timed_balanced_accuracy"
    assert (entry.old["timed_balanced_accuracy"], entry.new["timed_balanced_accuracy"]) == (0.5, pytest.approx(1 / 3))
    assert entry.paired.difference.value == pytest.approx((6 / 9 - 1) / 2)


def test_what_is_in_one_run_only_or_labelled_otherwise_is_named_and_not_paired(make, tmp_path: Path):
    old = load_run(make, [WRONG] * 3) + load_run(make, [RIGHT] * 3, "gone")
    new = [*load_run(make, [RIGHT] * 2), make.row(make.truth("e2", causes=(("c",),), targets=("c",)), ranking=RIGHT)]
    new += [make.row(make.truth("e7"), name, ranking=RIGHT) for name in ("method", "fresh")]
    comparison = compared(old, new, tmp_path)
    assert (comparison.only_old_methods, comparison.only_new_methods) == (("gone",), ("fresh",))
    assert (comparison.only_old_episodes, comparison.only_new_episodes) == ((), ("e7",))
    assert (comparison.other_truth, comparison.episodes) == (("e2",), 2)
    assert comparison.tables[0].entries[0].episodes == 2


def test_latent_faults_are_left_out(make, tmp_path: Path):
    latent = [make.row(make.truth("x", verdict="latent"), ranking=r) for r in (WRONG, RIGHT)]
    sides = [[*load_run(make, [RIGHT] * 2), row] for row in latent]
    (entry,) = compared(sides[0], sides[1], tmp_path).tables[0].entries
    assert (entry.episodes, entry.changed) == (2, False)


def test_changes_of_data_code_libraries_seeds_and_settings_are_listed(make, tmp_path: Path):
    old = load_run(make, [RIGHT] * 2, code="1", libraries='{"numpy":"1"}')
    new = load_run(make, [RIGHT] * 2, code="2", libraries='{"numpy":"2"}', version="1.1.0", seed=1, settings="f")
    changes = compared(old, new, tmp_path, digest="e" * 64, timeout_s=9.0).changes
    assert [(c.category, c.what) for c in changes] == [
        ("data", "dataset version"),
        ("data", "sha256 of the version"),
        ("code", "code version"),
        ("code", "numpy"),
        ("code", "settings of method"),
        ("setting", "seeds"),
        ("setting", "timeout s"),
    ]


def test_applications_come_before_all_of_them(make, tmp_path: Path):
    sides = [[make.row(make.truth(app, app=app), ranking=answer) for app in ("x", "y")] for answer in (WRONG, RIGHT)]
    assert [table.app for table in compared(sides[0], sides[1], tmp_path).tables] == ["x", "y", "all apps"]


def test_nonsense_is_refused_in_one_sentence(make, tmp_path: Path):
    first = stored(load_run(make, [RIGHT]), tmp_path / "one")
    other = stored([make.row(make.truth("z"), ranking=RIGHT)], tmp_path / "other")
    else_ = stored(load_run(make, [RIGHT], "somebody"), tmp_path / "else")
    (tmp_path / "empty").mkdir()
    messages = {
        (first, first): "the two runs must differ",
        (first, other): "have no episode in common",
        (first, else_): "have no method with the same input in common",
        (first, tmp_path / "empty"): "has no results",
    }
    for pair, words in messages.items():
        result = invoke(*pair)
        assert (result.exit_code, words in result.stderr, result.stderr.count("\n")) == (2, True, 1), result.stderr
    (other / "leaderboard.json").write_text("{")
    assert invoke(first, other).exit_code == 3
    with pytest.raises(UsageError, match="labels of all"):
        compare(
            read_run(first),
            read_run(stored([make.row(make.truth("e0", fault="another"), ranking=RIGHT)], tmp_path / "labels")),
        )


def test_the_command_prints_and_writes_text_json_and_a_page(make, tmp_path: Path):
    old = stored(load_run(make, [WRONG] * 6), tmp_path / "old")
    new = stored(load_run(make, [RIGHT] * 6, code="<i>2</i>"), tmp_path / "new")
    result = invoke(old, new)
    assert result.exit_code == 0, result.output
    assert "+1.00" in result.stdout
    assert "p=0.031" in result.stdout
    page = (new / "comparison.html").read_text()
    assert "&lt;i&gt;2&lt;/i&gt;" in page
    assert "<script" not in page
    assert "+1.00" in (new / "comparison.md").read_text()
    content = json.loads((new / "comparison.json").read_text())
    assert content["tables"][0]["entries"][0]["differences"]["ac1"]["value"] == 1.0
    elsewhere = invoke(old, new, "--out", tmp_path / "out", "--json")
    assert json.loads(elsewhere.stdout)["episodes"] == 6
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "comparison.json",
        "comparison.md",
        "comparison.html",
    }


def rows_of(make, method: str, right: int, *, kind: str = "method", faults: int = 8) -> list:
    truths = [make.truth(f"e{i}", targets=(f"t{i}",), causes=(("a",),)) for i in range(faults)]
    return [
        make.row(truth, method, kind=kind, protocol="oracle", ranking={"a" if i < right else "b": 1.0})
        for i, truth in enumerate(truths)
    ]


def test_methods_are_ordered_by_mean_rank_over_systems(make):
    first = [*rows_of(make, "good", 8), *rows_of(make, "middle", 7), *rows_of(make, "rule", 0, kind="control")]
    second = [*rows_of(make, "good", 6), *rows_of(make, "middle", 6), *rows_of(make, "rule", 8, kind="control")]
    table = compare_systems({"one": first, "two": second})
    by_name = {row.baseline: row for row in table.rows}
    assert [row.baseline for row in table.rows] == ["good", "rule", "middle"]
    assert by_name["good"].ranks == {"one": 1.0, "two": 2.5}
    assert by_name["middle"].ranks == {"one": 2.0, "two": 2.5}
    assert by_name["good"].beats_control == {"one"}
    assert by_name["rule"].beats_control == frozenset()
    # 7 of 8 lies within the interval of 8 of 8, and 0 of 8 does not
    assert (by_name["middle"].near_best, by_name["rule"].near_best) == ({"one", "two"}, {"two"})
    assert [column.best for column in table.columns] == ["good", "rule"]


@pytest.mark.parametrize("faults", [8, 24])
def test_methods_that_are_never_right_are_all_as_good_as_the_best(make, faults):
    table = compare_systems({"one": [*rows_of(make, "a", 0, faults=faults), *rows_of(make, "b", 0, faults=faults)]})
    assert [row.near_best for row in table.rows] == [{"one"}, {"one"}]


def test_a_method_that_was_not_run_everywhere_comes_last_and_says_so(make):
    table = compare_systems({"one": [*rows_of(make, "a", 2), *rows_of(make, "b", 8)], "two": rows_of(make, "a", 8)})
    assert [row.baseline for row in table.rows] == ["a", "b"]
    text = format_systems(table)
    assert "| `b` | method | 100 [68, 100] | - | 1.0 (1 systems) | 1 of 1 | 0 of 1 |" in text


def test_without_such_a_table_it_is_refused(make):
    with pytest.raises(ValueError, match="no evaluation has a table of localization with protocol detected"):
        compare_systems({"one": rows_of(make, "a", 2)}, protocol="detected")
