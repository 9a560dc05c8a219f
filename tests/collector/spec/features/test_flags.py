"""The file of feature flags: written from a spec, changed, and read."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from faultset.collector.spec.features.behaviour import Flag, FlagSettings, format_flags, set_variant, values_in

SETTINGS = FlagSettings(
    flags={
        "slow": Flag(variants={"10sec": 10000, "off": 0}, default="off", service="web"),
        "broken": Flag(variants={"on": True, "off": False}, default="off", service="web"),
    }
)


def test_a_file_holds_the_defaults_until_a_variant_is_set() -> None:
    text = format_flags(SETTINGS)
    assert values_in(text) == SETTINGS.defaults() == {"slow": 0, "broken": False}
    changed = set_variant(text, "slow", "10sec")
    assert values_in(changed) == {"slow": 10000, "broken": False}
    assert set_variant(changed, "slow", "off") == text


@pytest.mark.parametrize(
    ("name", "variant", "sentence"),
    [
        ("fast", "on", "unknown flag 'fast', expected one of slow, broken"),
        ("slow", "on", "unknown variant 'on' of flag slow, expected one of 10sec, off"),
    ],
)
def test_a_flag_or_variant_that_does_not_exist_is_told(name: str, variant: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        set_variant(format_flags(SETTINGS), name, variant)


@pytest.mark.parametrize("text", ["", "[]", '{"flags": []}', "{"])
def test_a_text_that_is_no_file_of_flags_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        values_in(text)


def test_a_disabled_or_incomplete_flag_has_no_value() -> None:
    text = '{"flags": {"a": {"state": "DISABLED", "variants": {"on": 1}, "defaultVariant": "on"}, "b": 3}}'
    assert values_in(text) == {}


def test_a_default_that_is_no_variant_and_a_provider_without_operation_are_refused() -> None:
    with pytest.raises(ValidationError, match="default must be one of on, got 'no'"):
        Flag(variants={"on": 1}, default="no", service="web")
    with pytest.raises(ValidationError, match="provider and operation must be given together"):
        FlagSettings(flags=SETTINGS.flags, provider="flagd")
