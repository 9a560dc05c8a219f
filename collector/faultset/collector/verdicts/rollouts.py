"""Rollouts of healthy builds beside the fault, as the evidence of an episode tells of them."""

from __future__ import annotations

import pandas as pd

ROLLOUT = "rollout"
"""Check of the rows of evidence whose subject had a healthy build rolled out."""


def rolled_out_services(evidence: pd.DataFrame) -> frozenset[str]:
    """Return the services whose telemetry has moved because a healthy build was rolled out."""
    return frozenset(evidence.loc[evidence["check"] == ROLLOUT, "subject"].astype(str))
