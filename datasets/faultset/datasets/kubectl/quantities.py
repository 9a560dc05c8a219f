"""CPU and memory as kubectl prints them."""

from __future__ import annotations

USAGE_COLUMNS = ("CPU(cores)", "MEMORY(bytes)")
"""What `kubectl top` shows of a pod."""


def cpu_text(cores: float) -> str:
    """Return CPU in thousandths of a core.

    >>> cpu_text(0.25)
    '250m'
    """
    return f"{round(1000 * cores)}m"


def memory_text(memory_bytes: float) -> str:
    """Return memory in mebibytes.

    >>> memory_text(64 * 2**20)
    '64Mi'
    """
    return f"{round(memory_bytes / 2**20)}Mi"
