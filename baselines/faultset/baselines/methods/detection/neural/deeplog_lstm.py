"""DeepLog with its network: lines that an LSTM, trained on healthy logs of other episodes, does not expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.features.step_counts import Ints
from faultset.baselines.logs.templates import TemplateLines, read_template_lines
from faultset.baselines.methods.detection.deeplog import UnexpectedLinesDetector, Verdicts
from faultset.baselines.methods.detection.neural.registration import neural_detector
from faultset.baselines.neural.networks import (
    Parameters,
    dense,
    dense_parameters,
    log_softmax,
    lstm_last,
    lstm_parameters,
)
from faultset.baselines.neural.training import trained

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

HISTORY = 10
TOP = 9
MOST_TEMPLATES = 256
MOST_WINDOWS = 20_000
BATCH = 128
UPDATES = 400
_WIDTH = 16
_UNKNOWN, _BEFORE = 0, 1
"""Numbers of templates that training did not show, and of the time before a service's first line."""
_SHARED = (
    "One layer instead of two, on vectors that are learned for templates; one model for the lines of all services, "
    "each service a sequence of its own.",
    "Parameter values are not looked at.",
    "A single unexpected line is no anomaly: more of them within five steps than the reference makes likely are.",
    "A template that training did not show is unexpected, also in the reference, which then makes it likely.",
)


@dataclass(frozen=True, kw_only=True)
class NextTemplateNetwork:
    """A trained network with the templates that it knows."""

    known: Mapping[str, int]
    parameters: Parameters

    def windows(self, lines: TemplateLines) -> Ints:
        """[lines, HISTORY + 1] numbers of the templates before each line of its service, and its own."""
        numbers = np.array([self.known.get(text, _UNKNOWN) for text in lines.texts] or [0], dtype=np.int64)
        order = np.argsort(lines.services, kind="stable")
        owner, token = lines.services[order], numbers[lines.templates[order]]
        place = np.arange(len(order)) - np.searchsorted(owner, owner)
        found = np.empty((len(order), HISTORY + 1), dtype=np.int64)
        for back in range(HISTORY + 1):
            shifted = np.concatenate([np.full(back, _BEFORE), token[: len(token) - back]])[: len(token)]
            found[order, HISTORY - back] = np.where(place >= back, shifted, _BEFORE)
        return found

    def misses(self, windows: Ints, top: int) -> Verdicts:
        """[lines] whether each line is not among the `top` that the network holds most likely."""
        unique, which = np.unique(windows, axis=0, return_inverse=True)
        shares = log_shares(np, self.parameters, unique[:, :-1])
        own = np.take_along_axis(shares, unique[:, -1:], axis=1)
        missed = ((shares > own).sum(axis=1) >= top) | (unique[:, -1] == _UNKNOWN)
        return missed[which.ravel()]


def log_shares(xp: Any, parameters: Parameters, before: Any) -> Any:
    """[B, templates] log probability of what comes next."""
    output, _ = lstm_last(xp, parameters["cell"], parameters["vectors"][before])
    return log_softmax(xp, dense(xp, parameters["output"], output))


def surprise(xp: Any, parameters: Parameters, batch: tuple[Any, ...], _: Any) -> Any:
    """Mean cross entropy of the template that came."""
    (windows,) = batch
    return -xp.take_along_axis(log_shares(xp, parameters, windows[:, :-1]), windows[:, -1:], axis=1).mean()


@neural_detector(
    "deeplog-lstm",
    title="DeepLog (LSTM)",
    paper="Du, Li, Zheng, Srikumar, CCS 2017",
    kind="method",
    tables=("logs",),
    complexity="O(L + U·w·h²), U sequences of w templates that differ, h hidden units; a fit O(updates·w·h²)",
    departures=(*_SHARED, "The network is trained by Adam for a fixed number of updates."),
)
class DeepLogLSTM(UnexpectedLinesDetector):
    """Detect when a service writes more lines that the network did not expect than it does when healthy.

    Parameters
    ----------
    updates
        Steps of the optimizer, each on 128 lines with those before them; 0 leaves the weights as they were drawn.
    hidden
        Units of the cell.
    top
        Successors that count as expected.
    seed
        Of the weights and of the order of the lines.

    References
    ----------
    Du, Li, Zheng, Srikumar, DeepLog: Anomaly Detection and Diagnosis from System Logs through Deep Learning, CCS 2017.
    """

    def __init__(self, *, updates: int = UPDATES, hidden: int = 32, top: int = TOP, seed: int = 0) -> None:
        self.updates, self.hidden, self.top, self.seed = updates, hidden, top, seed
        self.model_: NextTemplateNetwork | None = None

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn what follows on what in healthy logs; without any lines, `detect` is silent."""
        read = [read_template_lines(episode) for episode in healthy]
        count: Counter[str] = Counter()
        for lines in read:
            times = np.bincount(lines.templates, minlength=len(lines.texts)).tolist()
            count.update(dict(zip(lines.texts, times, strict=True)))
        self.model_ = None
        if not count:
            return self
        # The most frequent, ties by text, so that the order of the episodes cannot matter.
        texts = sorted(count, key=lambda text: (-count[text], text))[:MOST_TEMPLATES]
        known = {text: number + 2 for number, text in enumerate(texts)}
        network = NextTemplateNetwork(known=known, parameters=self._initial(len(known) + 2))
        windows = np.concatenate([network.windows(lines) for lines in read if len(lines.templates)])
        windows = windows[:: -(-len(windows) // MOST_WINDOWS)]
        if self.updates:
            parameters = trained(
                network.parameters,
                [(surprise, ("vectors", "cell", "output"))],
                [windows],
                updates=self.updates,
                batch=BATCH,
                seed=self.seed,
            )
            network = NextTemplateNetwork(known=known, parameters=parameters)
        self.model_ = network
        return self

    def _initial(self, templates: int) -> Parameters:
        rng = np.random.default_rng(self.seed)
        return {
            "vectors": rng.normal(0.0, 0.3, (templates, _WIDTH)),
            "cell": lstm_parameters(rng, _WIDTH, self.hidden),
            "output": dense_parameters(rng, self.hidden, templates),
        }

    def _unexpected(self, lines: TemplateLines, healthy: Verdicts) -> Verdicts | None:
        network = self.model_
        return None if network is None else network.misses(network.windows(lines), self.top)


@neural_detector(
    "untrained-deeplog-lstm",
    title="Untrained DeepLog (LSTM)",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    tables=("logs",),
    complexity="O(L + U·w·h²), U sequences of w templates that differ, h hidden units",
    departures=_SHARED,
)
class UntrainedDeepLogLSTM(DeepLogLSTM):
    """Control: DeepLog's network with the weights that its training would begin with, and the same templates.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def __init__(self, *, hidden: int = 32, top: int = TOP, seed: int = 0) -> None:
        super().__init__(updates=0, hidden=hidden, top=top, seed=seed)
