"""Both windows of an episode in units of each series' healthy spread, so that units of measurement do not decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor

if TYPE_CHECKING:
    from faultset.baselines.features.windows import Windows

CLIP = 100.0


def healthy_spreads(windows: Windows, *, stopped: bool = True) -> tuple[Matrix, Matrix]:
    """Reference and test window in healthy spreads, cut at a hundred.

    Parameters
    ----------
    stopped
        A series that stopped stands at ten; otherwise, like any gap, at its usual level.
    """
    mean, sd = mean_and_sd(windows.reference)
    scale = with_metric_floor(sd, windows.series)
    nothing = np.zeros(windows.reference.shape, dtype=bool)
    absent = windows.absent if stopped else np.zeros_like(windows.absent)
    healthy = deviations(windows.reference, mean, scale, nothing)
    since = deviations(windows.values, mean, scale, absent)
    return np.clip(healthy, -CLIP, CLIP), np.clip(since, -CLIP, CLIP)
