"""Spectral residual: what is left of a stream's spectrum after its smooth part is taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Detection, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import read_held_out
from faultset.baselines.features.role_streams import services
from faultset.baselines.stats.limits import reference_limit
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

AVERAGED = 3
COMPARED = 21
AHEAD = 5
LIMIT = 3.0
LEAST_WINDOW = 8
STILL = 0.05
_TINY = 1e-8


def saliency(streams: Matrix) -> Matrix:
    """Saliency map of each stream along the last axis.

    `|IFFT(exp(R + i·phase))|`, where R is the log amplitude spectrum without its moving average over three
    frequencies.

    >>> series = np.ones(16)
    >>> series[10] = 5
    >>> int(saliency(series).argmax())
    10
    """
    spectrum = np.fft.fft(streams, axis=-1)
    amplitude = np.abs(spectrum)
    # Frequencies that are absent have no phase and must not become infinitely quiet.
    log_amplitude = np.log(np.maximum(amplitude, _TINY))
    padding = [(0, 0)] * (streams.ndim - 1) + [(AVERAGED // 2, AVERAGED // 2)]
    padded = np.pad(log_amplitude, padding, mode="edge")
    smooth = np.lib.stride_tricks.sliding_window_view(padded, AVERAGED, axis=-1).mean(axis=-1)
    phase = spectrum / np.maximum(amplitude, _TINY)
    return np.abs(np.fft.ifft(np.exp(log_amplitude - smooth) * phase, axis=-1))


def extended(streams: Matrix, ahead: int = AHEAD) -> Matrix:
    """Append to each stream what was to be expected, so that the last sample is not at the edge.

    The last sample itself is left out of the estimate, as in the published code: otherwise what is appended would be
    further off than an outlier is.

    >>> extended(np.array([0.0, 1, 2, 3, 4, 5, 6, 60]), 2)[-3:].tolist()
    [60.0, 7.0, 7.0]
    """
    known = streams[..., -2 - ahead : -1]
    steps = np.arange(known.shape[-1] - 1, 0, -1)
    gradient = ((known[..., -1:] - known[..., :-1]) / steps).mean(axis=-1)
    return np.concatenate([streams, np.repeat((known[..., -1] + gradient)[..., None], ahead, axis=-1)], axis=-1)


def residual_scores(streams: Matrix, window: int) -> Matrix:
    """Score of each row by the `window` rows up to and with it.

    Parameters
    ----------
    streams
        [T, p]; the first `window - 1` rows have no score.

    Returns
    -------
    ndarray
        [T - window + 1, p] how far the saliency of the last sample exceeds the mean of those before it, in units of
        this mean.
    """
    pieces = np.lib.stride_tricks.sliding_window_view(streams, window, axis=0)
    found = saliency(extended(pieces))
    before = found[..., max(0, window - 1 - COMPARED) : window - 1].mean(axis=-1)
    scores = (found[..., window - 1] - before) / np.maximum(before, _TINY)
    # Saliency has no scale, so in a stream that stands still rounding errors would stand out.
    return np.where(pieces.std(axis=-1) > STILL, scores, 0.0)


@baseline(
    "spectral-residual",
    title="Spectral residual",
    task="detection",
    paper="Ren et al., KDD 2019 (SR)",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + p·T·w·log w)",
    departures=(
        "Looks at log(1 + largest |z| that lasts for two samples) of each service, and scores an instant by its most "
        "salient stream: a single series often stands still, and then any wiggle is salient.",
        "The window ends at the instant that is scored and is half as long as the reference.",
        "The threshold is three, or what the reference reaches where that is more.",
        "The score stays at the largest so far, since a fault that lasts is salient only when it comes.",
        "Without the convolutional network that the paper trains on top.",
    ),
)
class SpectralResidualDetector(Untrained):
    """Detect samples that stand out of the recent course of some stream.

    It is made for spikes and steps: of a fault that lasts it sees the beginning.

    References
    ----------
    Ren, Xu, Wang, Yi, Huang, Kou, Xing, Yang, Tong, Zhang, Time-Series Anomaly Detection Service at Microsoft, KDD
    2019.
    """

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its most salient stream."""
        found = read_held_out(episode)
        if found is None:
            return Detection.silent(LIMIT)
        streams = services(found.lasting)
        healthy = len(streams.normal)
        window = max(LEAST_WINDOW, healthy // 2)
        scores = residual_scores(streams.both, window).max(axis=1)
        first = healthy - window + 1
        # It sees changes, not states: what stood out counts until the end.
        standing = np.maximum.accumulate(scores[first:])
        return found.detection(standing, reference_limit(scores[:first], least=LIMIT), consecutive=1)
