"""Load patterns and recorded rates."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from faultset.collector.load.patterns import (
    KINDS,
    REPLAY,
    STEP_S,
    Arrivals,
    LoadPattern,
    multipliers,
    parse_pattern,
    read_rates,
)
from faultset.collector.load.traffic import Traffic, parse_regions
from faultset.core.errors import UsageError

DRAWN = [name for name in KINDS if name != REPLAY]
STEADY_ON_AVERAGE = ("bursty", "daily", "ramp")


def curve(text: str, seed: int, horizon_s: float = 360.0, length_s: float = 360.0) -> np.ndarray:
    pattern = replace(parse_pattern(text), horizon_s=horizon_s)
    return np.array(list(islice(multipliers(pattern, seed), int(length_s / STEP_S))))


def arrivals(pattern: LoadPattern, seed: int, rate_rps: float, length_s: float) -> np.ndarray:
    made, gaps, times = Arrivals(pattern, seed), np.random.default_rng(seed), []
    while made.elapsed_s < length_s:
        made.after(float(gaps.exponential()), rate_rps)
        times.append(made.elapsed_s)
    return np.array(times[:-1])


@pytest.mark.parametrize("name", DRAWN)
def test_a_curve_is_the_same_for_a_seed_and_never_below_its_least_share(name: str) -> None:
    pattern = replace(parse_pattern(name), horizon_s=360.0)
    assert (curve(name, 4) == curve(name, 4)).all()
    least = min(curve(name, seed).min() for seed in range(5))
    assert least >= pattern.min_share - 1e-9


@pytest.mark.parametrize("name", STEADY_ON_AVERAGE)
def test_the_mean_rate_is_what_was_asked_for(name: str) -> None:
    assert np.mean([curve(name, seed).mean() for seed in range(40)]) == pytest.approx(1.0, abs=0.06)


def test_bursts_are_overdispersed_and_a_constant_load_is_poisson() -> None:
    def dispersion(text: str) -> float:
        pattern = replace(parse_pattern(text), horizon_s=600.0)
        counts = [np.histogram(arrivals(pattern, seed, 20, 600), np.arange(0, 601, 5))[0] for seed in range(3)]
        return float(np.mean([part.var() / part.mean() for part in counts]))

    assert dispersion("constant") == pytest.approx(1, abs=0.35)
    assert dispersion("bursty") > 4


def test_a_flash_crowd_comes_once_and_goes() -> None:
    drawn = curve("flash-crowd:factor=4,decay_s=10", 2, length_s=600)
    assert drawn[0] == 1
    assert 3 < drawn.max() <= 4
    assert drawn[-1] < 1.1


def test_a_ramp_goes_from_first_to_last() -> None:
    drawn = curve("ramp:first=0.5,last=2", 0, horizon_s=100, length_s=200)
    assert drawn[0] == 0.5
    assert drawn[-1] == 2
    assert (np.diff(drawn) >= 0).all()


def test_a_recorded_rate_is_replayed_and_begins_again(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("time_s,rate_rps\n100,10\n110,30\n120,20\n")
    found = read_rates(file)
    assert found.mean_rps == pytest.approx(20)
    pattern = parse_pattern(f"replay:{file}")
    counts = np.histogram(arrivals(pattern, 1, found.mean_rps, 3000), np.arange(0, 3001, 10))[0].reshape(-1, 3)
    assert counts.mean(axis=0) == pytest.approx([100, 300, 200], rel=0.05)
    assert pattern.min_share == pytest.approx(0.5)


def test_traffic_survives_its_way_to_the_load() -> None:
    traffic = Traffic(pattern=parse_pattern("bursty:burst=3"), regions=parse_regions("eu=0.6:20ms,us=0.4:90ms"))
    assert Traffic.from_json(traffic.to_json()) == traffic
    assert traffic.name == "bursty:burst=3 from eu+us"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brusty", 'unknown load "brusty"; did you mean "bursty"?'),
        ("bursty:burst=-1", "parameter burst of load bursty must be from 1 to 20, but is -1"),
        ("bursty:burst=inf", "must be from 1 to 20, but is inf"),
        ("bursty:burst=nan", "must be from 1 to 20, but is nan"),
        ("bursty:burst", "must be from 1 to 20, but is empty"),
        ("bursty:bursts=2", 'unknown parameter of load bursty "bursts"'),
        ("bursty:burst=2,burst=3", "given twice"),
        ("constant:rate=3", "load constant has no parameters"),
        ("replay", "needs a file with rates"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pattern(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "must have exactly one column time_s, but its first line is empty"),
        ("time_s,rps\n0,1\n", "must have exactly one column rate_rps, but its first line is time_s, rps"),
        ("time_s,rate_rps\n0,1\n", "at least two rates, but has 1"),
        ("time_s,rate_rps\n0,1\n1,-3\n", "line 3 of"),
        ("time_s,rate_rps\n0,1\n1,inf\n", "must have a number in rate_rps, but has inf"),
        ("time_s,rate_rps\n0,1\n1\n", "must have a number in rate_rps, but has nothing"),
        ("time_s,rate_rps\n0,1\n0,3\n", "must have a later time_s"),
        ("time_s,rate_rps\n1e13,1\n2e13,3\n", "must have a time_s of at most 1e+12 seconds, but has 1e+13"),
        ("time_s,rate_rps\n0,0\n1,0\n", "a rate above zero"),
        ("time_s,rate_rps\n0,1\n1,ten\n", "but has ten"),
        ('time_s,rate_rps\n0,"1\n', "is not valid CSV"),
    ],
)
def test_a_file_of_rates_that_is_none_is_refused_with_the_line(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_rates(file)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="CSV file in UTF-8"):
        read_rates(tmp_path / "bytes")
    with pytest.raises(UsageError):
        read_rates(tmp_path / "missing.csv")
    with pytest.raises(UsageError):
        read_rates(tmp_path)
