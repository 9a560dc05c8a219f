"""The solvers that come with faultset, as a list for people; importing it needs the extra `inspect`."""

from __future__ import annotations

import inspect
from typing import Any

from faultset.agents.solvers import controls, model_agents

_AGENTS = {
    "react": model_agents.react,
    "gpt-w-shell": model_agents.gpt_w_shell,
    "flash": model_agents.flash,
    "stratus": model_agents.stratus,
}
_CONTROLS = {"random-agent": controls.random_agent, "scripted": controls.scripted}


def agent_records() -> list[dict[str, Any]]:
    """Return name, kind, whether a model is needed, and title of each solver."""
    return [
        {"name": name, "kind": kind, "model": model, "title": (inspect.getdoc(solver) or "").partition("\n")[0]}
        for kind, model, solvers in (("agent", "needed", _AGENTS), ("control", "none", _CONTROLS))
        for name, solver in solvers.items()
    ]
