"""How a command in a container has ended, by what the API server says."""

from __future__ import annotations

import json

import pytest

from faultset.collector.platforms.kubernetes.api.exec import exit_code
from faultset.core.errors import PlatformError

WHERE = "faultset-store in pod postgresql-0"


def failed(message: str, cause: dict[str, str] | None = None) -> str:
    return json.dumps({"status": "Failure", "message": message, "details": {"causes": [cause] if cause else []}})


def test_the_code_is_that_of_the_command() -> None:
    assert exit_code(json.dumps({"metadata": {}, "status": "Success"}), WHERE) == 0
    ended = failed("command terminated with non-zero exit code", {"reason": "ExitCode", "message": "4"})
    assert exit_code(ended, WHERE) == 4


def test_a_container_that_does_not_run_is_one_sentence() -> None:
    text = 'unable to upgrade connection: container not found ("postgresql")'
    for status in (failed("internal error: " + text, {"message": text}), failed(text), failed("", {"message": text})):
        with pytest.raises(PlatformError, match=r"in pod postgresql-0 could not be started: .*not found"):
            exit_code(status, WHERE)


@pytest.mark.parametrize("status", ["", "no JSON", "[]", '{"status": "Failure"}', '{"kind": "Status"}', "null"])
def test_an_end_that_nobody_tells_is_one_sentence(status: str) -> None:
    with pytest.raises(PlatformError, match="ended without a code"):
        exit_code(status, WHERE)
