"""The contract check for formats of recorded runs, for the tests of plug-ins."""

from faultset.agents.testing.agent_format import check_agent_format

__all__ = ["check_agent_format"]
