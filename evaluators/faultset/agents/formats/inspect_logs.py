"""Logs of Inspect, read through Inspect's own library; one run for each sample and epoch.

Our result says whether the answer is one of the sample's targets, without regard to case; the log's scorers may judge
in another way, and theirs is the recorded result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.agents.formats.chat_messages import add_messages
from faultset.agents.formats.contract import ImportedRun, ImportOptions, OwnScore
from faultset.agents.formats.files import files_below
from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.model import FinalMetrics
from faultset.agents.trajectories.reading import LIMIT_BYTES
from faultset.agents.trajectories.writing import TrajectoryWriter, jsonable
from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.printable import printable
from faultset.core.reading.regular_files import regular_stat

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample  # pyright: ignore[reportMissingImports]

_LIMITS = {
    "token": "token_limit",
    "context": "token_limit",
    "time": "timeout",
    "working": "timeout",
    "message": "step_limit",
    "turn": "step_limit",
}
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_LABELS = "target in the log"


class InspectLogs:
    """Logs `*.eval` and `*.json` of Inspect."""

    name = "inspect"
    title = "Inspect"

    def files(self, path: Path) -> Sequence[Path]:
        """Find the logs."""
        return files_below(path, lambda file: file.suffix in (".eval", ".json"), "a folder of Inspect's logs")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the samples of one log."""
        from inspect_ai.log import read_eval_log  # pyright: ignore[reportMissingImports]

        regular_stat(file, limit_bytes=LIMIT_BYTES)
        log = read_eval_log(str(file), resolve_attachments=True)
        if not log.samples:
            raise DataError(f"{printable(file)} holds no samples; give a log that was not made with headers alone")
        return [_run(self.name, log, sample, f"{file}, sample {sample.id}", options) for sample in log.samples]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Say whether the answer is one of the targets."""
        right = _plain((run.answer or {}).get("text", "")) in {_plain(target) for target in truth["targets"]}
        return OwnScore(success=right, value=float(right))

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """The log was judged by its scorer, ours is equality."""
        names = ", ".join(truth.recorded.get("scores", {})) or "unknown"
        return f"the log's scorer ({names}) judges otherwise than by equality with a target"


def _run(source: str, log: EvalLog, sample: EvalSample, origin: str, options: ImportOptions) -> ImportedRun:
    writer = TrajectoryWriter(options.agent or log.eval.solver or "inspect", model=log.eval.model or options.model)
    add_messages(writer, [_message(one) for one in sample.messages], printable(origin))
    if not len(writer):
        writer.said("user", sample.input if isinstance(sample.input, str) else "")
    usage = list((sample.model_usage or {}).values())
    tokens = FinalMetrics(
        total_prompt_tokens=_sum([_prompt_tokens(one) for one in usage]),
        total_completion_tokens=_sum([one.output_tokens for one in usage]),
        total_cached_tokens=_sum([one.input_tokens_cache_read for one in usage]),
    )
    trajectory = writer.trajectory(session_id=sample.uuid, final_metrics=tokens)
    text = sample.output.completion if sample.output else ""
    answer = ReadAnswer(status="ok", answer={"text": jsonable(text)}) if text and text.strip() else None
    limit = sample.limit.type if sample.limit else None
    stopped_by = "harness_error" if sample.error else _LIMITS.get(limit or "")
    found = decided(trajectory, None if sample.error else answer, stopped_by=stopped_by)
    run = counted_run(
        source,
        trajectory,
        found,
        dataset=(log.eval.dataset.name or log.eval.task)[:500],
        episode=str(sample.id)[:500],
        task="other",
        trial=sample.epoch,
        stop_reason=f"limit: {limit}" if limit else "error" if sample.error else None,
        seconds=float(sample.total_time) if sample.total_time is not None else None,
    )
    return ImportedRun(key=f"{sample.id}/{sample.epoch}", trajectory=trajectory, run=run, truth=_truth(sample))


def _message(message: Any) -> dict[str, Any]:
    calls = getattr(message, "tool_calls", None) or ()
    return {
        "role": message.role,
        "content": message.text,
        "tool_calls": [{"id": c.id, "function": {"name": c.function, "arguments": c.arguments}} for c in calls],
        "tool_call_id": getattr(message, "tool_call_id", None),
        "error": getattr(message, "error", None) is not None,
    }


def _prompt_tokens(usage: Any) -> int:
    """Return the tokens of prompts with the cached ones, which Inspect counts apart."""
    return usage.input_tokens + (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _truth(sample: EvalSample) -> RunTruth:
    targets = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    targets = [target for target in targets if target.strip()]
    values = {name: score.value for name, score in (sample.scores or {}).items()}
    numbers = [number for value in values.values() if (number := _number(value)) is not None]
    value = numbers[0] if numbers else None
    return RunTruth(
        cluster=str(sample.id)[:500],
        label_version=_LABELS if targets else None,
        truth_json=canonical_json(jsonable({"targets": targets})) if targets else None,
        recorded_success=None if value is None else value == 1.0,
        recorded_value=value,
        recorded_json=canonical_json(jsonable({"scores": values})),
    )


def _number(value: Any) -> float | None:
    """Return a score from 0 to 1, where letters are Inspect's correct, partial, incorrect and no answer."""
    if isinstance(value, str):
        return _LETTERS.get(value)
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1 else None


def _plain(text: Any) -> str:
    return text.strip().lower() if isinstance(text, str) else ""
