"""DeepLog's network is asked about each service's own lines, and learns which line follows on which."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.logs.templates import TemplateLines
from faultset.baselines.methods.detection.deeplog import HISTORY, NextTemplateNetwork, surprise
from faultset.baselines.neural import dense_parameters, lstm_parameters, missing_packages, trained


def lines(templates: list[int], services: list[int]) -> TemplateLines:
    return TemplateLines(
        times_ns=np.arange(len(templates)),
        services=np.array(services),
        templates=np.array(templates),
        texts=("a", "b", "new"),
    )


def network(hidden: int = 8) -> NextTemplateNetwork:
    rng = np.random.default_rng(0)
    parameters = {
        "vectors": rng.normal(size=(4, 4)),
        "cell": lstm_parameters(rng, 4, hidden),
        "output": dense_parameters(rng, hidden, 4),
    }
    return NextTemplateNetwork(known={"a": 2, "b": 3}, parameters=parameters)


def test_what_comes_before_a_line_is_of_its_own_service():
    found = network().windows(lines([0, 1, 1, 0, 2], [0, 5, 0, 5, 0]))
    assert found.shape == (5, HISTORY + 1)
    assert found[:, -1].tolist() == [2, 3, 3, 2, 0]
    assert found[:, -2].tolist() == [1, 1, 2, 3, 3]


@pytest.mark.skipif(bool(missing_packages()), reason="the extra neural is not installed")
def test_a_line_out_of_order_is_unexpected_after_training():
    start = network()
    healthy = start.windows(lines([0, 1] * 100, [0] * 200))
    parameters = trained(start.parameters, [(surprise, tuple(start.parameters))], [healthy], updates=150, batch=32,
                         seed=0, rate=2e-2)  # fmt: skip
    taught = NextTemplateNetwork(known=start.known, parameters=parameters)
    odd = lines([0, 1] * 10 + [1, 2], [0] * 22)
    assert np.flatnonzero(taught.misses(taught.windows(odd), top=1)).tolist() == [20, 21]
