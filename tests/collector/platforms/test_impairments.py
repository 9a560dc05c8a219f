"""Courses of faults: what the relay does at an instant and what the label says are the same."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.impairments import (
    COURSE_PARAMETERS,
    Abort,
    Course,
    Delay,
    Schedule,
    draw_course,
    encode_impairment,
    parse_course,
)
from faultset.collector.platforms.journal import Journal

SECOND = 1_000_000_000
BEGIN, END = 100 * SECOND, 145 * SECOND

COURSES = [
    Course(),
    Course(rise_s=12.5),
    Course(on_s=3.3, off_s=2.1),
    Course(rise_s=7.0, on_s=5.0, off_s=1.0),
    Course(delay_s=9.0),
]


@pytest.mark.parametrize("course", COURSES, ids=["constant", "gradual", "intermittent", "both", "delayed"])
def test_the_intervals_say_what_the_intensity_is_at_every_instant(course: Course) -> None:
    intervals = list(course.intervals(BEGIN, END))
    for number in range(4500):
        at_ns = BEGIN + number * SECOND // 100 + 123
        here = [one for one in intervals if one.begin_ns <= at_ns < one.end_ns]
        said = 0.0
        if here:
            (one,) = here
            done = (at_ns - one.begin_ns) / (one.end_ns - one.begin_ns)
            said = one.first_intensity + done * (one.last_intensity - one.first_intensity)
        assert said == pytest.approx(course.intensity_at((at_ns - BEGIN) / SECOND), abs=1e-6)


@pytest.mark.parametrize("course", COURSES)
def test_intervals_are_in_order_and_end_with_the_fault(course: Course) -> None:
    bounds = [bound for one in course.intervals(BEGIN, END) for bound in (one.begin_ns, one.end_ns)]
    assert bounds == sorted(bounds)
    assert bounds[0] == BEGIN + course.delay_s * SECOND
    assert bounds[-1] <= END


def test_the_share_of_requests_follows_the_course_that_the_parameters_say() -> None:
    parameters = {"pod": "geo-1", "share": 0.4, "on_s": 3.0, "off_s": 2.0}
    assert parse_course(parameters) == Course(on_s=3.0, off_s=2.0)
    rule = Abort(share=0.4, on_s=3.0, off_s=2.0)
    assert [rule.share_at(at_s) for at_s in (0.0, 2.9, 3.1, 5.1)] == [0.4, 0.4, 0.0, 0.4]


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_a_drawn_course_is_of_its_kind_and_fits_into_the_fault(schedule: Schedule) -> None:
    for seed in range(50):
        course = draw_course(schedule, 45.0, np.random.default_rng(seed))
        assert course == draw_course(schedule, 45.0, np.random.default_rng(seed))
        kinds = {"gradual": course.rise_s > 0, "intermittent": course.is_intermittent, "delayed": course.delay_s > 0}
        assert [kind for kind, is_so in kinds.items() if is_so] == [schedule] * (schedule != "constant")
        # the onset is up to a fifth of the baseline late, so that 36 s of 45 are certain
        assert max(course.rise_s, course.on_s + course.off_s, course.delay_s) < 36.0
        assert parse_course(course.as_parameters()) == course


@pytest.mark.parametrize(("name", "schedule"), [(n, s) for n, spec in faults().items() for s in spec.schedules])
def test_a_fault_that_can_change_over_time_impairs_and_labels_it_so(name: str, schedule: Schedule, tmp_path) -> None:
    spec, app = faults()[name], load_app("hotel")
    platform = FakePlatform(app, Journal(tmp_path / "journal.jsonl"))
    platform.deploy()
    course = draw_course(schedule, 45.0, np.random.default_rng(1))
    parameters = spec.inject_with(platform, spec.targets(app)[0], np.random.default_rng(2), course)
    assert parse_course(parameters) == course
    (impairment,) = platform.impairments.values()
    assert [impairment.intensity_at(at_s) for at_s in range(40)] == [course.intensity_at(at_s) for at_s in range(40)]


def test_without_a_schedule_faults_do_what_they_did_and_constant_ones_have_no_course(tmp_path) -> None:
    app = load_app("hotel")
    for name in ("network-delay", "network-loss", "network-partition", "bandwidth-limit", "network-jitter"):
        spec, platform = faults()[name], FakePlatform(app, Journal(tmp_path / f"{name}.jsonl"))
        platform.deploy()
        parameters = spec.inject_with(platform, spec.targets(app)[0], np.random.default_rng(2), None)
        assert not parameters.keys() & {*COURSE_PARAMETERS}
        assert parameters == spec.inject_with(platform, spec.targets(app)[0], np.random.default_rng(2), Course())


def test_what_does_not_change_is_not_written_down() -> None:
    assert encode_impairment(Delay(latency_s=0.2)) == {"kind": "delay", "latency_s": 0.2, "jitter_s": 0.0}
    assert encode_impairment(Delay(latency_s=0.2, rise_s=9.0))["rise_s"] == 9.0
