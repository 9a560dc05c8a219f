"""The states that kube-state-metrics has a series for, which is 1 while the state holds."""

from __future__ import annotations

POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
CLAIM_PHASES = ("Pending", "Bound", "Lost")
VOLUME_PHASES = ("Available", "Bound", "Released", "Failed", "Pending")
WAITING_REASONS = (
    "ContainerCreating",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "ImagePullBackOff",
    "RunContainerError",
)
TERMINATED_REASONS = ("Completed", "Error", "OOMKilled", "StartError")
