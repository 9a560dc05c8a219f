"""Specs as YAML: what is read back, and what a wrong spec is told."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.files import format_spec
from faultset.core.errors import UsageError
from tests.collector.spec.edits import changed

HOTEL = format_spec(load_app("hotel"))
NEARBY = ("services", "search", "operations", "/search.Search/Nearby", "steps")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("services", "geo", "port"), "many", r"services\.geo\.port"),
        (("services", "geo", "port"), -1, r"services\.geo\.port"),
        (("services", "geo", "port"), 99999, r"services\.geo\.port"),
        (("services", "geo", "memory_limit_mib"), 0, r"services\.geo\.memory_limit_mib"),
        (("services", "geo", "memory_limit_mib"), -5, r"services\.geo\.memory_limit_mib"),
        (("services", "geo", "memory_limit_mib"), 10**12, r"services\.geo\.memory_limit_mib"),
        (("services", "geo", "cpu_limit"), -1, r"services\.geo\.cpu_limit"),
        (("services", "geo", "cpu_limit"), float("nan"), r"services\.geo\.cpu_limit"),
        (("services", "geo", "cpu_limit"), 1e300, r"services\.geo\.cpu_limit"),
        (("services", "geo", "prot"), 1, r"services\.geo\.prot: unknown key"),
        (("services", "geo", "stores"), ["mongodb-gee"], r"services\.geo\.stores: unknown name 'mongodb-gee'"),
        (("entry",), ["fronted", 5000], "entry: unknown name 'fronted'"),
        (("default_mix",), "usual", "default_mix: unknown name 'usual'"),
        (("mixes", "default", "shares"), {"search": 0.5}, "must add up to 1, got 0.5"),
        (("mixes", "default", "shares"), {"sarch": 1}, r"mixes\.default\.shares: unknown name 'sarch'"),
        (NEARBY, [{"neerby": {}}], "unknown step 'neerby', expected one of"),
        (NEARBY, [{"call": {"service": "geo", "operation": "/geo.Geo/Far", "save": "x"}}], "unknown name '/geo"),
        (
            ("services", "geo", "operations", "/geo.Geo/Nearby", "steps"),
            [{"nearby": {"index": "dots", "lat": 1, "lon": 2, "radius_km": 1, "limit": 1, "save": "x"}}],
            "unknown name 'dots'",
        ),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_told_where_and_why(path: tuple[str, ...], value: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_app(changed(HOTEL, *path, value=value), "app.yaml")


@pytest.mark.parametrize(("text", "told"), [("a: [", "app.yaml is not YAML"), ("3", "got int")])
def test_a_spec_that_is_no_mapping_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_app(text, "app.yaml")
