"""How long a container takes to start, as clients see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """Waits on the way from a decision to a program that listens, in seconds.

    Attributes
    ----------
    sandbox_s
        From the scheduling of a pod to the start of its containers.
    noticed_s
        From the end of a container until the kubelet looks at the pod again.
    program_s
        From the start of a container until its program runs.
    probe_again_s
        From a failed readiness probe of a container that was never ready to the next one; None for as long as the
        probe says.
    """

    sandbox_s: float = 0.0
    noticed_s: float = 0.0
    program_s: float = 0.0
    probe_again_s: float | None = None


AT_ONCE = StartTimes()
BEFORE_CLIENTS = StartTimes(probe_again_s=0.1)
"""What holds until there are clients who could notice."""
AS_ON_A_CLUSTER = StartTimes(sandbox_s=0.6, noticed_s=1.0, program_s=1.5)
"""Medians on a single node, containerd, the image present: sandbox and task; the kubelet's relist; a program's imports
under the limit of its processor time. Here a program is a fork of a process that has imported all of it."""
