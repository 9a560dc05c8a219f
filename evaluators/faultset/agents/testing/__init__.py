"""The check of what a format of recorded runs promises, for the tests of any distribution that has one."""

from faultset.agents.testing.agent_format import check_agent_format

__all__ = ["check_agent_format"]
