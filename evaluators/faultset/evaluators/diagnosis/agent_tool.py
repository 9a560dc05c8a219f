"""The analysis of an incident as a tool for agents.

The tool answers the question that benchmark tasks ask, so sessions offer it only on request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from faultset.datasets.kubectl.printing import ToolAnswer, answer_invalid, answer_ok
from faultset.datasets.tools.recording import ViewClock
from faultset.datasets.tools.toolset import Tool, build_tool
from faultset.datasets.views import EpisodeView
from faultset.evaluators.diagnosis.analysis import diagnose as analyse
from faultset.evaluators.diagnosis.text import analysis_text, read_moment
from faultset.evaluators.execution.dataset_source import TruncatedCopies


def diagnosis_tool(folder: Path, clock: ViewClock) -> Tool:
    """Return a tool that analyses an episode up to the current time of its clock.

    `folder`: folder of the episode.
    `clock`: clock of the session.
    """
    context = EpisodeView(folder).context

    def diagnose(
        at: Annotated[
            str | None,
            Field(max_length=40, description="When the problem was noticed, UTC; null to let detectors decide."),
        ] = None,
    ) -> ToolAnswer:
        """Ask detectors and localization algorithms: alarms, suspects with evidence, how often they were right."""
        if clock.now_ns <= context.reference_end_ns:
            return answer_invalid("the healthy reference has not ended yet; wait first.")
        moment_ns = None if at is None else read_moment(at, context.view_start_ns)
        with TruncatedCopies(str(folder)) as copies:
            path = folder if clock.now_ns >= context.view_end_ns else Path(copies.until(clock.now_ns))
            return answer_ok(analysis_text(analyse(path, at_ns=moment_ns)))

    return build_tool(diagnose)
