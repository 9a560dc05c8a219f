"""Constants and the error that the agent shares with the collector."""

from __future__ import annotations

SOCKET = "/tmp/faultset/agent.sock"
"""Socket of the `watch` process, in its container's file system."""

LEASE_S = 30.0
"""How long an impairment lasts without renewal."""

VOLUME_ROOT = "/var/lib/faultset"
"""Node folder that contains the volumes of databases."""


class AgentError(Exception):
    """The agent refuses or cannot fulfil a request; the message is one sentence for the collector."""
