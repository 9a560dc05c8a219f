"""What the program in the pods and the collector have agreed on."""

from __future__ import annotations

SOCKET = "/tmp/faultset/agent.sock"
"""Where the watching process answers, in the file system of its container."""

LEASE_S = 30.0
"""How long an impairment lasts when nobody renews it."""

VOLUME_ROOT = "/var/lib/faultset"
"""Folder of a node below which the volumes of databases lie."""
