"""What holds for every localizer that ranks by metrics, on episodes where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faultset.baselines.api import registry
from faultset.baselines.api.contract import Ranking
from faultset.datasets.views import EpisodeView
from tests.baselines.metric_series import CALLS, SERVICES, World, ask, dropped, healthy_series

UPWARDS = ("nsigma", "baro")
"""In their published form these look at what rises only."""
BOTH_WAYS = (
    "nsigma-two-sided",
    "baro-two-sided",
    "epsilon-diagnosis",
    "circa",
    "rcd",
    "micro-cause",
    "torai",
    "simple-rca",
)
LOCALIZERS = (*UPWARDS, *BOTH_WAYS)


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_what_goes_down_is_found(name: str, world: World) -> None:
    assert ask(name, world(dropped())).ordered[0] == "user"


@pytest.mark.parametrize("name", LOCALIZERS)
def test_nothing_that_moves_is_nobody_to_blame_and_never_the_first_column(name: str, world: World) -> None:
    series = {key: np.full(120, 4.0) for key in healthy_series()}
    assert ask(name, world(series)).abstains


@pytest.mark.parametrize("name", [name for name in BOTH_WAYS if name != "micro-cause"])
def test_the_answer_follows_the_service_and_not_its_name(name: str, world: World) -> None:
    renamed = ("zeta", "yota", "xi", "alpha", "beta", "gamma")
    names: dict[str, str] = dict(zip(SERVICES, renamed, strict=True))
    calls = tuple((names[caller], names[callee]) for caller, callee in CALLS)
    found = ask(name, world(dropped(services=renamed, target=names["user"]), renamed, calls))
    assert found.ordered[0] == names["user"]


@pytest.mark.parametrize("name", LOCALIZERS)
def test_the_answer_needs_no_truth(name: str, example, faulty, alter) -> None:
    def localize(view: EpisodeView) -> Ranking:
        built: Any = registry.get_baseline(name).build()
        return built.localize(view, view.reference[1] + (view.window[1] - view.reference[1]) // 2)

    telemetry_alone = alter(faulty, {})
    assert localize(telemetry_alone) == localize(example.view(faulty))


@pytest.mark.parametrize("name", LOCALIZERS)
def test_metric_answers_belong_to_named_services(name: str, world: World) -> None:
    found = ask(name, world(dropped(seed=5)))
    assert {service for service, _ in found.metrics} <= set(found.scores)
    assert name == "torai" or found.metrics


@pytest.mark.parametrize("name", LOCALIZERS)
def test_a_view_with_hardly_any_samples_is_survived(name: str, world: World) -> None:
    for seconds in (1, 49, 52):
        found = ask(name, world(healthy_series(seconds=seconds)), second=50)
        assert set(found.scores) <= set(SERVICES)
