"""Tasks for Harbor: a folder for each episode, with the recording in its container and the label in its tests alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from faultset.agents.interface.session import task_instructions
from faultset.datasets import Dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import TELEMETRY, table_file
from faultset.datasets.format.storage import write_parquet
from faultset.datasets.views import EpisodeView
from faultset.evaluators.agent_tasks.episodes import EpisodeTask

INDEX_FILE = "episodes.json"
RECORDING = "recording"
_ANSWER = "/app/answer.json"
_HIDDEN = frozenset({"requests"})
_SERVE = ["agents", "serve", f"/{RECORDING}", "--out", _ANSWER]
_TASK = """schema_version = "1.4"
artifacts = ["{answer}"]

[task]
name = "faultset/{name}"
description = "Diagnose a recorded system of microservices ({task})"
keywords = ["AIOps", "microservices", "root cause analysis"]

[agent]
timeout_sec = 1800.0

[verifier]
timeout_sec = 120.0
environment_mode = "separate"

[environment]
cpus = 1
memory_mb = 2048

[[environment.mcp_servers]]
name = "episode"
transport = "stdio"
command = "faultset"
args = {arguments}
"""
_INSTRUCTION = """{instructions}

The tools are those of the MCP server "episode". The services are: {candidates}.
"""
_DOCKERFILE = """FROM docker.io/library/python:3.12-slim
{install}
COPY {recording} /{recording}
WORKDIR /app
"""
_TEST = """#!/bin/sh
# Harbor runs this after the agent has ended, in a container that the agent never had.
faultset agents grade "$(dirname "$0")/label.json" "${1:-%s}" --out "${2:-/logs/verifier/reward.json}"
"""


def write_harbor_tasks(folder: Path, dataset: Dataset, tasks: Sequence[EpisodeTask], install: str) -> None:
    """Write a task folder for each episode, and a file that says which is which, which no container gets.

    Parameters
    ----------
    install
        What pip installs in the container: a requirement, or the path of a wheel, which is copied.
    """
    for one in tasks:
        _write_task(folder / one.name, dataset.view(one.episode), one, install)
    names = {one.name: one.episode for one in tasks}
    index = {"dataset": str(dataset.root.absolute()), "version": dataset.version, "episodes": names}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=1) + "\n", "utf-8")


def _write_task(folder: Path, view: EpisodeView, one: EpisodeTask, install: str) -> None:
    environment, tests = folder / "environment", folder / "tests"
    environment.mkdir(parents=True)
    tests.mkdir()
    task = one.label.task
    arguments = json.dumps([*_SERVE, "--task", task])
    (folder / "task.toml").write_text(
        _TASK.format(name=one.name, task=task, answer=_ANSWER, arguments=arguments), "utf-8"
    )
    text = _INSTRUCTION.format(instructions=task_instructions(task), candidates=", ".join(one.truth.candidates))
    (folder / "instruction.md").write_text(text, "utf-8")
    (environment / "Dockerfile").write_text(
        _DOCKERFILE.format(install=_installation(environment, install), recording=RECORDING), "utf-8"
    )
    _write_recording(environment / RECORDING, view, one.name)
    (tests / "label.json").write_text(one.label.model_dump_json(indent=1) + "\n", "utf-8")
    test = tests / "test.sh"
    test.write_text(_TEST % _ANSWER, "utf-8")
    test.chmod(0o755)


def _installation(environment: Path, install: str) -> str:
    wheel = Path(install)
    if wheel.suffix != ".whl":
        return f'RUN pip install --no-cache-dir "{install}"'
    shutil.copy(wheel, environment / wheel.name)
    return f'COPY {wheel.name} /tmp/\nRUN pip install --no-cache-dir "/tmp/{wheel.name}[mcp,sql]"'


def _write_recording(folder: Path, view: EpisodeView, name: str) -> None:
    """Write a view that does not say which episode it is, without what no tool shows."""
    (folder / TELEMETRY).mkdir(parents=True)
    context = dataclasses.replace(view.context, episode=name)
    (folder / CONTEXT_FILE).write_text(context.to_json(), "utf-8")
    for table in view.tables:
        rows = view.table(table)
        if table in _HIDDEN:
            rows = rows.slice(0, 0)
        place = rows.schema.get_field_index("episode")
        kind = rows.schema.field(place).type
        names = pa.array([name] * len(rows), pa.string())
        rows = rows.set_column(
            place, rows.schema.field(place), names.dictionary_encode() if pa.types.is_dictionary(kind) else names
        )
        write_parquet(folder / table_file(table), rows)
