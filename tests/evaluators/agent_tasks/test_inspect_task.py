"""Episodes as a task for Inspect, run by its own library with a model that replies what it is told to."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")
pytest.importorskip("mcp", reason="the extra mcp is not installed")

from inspect_ai import eval as run_task  # pyright: ignore[reportMissingImports]
from inspect_ai.model import ModelOutput, get_model  # pyright: ignore[reportMissingImports]

from faultset.agents import import_runs, score_runs
from faultset.core.errors import DataError
from faultset.evaluators.agent_tasks.export import export_tasks
from faultset.evaluators.agent_tasks.inspect_task import recorded_episodes

from .conftest import FAULTY, SAMPLE

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Of the libraries that Inspect uses."""


@pytest.fixture
def without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count tokens without the tables that Inspect's counting fetches."""
    for module in ("inspect_ai.model._tokens", "inspect_ai.model._model"):
        monkeypatch.setattr(f"{module}.count_text_tokens", lambda text: len(text) // 4 + 1, raising=False)


def called(tool: str, **arguments: Any) -> Any:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def scores_of(log: Any) -> dict[str, float]:
    assert log.status == "success", log.error
    return {name: score.value for name, score in log.samples[0].scores.items()}


@pytest.mark.usefixtures("without_a_network")
def test_a_model_answers_over_the_server_and_is_scored_by_what_it_submitted(tmp_path: Path) -> None:
    export_tasks(SAMPLE, tmp_path / "tasks", "inspect", episodes=[FAULTY])
    file = tmp_path / "tasks" / "faultset_task.py"
    module = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("exported", file))  # type: ignore[arg-type]
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module)
    outputs = [
        called("kubectl", command="kubectl get pods"),
        called("submit_all", fault=True, services=["nobody"], system_level=None, fault_type=None),
        ModelOutput.from_content("mockllm/model", "It is geo, I think."),
        called("submit_all", fault=True, services=["geo"], system_level="Application", fault_type="Code Defect"),
    ]
    model = get_model("mockllm/model", custom_outputs=outputs)
    log = run_task(module.diagnosis(), model=model, log_dir=str(tmp_path / "logs"), display="none")[0]
    assert scores_of(log) == {"reward": 0.0, "detection": 1.0, "localization": 1.0, "diagnosis": 0.0}
    said = "".join(message.text for message in log.samples[0].messages)
    assert "geo" in said
    assert FAULTY not in said
    import_runs("inspect", tmp_path / "logs", tmp_path / "runs")
    assert [one.truth.recorded_success for one in score_runs(tmp_path / "runs")] == [False]


@pytest.mark.usefixtures("without_a_network")
def test_a_model_that_never_submits_is_a_miss(tmp_path: Path) -> None:
    export_tasks(SAMPLE, tmp_path / "tasks", "inspect", task="detection", episodes=[FAULTY])
    replies = [ModelOutput.from_content("mockllm/model", "There is a fault: yes.")] * 20
    task = recorded_episodes(tmp_path / "tasks" / "samples.json", message_limit=6)
    log = run_task(
        task,
        model=get_model("mockllm/model", custom_outputs=replies),
        log_dir=str(tmp_path / "logs"),
        display="none",
    )[0]
    assert scores_of(log) == {"reward": 0.0, "detection": 0.0}


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"samples": []}', '{"dataset": 1, "version": "1", "samples": [{}]}']
)
def test_a_file_of_samples_that_is_none_is_one_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "samples.json"
    file.write_text(content, "utf-8")
    with pytest.raises(DataError, match="holds no samples of faultset; export the dataset again"):
        recorded_episodes(file)
