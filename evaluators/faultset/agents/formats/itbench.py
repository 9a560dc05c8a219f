"""ITBench's outputs: the entities that an agent blames, graded there by a language model and not here.

Steps lie in another file as OpenTelemetry logs and are not read: the trajectory holds the answer alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.agents.formats.contract import ImportedRun, ImportOptions, OwnScore
from faultset.agents.formats.files import files_below
from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.reading import LIMIT_BYTES
from faultset.agents.trajectories.writing import TrajectoryWriter, jsonable
from faultset.core.json_text import canonical_json
from faultset.core.reading.documents import parse_object
from faultset.core.reading.regular_files import read_regular

_NAMES = ("agent_output.json", "agent_response.json")


class ITBenchOutputs:
    """Outputs `<incident>/<trial>/agent_output.json` of ITBench's agents."""

    name = "itbench"
    title = "ITBench"

    def files(self, path: Path) -> Sequence[Path]:
        """Find the outputs."""
        return files_below(path, lambda file: file.name in _NAMES, "a folder of ITBench's outputs")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the output of one trial."""
        document = jsonable(parse_object(read_regular(file, limit_bytes=LIMIT_BYTES), str(file)))
        writer = TrajectoryWriter(options.agent or "unknown", model=options.model)
        writer.acted(canonical_json(document))
        trajectory = writer.trajectory()
        folders = [folder for folder in file.resolve().parent.parts if folder != "outputs"]
        incident = folders[-2] if len(folders) > 1 else ""
        number = folders[-1] if folders else ""
        run = counted_run(
            self.name,
            trajectory,
            decided(trajectory, _answer(document)),
            episode=incident[:500] or None,
            trial=int(number) if number.isdecimal() and number.isascii() and len(number) < 10 else None,
            task="root_cause",
        )
        truth = RunTruth(cluster=(incident or file.name)[:500])
        return [ImportedRun(key="", trajectory=trajectory, run=run, truth=truth)]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Nothing: outputs hold no label, and ITBench grades them with a language model."""
        return None

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Nothing: outputs hold no result."""
        return ""


def _answer(document: Mapping[str, Any]) -> ReadAnswer:
    entities = document.get("entities")
    if not isinstance(entities, list) or not all(isinstance(one, dict) for one in entities):
        return ReadAnswer(status="invalid", reason="the output has no list of entities")
    blamed = [one for one in entities if one.get("contributing_factor") is True]
    if not all(isinstance(one.get("name"), str) and one["name"] for one in blamed):
        return ReadAnswer(status="invalid", reason="an entity has no name")
    causes = [{"service": one["name"].rpartition("/")[2], "entity": one["name"]} for one in blamed]
    propagations = document.get("propagations")
    answer = {"root_causes": causes, "propagations": propagations if isinstance(propagations, list) else []}
    return ReadAnswer(status="ok", answer=answer)
