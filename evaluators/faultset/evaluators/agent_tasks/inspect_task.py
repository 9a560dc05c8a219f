"""Tasks for Inspect: a folder with a task file, the questions and the labels, answered over `faultset agents serve`.

The functions that Inspect calls import its library when they are called (extra `inspect`). The answer is taken from
the calls that the server accepted, so a model is judged by what it submitted and not by what it says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.agents.interface.session import ANSWER_TAKEN, task_instructions
from faultset.core.errors import DataError
from faultset.core.interpreter import python_command
from faultset.core.printable import printable
from faultset.core.reading.regular_files import read_regular
from faultset.evaluators.agent_tasks.episodes import EpisodeTask
from faultset.evaluators.agent_tasks.grading import TaskLabel, grades

if TYPE_CHECKING:
    from inspect_ai import Task  # pyright: ignore[reportMissingImports]

TASK_FILE = "faultset_task.py"
SAMPLES_FILE = "samples.json"
_MOST_BYTES = 256 << 20
_CONTINUE = "Go on with a call of a tool, and end with a submission."
_TASK_SOURCE = '''"""Recorded episodes of faultset as a task for Inspect; samples.json holds the labels.

    inspect eval {file} --model openai/gpt-5-mini

An agent sees the tools of "faultset agents serve" and nothing else.
"""

from pathlib import Path

from inspect_ai import Task, task

from faultset.evaluators.agent_tasks.inspect_task import recorded_episodes


@task
def diagnosis(dataset: str | None = None, message_limit: int = 100) -> Task:
    """Ask about every episode; `dataset` is where the dataset is now, if it was moved."""
    return recorded_episodes(Path(__file__).with_name("{samples}"), dataset=dataset, message_limit=message_limit)
'''


def write_inspect_task(folder: Path, dataset: Path, version: str, tasks: Sequence[EpisodeTask]) -> None:
    """Write the task file and the samples into a folder."""
    samples = [
        {"episode": one.episode, "cluster": "/".join(one.truth.cluster), "label": one.label.model_dump(mode="json")}
        for one in tasks
    ]
    content = {"dataset": str(dataset.absolute()), "version": version, "samples": samples}
    (folder / SAMPLES_FILE).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    (folder / TASK_FILE).write_text(_TASK_SOURCE.format(file=TASK_FILE, samples=SAMPLES_FILE), "utf-8")


def recorded_episodes(samples: Path, *, dataset: str | None = None, message_limit: int = 100) -> Task:
    """Return the task that a folder describes.

    Parameters
    ----------
    samples
        File with questions and labels, as `faultset agents export --as inspect` writes it.
    dataset
        Folder of the dataset, where it is no longer where it was.
    message_limit
        Messages of one sample.

    Raises
    ------
    DataError
        The file is no such file.
    """
    from inspect_ai import Task  # pyright: ignore[reportMissingImports]
    from inspect_ai.dataset import MemoryDataset, Sample  # pyright: ignore[reportMissingImports]

    content, labels = _read(samples)
    task = next(iter(labels.values())).task
    return Task(
        dataset=MemoryDataset(
            name="faultset",
            samples=[
                Sample(
                    id=one["episode"],
                    input=task_instructions(task),
                    target=labels[one["episode"]].model_dump_json(),
                    metadata={"cluster": one["cluster"]},
                )
                for one in content["samples"]
            ],
        ),
        solver=_agent(dataset or content["dataset"], content["version"], task),
        scorer=[_part(name) for name in grades(next(iter(labels.values())), None)],
        message_limit=message_limit,
    )


def _read(samples: Path) -> tuple[dict[str, Any], dict[str, TaskLabel]]:
    try:
        content = json.loads(read_regular(samples, limit_bytes=_MOST_BYTES))
        labels = {str(one["episode"]): TaskLabel.model_validate(one["label"]) for one in content["samples"]}
        known = isinstance(content["dataset"], str) and isinstance(content["version"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        known, content, labels = False, {}, {}
    if not known or not labels:
        raise DataError(f"{printable(samples)} holds no samples of faultset; export the dataset again")
    return content, labels


def _agent(dataset: str, version: str, task: str) -> Any:
    """Return a solver that lets the model call the episode's tools until one submission is accepted."""
    from inspect_ai.agent import AgentState, as_solver, react  # pyright: ignore[reportMissingImports]
    from inspect_ai.solver import Generate, TaskState, solver  # pyright: ignore[reportMissingImports]
    from inspect_ai.tool import mcp_server_stdio, mcp_tools  # pyright: ignore[reportMissingImports]

    @solver(name="faultset_agent")
    def agent_solver() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            served = ["agents", "serve", dataset, "--version", version, "--episode", str(state.sample_id)]
            program, *arguments = python_command("-c", "from faultset.core.start import faultset; faultset()")
            server = mcp_server_stdio(name="episode", command=program, args=[*arguments, *served, "--task", task])

            async def unanswered(reached: AgentState) -> bool | str:
                return submitted(reached.messages) is None and _CONTINUE

            agent = react(tools=[mcp_tools(server)], prompt=None, submit=False, on_continue=unanswered)
            return await as_solver(agent)(state, generate)

        return solve

    return agent_solver()


def _part(name: str) -> Any:
    """Return a scorer of one part of the answer."""
    from inspect_ai.scorer import (  # pyright: ignore[reportMissingImports]
        Score,
        Target,
        mean,
        scorer,
        stderr,
    )
    from inspect_ai.solver import TaskState  # pyright: ignore[reportMissingImports]

    @scorer(name=name, metrics=[mean(), stderr(cluster="cluster")])
    def part() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            answer = submitted(state.messages)
            found = grades(TaskLabel.model_validate_json(target.text), answer)
            return Score(value=found[name], answer=json.dumps(answer))

        return score

    return part()


def submitted(messages: Sequence[Any]) -> dict[str, Any] | None:
    """Return the arguments of the call whose answer says that it was taken; None where none was."""
    calls: dict[str, Any] = {}
    for message in messages:
        for call in getattr(message, "tool_calls", None) or ():
            calls[call.id] = call
        call = calls.get(getattr(message, "tool_call_id", None) or "")
        if call is None or message.role != "tool" or not call.function.startswith("submit_"):
            continue
        if message.text.startswith(ANSWER_TAKEN):
            return {"ordered": True, **call.arguments}
    return None
