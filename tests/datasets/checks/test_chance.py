from __future__ import annotations

import numpy as np

from faultset.datasets.checks.verification import chance_findings, circumstances, predictability
from faultset.datasets.views import EpisodeView

START_NS = 1_760_000_000_000_000_000


def test_few_episodes_are_said_to_be_too_few(write_episode):
    view = EpisodeView(write_episode("e1"))
    (finding,) = chance_findings({"e1": view}, {"e1": True})
    assert finding.severity == "note"
    assert "1 episodes with a fault and 0 without, 8 of each are needed" in finding.message


def test_random_circumstances_are_at_chance():
    features = np.random.default_rng(2).standard_normal((24, 6))
    _, p_value = predictability(features, np.arange(24) % 2 == 0)
    assert p_value > 0.05


def test_a_circumstance_that_tells_is_found():
    features = np.random.default_rng(0).standard_normal((24, 6))
    faulty = np.arange(24) % 2 == 0
    features[:, 3] += 4 * faulty
    score, p_value = predictability(features, faulty)
    assert score > 0.9
    assert p_value <= 0.05


def test_row_counts_of_the_healthy_window_that_tell_are_a_warning(write_episode, log):
    views, faulty = {}, {}
    for number in range(16):
        episode = f"e{number:02}"
        start = START_NS + (number * 7919 % 16) * 10**12
        lines = [log(second + (start - START_NS) / 1e9, "x") for second in range(5 + 20 * (number % 2))]
        views[episode] = EpisodeView(write_episode(episode, start_ns=start, logs=lines))
        faulty[episode] = number % 2 == 1
    (finding,) = chance_findings(views, faulty)
    assert finding.severity == "warning"
    assert "predict the fault" in finding.message
    assert circumstances(views).shape[0] == 16
