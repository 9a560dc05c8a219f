"""Inspect runs with its mock model and with a server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task
from inspect_ai import eval as run_task
from inspect_ai.log import EvalLog
from inspect_ai.model import Model, ModelOutput, get_model

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
FAULTY = "a5edb68659bc"
"""The pods of geo fail."""
Run = Callable[..., EvalLog]


def called(tool: str, **arguments: Any) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def text(content: str) -> ModelOutput:
    return ModelOutput.from_content("mockllm/model", content)


def mock(outputs: Sequence[ModelOutput] | Callable[..., ModelOutput]) -> Model:
    return get_model("mockllm/model", custom_outputs=outputs)


def values_of(log: EvalLog) -> dict[str, Any]:
    """Return the values of the first sample's only score."""
    assert log.status == "success", log.error
    assert log.samples is not None
    assert log.samples[0].error is None, log.samples[0].error.traceback
    (score,) = (log.samples[0].scores or {}).values()
    assert isinstance(score.value, dict)
    return dict(score.value)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a task without a network, and return its log; keyword arguments are those of Inspect's `eval`."""
    # the mock model would fetch the tables of OpenAI's tokens
    for module in ("inspect_ai.model._tokens", "inspect_ai.model._model"):
        monkeypatch.setattr(f"{module}.count_text_tokens", lambda words: len(words) // 4 + 1, raising=False)

    def run(task: Task | str, model: Model | str = "none", **options: Any) -> EvalLog:
        settings = {"log_dir": str(tmp_path / "logs"), "display": "none", "fail_on_error": False} | options
        (log,) = run_task(task, model=model, **settings)
        return log

    return run
