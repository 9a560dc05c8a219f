"""Tasks and solvers that Inspect loads as `faultset` through the entry-point group `inspect_ai`."""

from faultset.agents.solvers.controls import random_agent, scripted
from faultset.agents.solvers.model_agents import flash, gpt_w_shell, react, stratus
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
