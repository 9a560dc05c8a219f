"""Error lines counted on the grid of an episode."""

import numpy as np

from faultset.baselines import read_frame


def error_counts(episode, steps):
    """Return the end of each step, and the number of error lines in the last `steps` steps until then."""
    start_ns, end_ns = episode.window
    step_ns = round(episode.context.resolution_s * 1e9)
    times_ns = np.append(np.arange(start_ns + step_ns, end_ns, step_ns), end_ns)
    logs = read_frame(episode, "logs", ("time", "level"))
    errors = logs["time"][logs["level"].isin(("error", "fatal"))].to_numpy()
    before = np.searchsorted(errors, times_ns - steps * step_ns)
    return times_ns, np.searchsorted(errors, times_ns) - before
