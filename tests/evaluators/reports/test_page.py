"""What the report shows first, where it places things, and what it never leaves out."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

from faultset.evaluators.leaderboards.formats import markdown
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.scores import KIND_ORDER, score_episodes
from faultset.evaluators.reports import charts, episodes, scatter_plots
from faultset.evaluators.reports.charts import forest, systems, top_methods
from faultset.evaluators.reports.episodes import heat_maps
from faultset.evaluators.reports.page import render
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.registry import score_correctness

SECOND = 1_000_000_000
NOWHERE = Path("/nowhere")


def ranking(*names: str) -> dict[str, float]:
    return {name: float(len(names) - i) for i, name in enumerate(names)}


def page_of(rows: list[ResultRow], **options) -> str:
    return render(build_leaderboard(rows, **options), rows, [], NOWHERE)


def many_rows(make, episodes: int = 20, apps: tuple[str, ...] = ("shop",)) -> list[ResultRow]:
    rows = []
    for app, i in itertools.product(apps, range(episodes)):
        truth = make.truth(f"{app}{i}", app=app, fault=f"fault-{i % 15}", targets=("abcde"[i % 5],))
        rows += [make.row(truth, name, ranking=ranking("b", "a")) for name in ("one", "two")]
        rows += [make.row(truth, "max-z", kind="control", ranking=ranking("a", "b"))]
        rows += [make.detection(truth, range(65, 101), "hearing")]
    for app in apps:
        rows += [make.detection(make.healthy(f"{app}-h{i}", app=app), [50, 51] if i else [], "hearing") for i in (0, 1)]
    return rows


def test_a_failed_detector_is_wrong_in_the_report_too(make):
    broken = {"status": "error", "alarm_ns": None, "answer": {}, "task": "detection"}
    assert score_correctness(make.row(make.truth(), **broken)) == 0.0
    assert score_correctness(make.row(make.healthy(), **broken)) == 0.0


def test_finer_levels_are_in_the_report_where_the_truth_has_them(make):
    truth = make.truth(pod_causes=("b-1",))
    rows = [make.row(truth, ranking=ranking("b"), answer={"pods": {"b-1": 2.0, "b-2": 1.0}})]
    page = page_of(rows)
    assert "AC@1, pods" in page
    assert "AC@1, metrics" not in page
    assert "AC@1, pods" not in page_of([make.row(make.truth(), ranking=ranking("b"))])


def test_best_methods_named_ones_and_first_controls_are_shown_in_their_order():
    kinds = {f"m{i}": "method" for i in range(8)} | {"c0": "control", "old": "named", "c1": "control"}
    names = ["m0", "c0", *(f"m{i}" for i in range(1, 8)), "old", "c1"]
    shown, folded = top_methods(names, kinds, methods=3, controls=1)
    assert shown == ["m0", "c0", "m1", "m2", "old"]
    assert folded == ["m3", "m4", "m5", "m6", "m7", "c1"]
    assert top_methods(names[:5], kinds, methods=2, controls=1) == (names[:5], [])


def test_a_forest_plot_places_values_intervals_and_guessing(make):
    table = build_leaderboard(many_rows(make)).table("localization", "detected", app="shop")
    assert table is not None
    drawn = forest(table, "ac1")
    bar = next(bar for bar in drawn["shown"] if bar["name"] == "one")
    estimate = table.entries[0].metrics["ac1"]
    assert (bar["at"], bar["low"], bar["high"]) == (100.0, round(100 * estimate.low, 2), 100.0)
    assert drawn["floor"] == pytest.approx(20.0)


def test_systems_stand_side_by_side_with_all_of_them_last(make):
    board = build_leaderboard(many_rows(make, 4, ("x", "y", "z")))
    tables = [t for t in board.tables if t.task == "localization"]
    matrix = systems(tables)
    assert [app for app, _ in matrix["columns"]] == ["x", "y", "z", "all apps"]
    name, _, cells = matrix["shown"][0]
    assert (name, [cell["text"] for cell in cells]) == ("one", ["1.00"] * 5)
    page = page_of(many_rows(make, 4, ("x", "y", "z")))
    assert page.index("System by system") < page.index('id="localization-4"')


def test_the_trade_off_counts_false_alarms_per_hour(make):
    rows = many_rows(make)
    rows += [make.detection(row.truth, [], "deaf") for row in rows if row.baseline == "hearing"]
    board, scores = build_leaderboard(rows), score_episodes(rows)
    table = board.table("detection", "detected", app="shop")
    assert table is not None
    plane = scatter_plots.plot_tradeoff(scores, table)
    assert plane is not None
    places = {dot["label"]: (dot["x"], dot["y"]) for dot in plane["dots"]}
    # one alarm in two episodes that were watched for a minute each is the highest rate, and it hears all faults
    assert places == {"hearing": (95.0, 95.0), "deaf": (5.0, 5.0)}
    assert "30.0 false alarms per hour" in plane["dots"][0]["tip"]
    heights = [float(point.split(",")[1]) for point in plane["chance"].split()]
    assert heights == sorted(heights, reverse=True)
    # 30 alarms an hour at random find a fault of 40 s with probability 1 - exp(-1/3)
    assert heights[-1] == pytest.approx(100 - (5 + 90 * (1 - math.exp(-1 / 3))), abs=0.1)


def test_names_in_a_plane_cover_neither_points_nor_each_other():
    points = [(10.0 + 3 * i, 50.0 + (i % 3)) for i in range(25)]
    size = (540.0, 360.0)
    sides = scatter_plots._choose_sides(points, [f"method-{i}" for i in range(25)], size)
    assert 1 <= sum(map(bool, sides)) < 25
    assert scatter_plots._choose_sides([(50.0, 50.0), (50.5, 50.5)], ["a" * 100, "b"], size) == ["", "r"]


def test_names_beside_curves_are_moved_apart_and_stay_inside():
    placed = charts._spread_labels([100.0, 100.0, 0.0, 0.0, 50.0])
    gaps = [b - a for a, b in itertools.pairwise(sorted(placed))]
    assert min(gaps) > 5.3
    assert (min(placed), max(placed)) == (0.0, 100.0)


def test_curves_end_where_few_episodes_are_left(make):
    truths = [make.truth(f"e{i}") for i in range(5)]
    rows = [make.row(t, protocol="delayed", delay_s=d, ranking=ranking("b")) for t in truths for d in (0.0, 10.0)]
    rows += [make.row(truths[0], protocol="delayed", delay_s=20.0, ranking=ranking("a"))]
    (chart,) = charts.curve_charts(build_leaderboard(rows).curves)
    assert [(text, n) for _, text, n in chart["delays"]] == [("0", 5), ("10", 5)]
    assert chart["columns"] == ["0", "10", "20"]
    assert [text for _, text, _ in chart["rows"][0][2]] == ["1.00", "1.00", "0.00"]


def test_episodes_that_nobody_solves_come_first(make):
    easy, hard = make.truth("easy"), make.truth("hard", fault="leak")
    rows = [make.row(easy, ranking=ranking("b")), make.row(hard, ranking=ranking("a"))]
    rows += [make.row(hard, "last-change", kind="control", ranking=ranking("b"))]
    board, scores = build_leaderboard(rows), score_episodes(rows)
    first, second = episodes.episode_difficulties(board, scores)
    assert (first["episode"], first["unsolved"], second["unsolved"]) == ("hard", True, False)
    given_alarm = first["tasks"][1]
    assert given_alarm is not None
    assert (given_alarm["right"], given_alarm["run"], given_alarm["controls"]) == (0, 1, 1)
    assert [episode["headline"] for episode in (first, second)] == [True, True]
    assert '<b class="no">none</b>' in page_of(rows)


def test_all_parts_are_there_and_nothing_comes_from_elsewhere(make):
    rows = many_rows(make)
    answer = {"system_level": "Application", "fault_type": "Code Defect", "confidence": 1.0, "evidence": []}
    rows += [
        make.row(make.truth("shop1"), "naming", task="rca", needs=("labels",), answer=answer, majority_label=("A", "m"))
    ]
    page = page_of(rows, settings={"machine": {"processor": "abacus"}, "source": "here"}, digest="d" * 64)
    sections = re.findall(r'<h2 id="(\w+)"', page)
    parts = ["summary", "detection", "localization", "rca", "faults", "unsolved", "cost", "episodes"]
    assert sections == [*parts, "difficulty", "failures", "methods", "provenance"]
    assert "abacus" in page
    assert "d" * 64 in page
    assert "results.parquet" in page
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)


def test_the_report_links_to_the_explorer_in_place_of_drawings(make):
    rows = many_rows(make)
    page = render(build_leaderboard(rows), rows, [], Path("/data/my shop"), results=Path("/results"))
    assert "faultset dataset explore &#39;/data/my shop&#39; --results /results" in page
    assert "<polyline" not in page


def test_methods_that_see_the_source_of_the_labels_are_in_no_common_ranking(make):
    rows = many_rows(make)
    truths = {row.episode: row.truth for row in rows if row.truth.faulty}.values()
    rows += [make.row(truth, "seeing", needs=("sli",), ranking=ranking("b")) for truth in truths]
    rows += [
        make.row(truth, "seeing", needs=("sli",), protocol="delayed", delay_s=delay, ranking=ranking("b"))
        for truth in truths
        for delay in (0.0, 10.0)
    ]
    board, scores = build_leaderboard(rows), score_episodes(rows)
    maps = {name for heat in heat_maps(scores) for name, _, _ in (*heat["shown"], *heat["folded"])}
    solvers = episodes.episode_difficulties(board, scores)[0]["tasks"][1]
    assert {"one", "two", "hearing"} <= maps
    assert "seeing" not in maps
    assert solvers is not None
    assert solvers["first_names"] == "one, two"
    assert {miss.baseline for miss in board.misses} == {"one", "two", "max-z"}
    assert all("seeing" not in stratum.ac1 for stratum in board.strata)
    page = page_of(rows)
    assert "Ranked separately: methods that see more than telemetry (seeing)" in page
    assert "AC@1 by delay of the alarm" not in page
    assert "AC@1 by delay of the alarm" not in markdown(board)


def test_every_link_leads_somewhere(make):
    page = page_of(many_rows(make))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_every_kind_of_method_has_a_colour_of_its_own_and_stands_in_the_legend(make):
    page = page_of([make.row(make.truth(), kind=kind, baseline=kind, ranking=ranking("b")) for kind in KIND_ORDER])
    legend = page[page.index('<div class="legend">') : page.index("</div>", page.index('<div class="legend">'))]
    colours = set()
    for kind in KIND_ORDER:
        assert f".k-{kind} {{ color: var(--{kind}); }}" in page
        colours |= set(re.findall(rf"--{kind}: (#[0-9a-f]{{6}})", page)[:1])
        assert f'class="k-{kind}"' in legend
    assert len(colours) == len(KIND_ORDER)
