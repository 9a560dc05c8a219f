"""What samples of our Inspect tasks say about their question, so that a log can be scored later."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

QUESTION = "faultset"
"""Key of the question in the metadata of a sample; its value is an `AskedQuestion`."""
CANDIDATES = "candidates"
"""Key of the services that an answer may name."""
CLUSTER = "cluster"
"""Key of the fault and its place; samples of one cluster are nearly one observation."""
REPORT = "faultset"
"""Key of the session's report in the store of a sample."""
AGENT = "faultset_agent"
"""Key of an agent of ours in the store of a sample; its value is an `AgentRecord`."""


class AskedQuestion(BaseModel):
    """The question of a sample."""

    model_config = ConfigDict(frozen=True)

    task: Literal["detection", "localization", "diagnosis", "all", "mitigation"]
    folder: str = ""
    """Dataset of a recorded episode."""
    version: str = ""
    protocol: str | None = None
    alarm_ns: int | None = None
    alarm_detector: str | None = None


class AgentRecord(BaseModel):
    """Which agent of ours answered."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    kind: str
    """agent, or control for one without a model."""
