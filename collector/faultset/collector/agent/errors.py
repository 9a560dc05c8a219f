"""What the agent will not or cannot do."""

from __future__ import annotations


class AgentError(Exception):
    """One sentence for the collector: what was asked and why it is not done."""
