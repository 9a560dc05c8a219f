"""Settings: variables as they were at the start, files as they are now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.environment import list_missing_variables
from faultset.collector.runtime.http.status import RpcError
from faultset.collector.runtime.steps.basic import ReadSetting
from faultset.collector.spec.app import Operation, ServiceSpec


def reader(**fields: Any) -> Any:
    """Compile a step; return a function that gives what it saves."""
    handle = ReadSetting(save="found", **fields).compile(cast(Any, None), "here")

    def read() -> Any:
        request = RequestContext(values={"other": 7}, trace=cast(Any, None))
        handle(request)
        return request.values["found"]

    return read


def test_a_variable_keeps_the_value_that_it_had_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIT", "3")
    read, as_json = reader(variable="LIMIT"), reader(variable="LIMIT", json=True)
    monkeypatch.setenv("LIMIT", "4")
    assert (read(), as_json()) == ("3", 3)
    assert reader(variable="NONE", default="$other")() == 7


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTSET_MOUNTS", json.dumps({"/etc/shop": str(tmp_path)}))
    file = tmp_path / "offers.json"
    file.write_text('{"tea": 3}')
    text, value = reader(file="/etc/shop/offers.json"), reader(file="/etc/shop/offers.json", json=True)
    assert (text(), value()) == ('{"tea": 3}', {"tea": 3})
    file.write_text('{"tea": 4, "milk": 1}')
    assert value() == {"tea": 4, "milk": 1}
    file.write_text("{tea")
    with pytest.raises(RpcError, match=r"/etc/shop/offers\.json is not JSON"):
        value()
    file.unlink()
    with pytest.raises(RpcError, match=r"file /etc/shop/offers\.json does not exist"):
        value()


def test_variables_without_a_default_must_be_set_when_a_service_starts() -> None:
    steps = (
        ReadSetting(variable="A", save="x"),
        ReadSetting(variable="B", default="1", save="y"),
        ReadSetting(variable="C", save="z"),
    )
    service = ServiceSpec(name="web", kind="logic", operations={"/o": Operation(steps=steps)})
    assert list_missing_variables(service, {"C": "here"}) == ("A",)
