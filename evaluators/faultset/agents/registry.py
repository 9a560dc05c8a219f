"""Agents that can be run, found through the entry-point group `faultset.agents`."""

from __future__ import annotations

from typing import Any

from faultset.agents.running.contract import Agent
from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class

GROUP = "faultset.agents"
_WORDS = ("name", "title", "version", "kind")


def agent_names() -> list[str]:
    """Return the names of all agents, without loading any."""
    return list(plugins(GROUP))


def all_agents() -> dict[str, Agent]:
    """Return every agent that can be loaded, by name; one that cannot is named in a warning."""
    return load_plugins(GROUP, _made)


def reference_agent(name: str) -> Agent:
    """Return an agent; raise UsageError for a name that is not known or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="agent", accept=_made)


def _made(name: str, loaded: Any) -> Agent:
    require_class(loaded, "act")
    made: Agent = loaded()
    for word in _WORDS:
        if not isinstance(getattr(made, word, None), str):
            raise UsageError(f'the agent has no text "{word}"')
    if made.name != name:
        raise UsageError(f'the agent calls itself "{made.name}", and both names must be the same')
    if made.kind not in ("agent", "control"):
        raise UsageError(f'the kind of the agent is "{made.kind}"; wanted is agent or control')
    for flag in ("needs_model", "stochastic"):
        if not isinstance(getattr(made, flag, None), bool):
            raise UsageError(f"the agent does not say whether {flag} is True or False")
    return made
