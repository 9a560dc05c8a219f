"""CPU limits, without a clock."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.local.node.resource_usage import PERIOD_S, Quota


class Busy:
    """A container that uses `cores` whenever it may; time passes in steps of a millisecond."""

    def __init__(self, limit, *, cores=1.0, machine=4):
        self.quota = Quota(limit=limit, cores=machine)
        self.cores, self.now, self.used = cores, 0.0, 0.0
        self.quota.begin(self.now, self.used)

    def run(self, seconds):
        next_period = self.now + PERIOD_S
        for _ in range(round(seconds * 1000)):
            self.now += 0.001
            if not self.quota.stopped:
                self.used += 0.001 * self.cores
            if self.now >= next_period - 1e-9:
                self.quota.begin(self.now, self.used)
                next_period += PERIOD_S
            else:
                self.quota.check(self.now, self.used)


@pytest.mark.parametrize(("limit", "cores"), [(0.05, 1.0), (0.2, 1.0), (0.5, 1.0), (1.0, 3.0)])
def test_a_busy_container_gets_its_limit_and_no_more(limit, cores):
    busy = Busy(limit, cores=cores)
    busy.run(10)
    assert busy.used / 10 == pytest.approx(limit, rel=0.05)


def test_every_period_of_a_busy_container_is_throttled():
    busy = Busy(0.2)
    busy.run(10)
    assert busy.quota.throttled_periods / busy.quota.periods > 0.95
    assert busy.quota.throttled_so_far(busy.now) == pytest.approx(8.0, rel=0.05)


def test_a_container_below_its_limit_is_never_stopped():
    busy = Busy(0.5, cores=0.3)
    busy.run(5)
    assert busy.used == pytest.approx(1.5, rel=0.01)
    assert (busy.quota.throttled_periods, busy.quota.throttled_s) == (0, 0.0)
    assert busy.quota.periods == 50


def test_a_limit_that_the_machine_cannot_exceed_costs_no_checks():
    quota = Quota(limit=4.0, cores=4)
    for period in range(5):
        quota.begin(period * PERIOD_S, period * 0.4)
    assert quota.next_check_s(2.0) is None
    assert quota.periods == 4


def test_an_idle_container_is_not_watched():
    quota = Quota(limit=0.5, cores=4)
    quota.begin(0.0, 0.0)
    quota.begin(0.1, 0.001)
    assert not quota.hot
    assert quota.next_check_s(0.001) is None


def test_idle_periods_are_not_counted():
    quota = Quota(limit=0.5, cores=4)
    for period in range(5):
        quota.begin(period * PERIOD_S, 0.02 if period >= 2 else 0.0)
    assert quota.periods == 1


def test_removing_the_limit_continues_a_stopped_container():
    busy = Busy(0.1)
    busy.run(0.35)
    assert busy.quota.stopped
    busy.quota.limit = None
    assert busy.quota.begin(busy.now, busy.used) is False
    assert not busy.quota.stopped


def test_what_was_used_too_much_is_taken_from_the_next_periods():
    quota = Quota(limit=0.1, cores=4)
    quota.begin(0.0, 0.0)
    assert quota.begin(0.1, 0.035) is True
    assert quota.begin(0.2, 0.035) is None
    assert quota.begin(0.3, 0.035) is False
