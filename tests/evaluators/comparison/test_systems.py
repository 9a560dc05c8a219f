"""Several systems in one table: ranks, who is near the best, and what was not run."""

from __future__ import annotations

import pytest

from faultset.evaluators.comparison.systems import compare_systems, format_systems


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
