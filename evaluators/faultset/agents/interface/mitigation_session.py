"""One attempt of an agent at the repair of a live system."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from faultset.agents.interface.session import AgentSession
from faultset.datasets.kubectl.answers import ToolAnswer
from faultset.datasets.tools.toolset import EpisodeTools

Summary = Annotated[str, Field(max_length=4000, description="What was broken, and what you did about it.")]


INSTRUCTIONS = (
    "You operate a live system of microservices in which something is broken. Find the root cause and repair it: "
    "clients must be served again, and every object must be specified as it was while all was healthy, with nothing "
    "missing. The tools show the system up to the present moment; kubectl reads it and changes it, within the "
    "application's namespace only. Change as little as you can, and look whether it helped. End with one call of "
    "submit_mitigation, with which the system is handed back."
)


class MitigationSession(AgentSession):
    """What an agent may do with a live system, until it says that it is done.

    Parameters
    ----------
    tools
        Of the episode that goes on, of which kubectl changes the system.
    """

    def __init__(self, tools: EpisodeTools) -> None:
        self._begin(tools, "mitigation", "submit_mitigation")
        self.instructions = INSTRUCTIONS

    def submit_mitigation(self, summary: Summary = "") -> ToolAnswer:
        """Say that the work is done, and end."""
        return self._done({"summary": summary})
