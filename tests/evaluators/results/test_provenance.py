"""What answers depend on has a stable name."""

from __future__ import annotations

from faultset.evaluators.results.provenance import settings_hash


def test_settings_have_a_stable_name():
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})
