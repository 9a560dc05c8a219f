"""Tasks and solvers that Inspect loads as `faultset` through the entry-point group `inspect_ai`."""

from faultset.agents.solvers import flash, gpt_w_shell, random_agent, react, scripted, stratus
from faultset.evaluators.agent_tasks.live import mitigation
from faultset.evaluators.agent_tasks.recorded import detection, localization, root_cause

__all__ = [
    "detection",
    "flash",
    "gpt_w_shell",
    "localization",
    "mitigation",
    "random_agent",
    "react",
    "root_cause",
    "scripted",
    "stratus",
]
