"""rcabench's answers and trajectories: root causes with evidence, and messages of a main agent and its sub-agents."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.agents.formats.chat_messages import add_messages
from faultset.agents.formats.contract import ImportedRun, ImportOptions, OwnScore
from faultset.agents.formats.files import files_below
from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.model import Trajectory
from faultset.agents.trajectories.reading import LIMIT_BYTES
from faultset.agents.trajectories.writing import TrajectoryWriter, jsonable
from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.printable import printable
from faultset.core.reading.documents import parse_object
from faultset.core.reading.regular_files import read_regular


class RCABenchAnswers:
    """Answers of rcabench's agents, alone or at the end of their trajectories."""

    name = "rcabench"
    title = "rcabench"

    def files(self, path: Path) -> Sequence[Path]:
        """Find the files."""
        return files_below(path, lambda file: file.suffix == ".json", "a folder of rcabench's answers")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read one answer or trajectory."""
        document = parse_object(read_regular(file, limit_bytes=LIMIT_BYTES), str(file))
        origin = printable(file)
        if "trajectories" in document:
            trajectory = _trajectory(document["trajectories"], options, origin)
            answer = _answer_in(trajectory)
        elif "root_causes" in document:
            writer = TrajectoryWriter(options.agent or "unknown", model=options.model)
            writer.acted(canonical_json(jsonable(document)))
            trajectory, answer = writer.trajectory(), _answer(document)
        else:
            raise DataError(f"{origin} has neither trajectories nor root_causes; give an answer of rcabench")
        metadata = document.get("metadata")
        case = metadata.get("case") or metadata.get("datapack") if isinstance(metadata, dict) else None
        run = counted_run(
            self.name,
            trajectory,
            decided(trajectory, answer),
            episode=(case if isinstance(case, str) else file.stem)[:500],
            task="root_cause",
        )
        correct, reward = document.get("correct"), document.get("reward")
        known = isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward)
        recorded = {name: document[name] for name in ("reward", "correct", "metadata") if name in document}
        truth = RunTruth(
            cluster=run.episode or file.stem,
            recorded_success=correct if isinstance(correct, bool) else None,
            recorded_value=float(reward) if known and reward is not None and 0 <= reward <= 1 else None,
            recorded_json=canonical_json(jsonable(recorded)),
        )
        return [ImportedRun(key="", trajectory=trajectory, run=run, truth=truth)]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Nothing: answers hold no label."""
        return None

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Nothing: there is no score of ours."""
        return ""


def _trajectory(parts: Any, options: ImportOptions, origin: str) -> Trajectory:
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise DataError(f"{origin} should hold a list of trajectories; restore the file")
    main = next((part for part in parts if part.get("trajectory_id") == "main"), parts[0])
    others = [_one(part, options, origin) for part in parts if part is not main and part.get("messages")]
    whole = _one(main, options, origin)
    named = [
        one.model_copy(update={"trajectory_id": f"{number}-{one.trajectory_id or 'unnamed'}"})
        for number, one in enumerate(others, start=1)
    ]
    return whole.model_copy(update={"subagent_trajectories": named or None})


def _one(part: Mapping[str, Any], options: ImportOptions, origin: str) -> Trajectory:
    name, messages = part.get("agent_name"), part.get("messages")
    if not isinstance(messages, list) or not messages:
        raise DataError(f"{origin} has a trajectory without messages; restore the file")
    writer = TrajectoryWriter(name if isinstance(name, str) else options.agent or "unknown", model=options.model)
    add_messages(writer, messages, origin)
    if not len(writer):
        raise DataError(f"{origin} has a trajectory of tool results alone; restore the file")
    key = part.get("trajectory_id")
    return writer.trajectory().model_copy(update={"trajectory_id": key if isinstance(key, str) else None})


def _answer_in(trajectory: Trajectory) -> ReadAnswer | None:
    """Return the answer in the last message that has one."""
    for step in reversed(trajectory.agent_steps):
        text = step.text
        if "root_causes" not in text:
            continue
        try:
            found = json.loads(text[text.find("{") : text.rfind("}") + 1])
        except (ValueError, RecursionError):
            return ReadAnswer(status="unparsed", reason="the answer is no JSON")
        return _answer(found)
    return None


def _answer(document: Mapping[str, Any]) -> ReadAnswer:
    causes = document.get("root_causes")
    if not isinstance(causes, list) or not all(isinstance(one, dict) for one in causes):
        return ReadAnswer(status="invalid", reason="the answer has no list of root causes")
    if not all(isinstance(one.get("service"), str) and one["service"] for one in causes):
        return ReadAnswer(status="invalid", reason="a root cause names no service")
    kept = ("service", "fault_kind", "direction", "method", "confidence")
    named = [{"kind": one.get("fault_kind")} | {key: one[key] for key in kept if key in one} for one in causes]
    evidence = [one.get("evidence") for one in causes]
    propagation = document.get("propagation")
    answer = {
        "root_causes": [{k: v for k, v in one.items() if k != "fault_kind"} for one in named],
        "evidence": evidence,
        "propagation": propagation if isinstance(propagation, list) else [],
    }
    missing = sum(not one for one in evidence)
    if missing:
        return ReadAnswer(status="invalid", reason=f"{missing} root causes have no evidence", answer=jsonable(answer))
    return ReadAnswer(status="ok", answer=jsonable(answer))
