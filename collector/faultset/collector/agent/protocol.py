"""What the node agent and the collector have agreed on."""

from __future__ import annotations

AGENT_PORT = 9465
TOKEN_HEADER = "X-Faultset-Token"

TOKEN_VARIABLE = "FAULTSET_AGENT_TOKEN"
"""Environment variable with the token that every request must carry."""

NAMESPACE_VARIABLE = "FAULTSET_AGENT_NAMESPACE"
"""Environment variable that names the only namespace whose pods the agent touches."""

LEASE_S = 30.0
"""How long an impairment lasts when nobody renews it."""

VOLUME_ROOT = "/var/lib/faultset"
"""Folder of a node below which the volumes of databases lie."""
