"""Courses of faults: what the relay does at an instant and what the label says are the same."""

from __future__ import annotations

import pytest

from faultset.collector.faults.registry import faults
from faultset.collector.platforms.api.courses import COURSE_PARAMETERS, Course, course_of
from faultset.collector.platforms.api.impairments import Abort

SECOND = 1_000_000_000
BEGIN, END = 100 * SECOND, 145 * SECOND

COURSES = [Course(), Course(rise_s=12.5), Course(on_s=3.3, off_s=2.1), Course(rise_s=7.0, on_s=5.0, off_s=1.0)]


@pytest.mark.parametrize("course", COURSES, ids=["constant", "gradual", "intermittent", "both"])
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
    assert (bounds[0], max(bounds) <= END) == (BEGIN, True)


def test_the_share_of_requests_follows_the_course_that_the_parameters_say() -> None:
    parameters = {"pod": "geo-1", "share": 0.4, "on_s": 3.0, "off_s": 2.0}
    assert course_of(parameters) == Course(on_s=3.0, off_s=2.0)
    rule = Abort(share=0.4, on_s=3.0, off_s=2.0)
    assert [rule.share_at(at_s) for at_s in (0.0, 2.9, 3.1, 5.1)] == [0.4, 0.4, 0.0, 0.4]


def test_only_faults_that_say_so_have_parameters_of_a_course() -> None:
    names = {name for name, spec in faults().items() if spec.has_course}
    assert {"http-abort", "connection-reset", "slow-answers"} <= names
    assert COURSE_PARAMETERS == ("rise_s", "on_s", "off_s")
