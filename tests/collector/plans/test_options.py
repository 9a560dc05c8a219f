"""Options of campaigns: what is declared once is what the command line, campaign files and Python take."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.cli.collect import collect
from faultset.collector.cli.mitigate import mitigate
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.options import Option, campaign_options, complete_options
from faultset.collector.plans.requests import CampaignRequest, make_request
from faultset.core.errors import UsageError

OPTIONS = campaign_options()
RANGES = [option for option in OPTIONS.values() if option.maximum is not None]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_command_line_has_every_option_as_it_is_declared(name: str) -> None:
    (shown,) = (parameter for parameter in collect.params if parameter.name == name)
    assert shown.opts == [f"--{OPTIONS[name].flag}"]
    assert shown.to_info_dict()["help"] == OPTIONS[name].help
    for parameter in mitigate.params:
        if parameter.name == name:
            assert parameter.to_info_dict()["help"] == OPTIONS[name].help


def test_the_command_line_and_python_have_the_same_defaults() -> None:
    context = collect.make_context("collect", ["--faults", "noop", "--apps", "hotel"])
    given = {name: context.params[name] for name in OPTIONS}
    assert given == complete_options(faults=["noop"], apps=["hotel"])


def test_a_request_has_every_option() -> None:
    lengths = {"warmup_s", "baseline_s", "fault_s", "cooldown_s"}
    assert {*CampaignRequest.__dataclass_fields__} == {*OPTIONS} - lengths | {"phases"}


@pytest.mark.parametrize("option", RANGES, ids=lambda option: option.flag)
def test_a_number_out_of_its_range_is_refused_with_the_range(option: Option) -> None:
    assert option.maximum is not None
    values: Any = {"faults": ["noop"], "apps": ["hotel"], option.name: option.maximum + 1}
    with pytest.raises(UsageError, match=f"--{option.flag} must be from {option.minimum:g} to"):
        plan_campaign(make_request(**values))


def test_an_unknown_or_missing_option_is_named() -> None:
    values: Any = {"faults": ["noop"], "apps": ["hotel"], "repaet": 2}
    with pytest.raises(UsageError, match='has no option "repaet"; did you mean "repeat"'):
        make_request(**values)
    with pytest.raises(UsageError, match="a campaign needs apps"):
        make_request(faults=["noop"])  # pyright: ignore[reportCallIssue]
