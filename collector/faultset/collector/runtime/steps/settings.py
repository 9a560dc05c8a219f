"""The step that reads what an operator has configured: an environment variable, or a mounted file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from pydantic import model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.mounts import WatchedText, mounted
from faultset.collector.runtime.steps.step import Step

Read = Callable[[], Any]
"""Returns a value, or None where there is none."""


class ReadSetting(Step):
    """Read an environment variable, as it was when the container started, or a mounted file, as it is now.

    A service whose variable is absent and has no default does not start. A request for a file that is absent or cannot
    be understood fails.
    """

    keyword = "setting"
    variable: str | None = None
    """Name of the variable, one of the service's `environment`."""
    file: str | None = None
    """Path of the file, one of the service's `files`, in place of a variable."""
    json_: bool = False
    """Whether the text is JSON; the value that it holds is kept then."""
    default: Any = None
    """A value for a variable or file that is absent."""
    save: str
    """Name under which text or value is kept for later steps."""

    model_config = Step.model_config | {"alias_generator": lambda name: name.rstrip("_"), "populate_by_name": True}

    @model_validator(mode="after")
    def _reads_one_thing(self) -> ReadSetting:
        if (self.variable is None) == (self.file is None):
            raise ValueError("name either the variable or the file that is read")
        return self

    def variables_read(self) -> tuple[str, ...]:
        """Return the variable, unless there is a default for it."""
        return () if self.variable is None or self.default is not None else (self.variable,)

    def files_read(self) -> tuple[str, ...]:
        """Return the file."""
        return () if self.file is None else (self.file,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the value."""
        read = _variable(self.variable, self.json_) if self.file is None else _file(self.file, self.json_)
        default, what = getter(self.default), self.file or self.variable

        def handle(request: RequestContext) -> None:
            try:
                value = read()
            except ValueError as error:
                raise RpcError(Code.INTERNAL, f"{what} is not JSON: {error}") from None
            if value is None:
                value = default(request.values)
            if value is None:
                raise RpcError(Code.INTERNAL, f"{what}: no such {'variable' if self.file is None else 'file'}")
            request.values[self.save] = value

        return handle


def _variable(name: str | None, is_json: bool) -> Read:
    text = os.environ.get(name or "")
    return lambda: json.loads(text) if is_json and text is not None else text


def _file(path: str, is_json: bool) -> Read:
    file = WatchedText(mounted(path))
    if not is_json:
        return file.read
    seen: list[Any] = [None, None]

    def read() -> Any:
        text = file.read()
        if text != seen[0]:
            seen[:] = [text, None if text is None else json.loads(text)]
        return seen[1]

    return read
