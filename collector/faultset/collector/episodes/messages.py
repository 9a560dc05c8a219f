"""Messages between a campaign and the process of an episode: one JSON line each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from faultset.collector.plans.plan import Plan


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_line(self) -> str:
        """Return the message as one line of JSON, with its line end."""
        return self.model_dump_json() + "\n"


class EpisodeAssignment(_Message):
    """What the process of an episode is given.

    Attributes
    ----------
    root
        The dataset's folder.
    parent
        Process id of the campaign; the episode ends with it.
    parallel
        How many episodes the campaign runs at a time.
    settings
        Settings of the platform's host.
    """

    plan: Plan
    root: Path
    parent: int
    parallel: int
    settings: dict[str, Any]


class PhaseReport(_Message):
    """An episode has entered a phase, which is expected to end at `end_ns`."""

    kind: Literal["phase"] = "phase"
    phase: str
    end_ns: int | None


class EpisodeOutcome(_Message):
    """How an episode ended: its verdict, or why there is none.

    Attributes
    ----------
    failure
        Why the episode came to nothing; empty when it did not.
    retriable
        Whether the same plan may succeed when it is run again.
    exit_code
        The command's exit code for this kind of failure.
    logs
        Folder with the logs and the journal of a failed episode.
    """

    kind: Literal["outcome"] = "outcome"
    episode: str
    failure: str = ""
    verdict: str | None = None
    interrupted: bool = False
    retriable: bool = True
    exit_code: int = 0
    durations_s: dict[str, float] = Field(default_factory=dict)
    sli_fires: bool = False
    latent_fires: bool = False
    logs: Path | None = None


EpisodeMessage = PhaseReport | EpisodeOutcome
_MESSAGES: TypeAdapter[EpisodeMessage] = TypeAdapter(Annotated[EpisodeMessage, Field(discriminator="kind")])


def read_message(line: str) -> EpisodeMessage:
    """Return the message that an episode's process has written as one line."""
    return _MESSAGES.validate_json(line)
