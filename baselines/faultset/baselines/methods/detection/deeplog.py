"""DeepLog: lines that are unexpected after the previous lines, according to counts or an LSTM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import Detection, Evidence, TrainingFreeBaseline
from faultset.baselines.features.held_out import MIN_SAMPLES
from faultset.baselines.features.log_lines import TemplateLines, read_template_lines
from faultset.baselines.features.role_streams import RECENT, Ints, excess_surprise, read_steps, sum_recent
from faultset.baselines.methods.detection.neural_detectors import neural_detector
from faultset.baselines.networks import (
    Parameters,
    dense,
    dense_parameters,
    log_softmax,
    lstm_last,
    lstm_parameters,
    train,
)
from faultset.baselines.registry import detector
from faultset.baselines.stats.scaling import LEVEL, distinct, reference_limit
from faultset.datasets.views import EpisodeView

ORDER = 3
TOP = 9
_MAX_EVIDENCE = 5
Flags = npt.NDArray[np.bool_]


def find_unexpected_lines(
    templates: Ints, groups: Ints, healthy: Flags, *, order: int = ORDER, top: int = TOP, leave_out: bool = True
) -> Flags:
    """Return which lines are not among the likely successors of the previous lines.

    Without `leave_out`, `logs.scores.NextTemplate` gives the same result for one sequence; this function handles all
    groups at once. The longest context that occurs in healthy lines is used. The likely successors are the `top` most
    frequent ones, but at most half of the group's healthy templates.

    Parameters
    ----------
    templates, groups
        [L] template and group of each line, ordered by time within each group.
    leave_out
        Whether to exclude a healthy line from the counts used for that line.
    """
    count = len(templates)
    sequence = np.argsort(groups, kind="stable")
    token, owner, is_healthy = templates[sequence], groups[sequence], healthy[sequence]
    kinds = int(templates.max()) + 1 if count else 1
    position = np.arange(count) - np.searchsorted(owner, owner)
    likely_count = _count_likely(owner, token, is_healthy, kinds, top)
    missed = np.ones(count, dtype=bool)
    context = owner
    for length in range(1, min(order, count - 1) + 1):
        previous = np.concatenate([np.zeros(length, dtype=np.int64), token[:-length]])
        context = distinct(context * kinds + previous).code
        rows = np.flatnonzero(position >= length)
        seen, likely = _judge(context[rows], token[rows], is_healthy[rows], kinds, likely_count[rows], leave_out)
        # Use the longest context that was seen.
        missed[rows[seen]] = ~likely[seen]
    verdicts = np.empty(count, dtype=bool)
    verdicts[sequence] = missed
    return verdicts


def _count_likely(owner: Ints, token: Ints, healthy: Flags, kinds: int, top: int) -> Ints:
    """Return the number of likely successors per line, at most half of its group's healthy templates."""
    pairs = distinct(owner[healthy] * kinds + token[healthy]).values
    vocabulary = np.bincount(pairs // kinds, minlength=int(owner.max()) + 1 if len(owner) else 1)
    return np.minimum(top, np.maximum(1, vocabulary // 2))[owner]


def _judge(
    context: Ints, token: Ints, healthy: Flags, kinds: int, likely_count: Ints, leave_out: bool
) -> tuple[Flags, Flags]:
    """Return whether each line's context occurs in healthy lines, and whether the line is a likely successor."""
    pairs, _, pair = distinct(context * kinds + token)
    counts = np.bincount(pair[healthy], minlength=len(pairs))
    pair_context = pairs // kinds
    # Rank of each pair within its context; ties by template number.
    order = np.lexsort([pairs, -counts, pair_context])
    rank = np.empty(len(pairs), dtype=np.int64)
    rank[order] = np.arange(len(pairs)) - np.searchsorted(pair_context[order], pair_context[order])
    self_count = healthy.astype(np.int64) if leave_out else np.zeros(len(token), dtype=np.int64)
    seen = np.bincount(context[healthy], minlength=int(context.max()) + 1 if len(context) else 1)[context] > self_count
    return seen, (counts[pair] > self_count) & (rank[pair] < likely_count)


class UnexpectedLinesDetector(TrainingFreeBaseline):
    """Base class of DeepLog variants: an anomaly is an unlikely number of unexpected lines."""

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every step after the reference by the service whose count of unexpected lines is least likely."""
        lines = read_template_lines(episode)
        steps = read_steps(episode)
        step = steps.of(lines.times_ns)
        healthy = (step >= 0) & (step < steps.healthy)
        if steps.healthy < MIN_SAMPLES or not healthy.any():
            return Detection.silent()
        missed = self._find_unexpected(lines, healthy)
        if missed is None:
            return Detection.silent()
        count = len(episode.services)
        line_counts = sum_recent(steps.counts(lines.times_ns, lines.services, count))
        unexpected_counts = sum_recent(steps.counts(lines.times_ns[missed], lines.services[missed], count))
        healthy_lines = np.bincount(lines.services[healthy], minlength=count)
        healthy_unexpected = np.bincount(lines.services[healthy & missed], minlength=count)
        surprise = excess_surprise(unexpected_counts, line_counts, (healthy_unexpected + 0.5) / (healthy_lines + 1.0))
        # A service without lines in the reference has no usual rate.
        surprise[:, healthy_lines == 0] = 0.0
        scores = surprise.max(axis=1)
        limit = reference_limit(scores[RECENT - 1 : steps.healthy], minimum=float(np.log10(count / LEVEL)))

        def explain(row: int) -> list[Evidence]:
            rows = missed & (step >= steps.healthy) & (lines.times_ns < steps.times_ns[row])
            return _list_frequent_lines(lines, rows, episode)

        return Detection.from_scores(steps.times_ns, scores[steps.healthy :], limit, evidence=explain)

    def _find_unexpected(self, lines: TemplateLines, healthy: Flags) -> Flags | None:
        """Return which lines were unexpected after the previous lines; None before training."""
        raise NotImplementedError


@detector(
    "deeplog-markov",
    title="DeepLog (Markov form)",
    paper="Du, Li, Zheng, Srikumar, CCS 2017",
    kind="own",
    tables=("logs",),
    complexity="O(L·h·log L + services·T)",
    departures=(
        "Counts of the next template after up to three previous ones replace the network, because a few minutes of "
        "logs are too little training data.",
        "Parameter values are ignored.",
        "An anomaly is an unlikely number of unexpected lines within five steps, not a single one.",
    ),
)
class DeepLogMarkovDetector(UnexpectedLinesDetector):
    """Detect when a service writes more unexpected lines than in the reference, by counts.

    Parameters
    ----------
    order
        Largest number of previous lines in a context.
    top
        Largest number of successors that count as expected.

    References
    ----------
    Du, Li, Zheng, Srikumar, DeepLog: Anomaly Detection and Diagnosis from System Logs through Deep Learning, CCS 2017.
    """

    def __init__(self, *, order: int = ORDER, top: int = TOP) -> None:
        self.order = order
        self.top = top

    def _find_unexpected(self, lines: TemplateLines, healthy: Flags) -> Flags:
        return find_unexpected_lines(lines.templates, lines.services, healthy, order=self.order, top=self.top)


def _list_frequent_lines(lines: TemplateLines, rows: Flags, episode: EpisodeView) -> list[Evidence]:
    kinds, counts = np.unique(lines.services[rows] * len(lines.texts) + lines.templates[rows], return_counts=True)
    services = sorted(episode.services)
    reported = sorted(
        (-number, services[kind // len(lines.texts)], lines.texts[kind % len(lines.texts)])
        for kind, number in zip(kinds.tolist(), counts.tolist(), strict=True)
    )
    return [
        Evidence(service=service, subject=text or "(empty line)", score=float(-number), detail="unexpected lines")
        for number, service, text in reported[:_MAX_EVIDENCE]
    ]


HISTORY = 10
MAX_TEMPLATES = 256
MAX_WINDOWS = 20_000
BATCH = 128
UPDATES = 400
_WIDTH = 16
_UNKNOWN, _PADDING = 0, 1
"""Codes of unknown templates and of positions before a service's first line."""
_SHARED_DEPARTURES = (
    "The network has one layer instead of two, and learned template vectors as input.",
    "One model is shared by all services, and each service has its own sequence of lines.",
    "Parameter values are ignored.",
    "An anomaly is an unlikely number of unexpected lines within five steps, not a single one.",
    "Templates that are not in the training data are unexpected in the reference as well.",
)


@dataclass(frozen=True, kw_only=True)
class NextTemplateNetwork:
    """A trained network and the templates of its training data."""

    codes: Mapping[str, int]
    parameters: Parameters

    def windows(self, lines: TemplateLines) -> Ints:
        """Return codes [lines, HISTORY + 1] of the previous templates of the same service and of the line itself."""
        numbers = np.array([self.codes.get(text, _UNKNOWN) for text in lines.texts] or [0], dtype=np.int64)
        order = np.argsort(lines.services, kind="stable")
        owner, token = lines.services[order], numbers[lines.templates[order]]
        position = np.arange(len(order)) - np.searchsorted(owner, owner)
        numbers_before = np.empty((len(order), HISTORY + 1), dtype=np.int64)
        for back in range(HISTORY + 1):
            shifted = np.concatenate([np.full(back, _PADDING), token[: len(token) - back]])[: len(token)]
            numbers_before[order, HISTORY - back] = np.where(position >= back, shifted, _PADDING)
        return numbers_before

    def misses(self, windows: Ints, top: int) -> Flags:
        """Return whether each line has an unknown template, or is not among the `top` most likely ones."""
        unique, inverse = np.unique(windows, axis=0, return_inverse=True)
        shares = log_shares(np, self.parameters, unique[:, :-1])
        actual = np.take_along_axis(shares, unique[:, -1:], axis=1)
        missed = ((shares > actual).sum(axis=1) >= top) | (unique[:, -1] == _UNKNOWN)
        return missed[inverse.ravel()]


def log_shares(xp: Any, parameters: Parameters, previous: Any) -> Any:
    """Return log probabilities [B, templates] of the next template."""
    output, _ = lstm_last(xp, parameters["cell"], parameters["vectors"][previous])
    return log_softmax(xp, dense(xp, parameters["output"], output))


def mean_cross_entropy(xp: Any, parameters: Parameters, batch: tuple[Any, ...], _: Any) -> Any:
    """Return the mean cross entropy of the next template."""
    (windows,) = batch
    return -xp.take_along_axis(log_shares(xp, parameters, windows[:, :-1]), windows[:, -1:], axis=1).mean()


@neural_detector(
    "deeplog-lstm",
    title="DeepLog (LSTM)",
    paper="Du, Li, Zheng, Srikumar, CCS 2017",
    tables=("logs",),
    complexity="O(L + U·w·h²), U distinct sequences of w templates, h hidden units; a fit O(updates·w·h²)",
    departures=(*_SHARED_DEPARTURES, "The network is trained by Adam for a fixed number of updates."),
)
class DeepLogLSTM(UnexpectedLinesDetector):
    """Detect when a service writes more unexpected lines than in the reference, by an LSTM.

    Parameters
    ----------
    updates
        Steps of the optimizer, each on 128 lines with their context; 0 for random weights.
    hidden
        Units of the cell.
    top
        Number of successors that count as expected.
    seed
        Seed of the weights and of the order of lines.

    References
    ----------
    Du, Li, Zheng, Srikumar, DeepLog: Anomaly Detection and Diagnosis from System Logs through Deep Learning, CCS 2017.
    """

    def __init__(self, *, updates: int = UPDATES, hidden: int = 32, top: int = TOP, seed: int = 0) -> None:
        self.updates, self.hidden, self.top, self.seed = updates, hidden, top, seed
        self.model_: NextTemplateNetwork | None = None

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn the sequences of healthy logs; if there are none, `detect` raises no alarm."""
        lines_by_episode = [read_template_lines(episode) for episode in healthy]
        count: Counter[str] = Counter()
        for lines in lines_by_episode:
            times = np.bincount(lines.templates, minlength=len(lines.texts)).tolist()
            count.update(dict(zip(lines.texts, times, strict=True)))
        self.model_ = None
        if not count:
            return self
        # Ties by text, so that the order of episodes does not matter.
        texts = sorted(count, key=lambda text: (-count[text], text))[:MAX_TEMPLATES]
        numbers = {text: number + 2 for number, text in enumerate(texts)}
        network = NextTemplateNetwork(codes=numbers, parameters=self._draw_parameters(len(numbers) + 2))
        windows = np.concatenate([network.windows(lines) for lines in lines_by_episode if len(lines.templates)])
        windows = windows[:: -(-len(windows) // MAX_WINDOWS)]
        if self.updates:
            parameters = train(
                network.parameters,
                [(mean_cross_entropy, ("vectors", "cell", "output"))],
                [windows],
                updates=self.updates,
                batch=BATCH,
                seed=self.seed,
            )
            network = NextTemplateNetwork(codes=numbers, parameters=parameters)
        self.model_ = network
        return self

    def _draw_parameters(self, templates: int) -> Parameters:
        rng = np.random.default_rng(self.seed)
        return {
            "vectors": rng.normal(0.0, 0.3, (templates, _WIDTH)),
            "cell": lstm_parameters(rng, _WIDTH, self.hidden),
            "output": dense_parameters(rng, self.hidden, templates),
        }

    def _find_unexpected(self, lines: TemplateLines, healthy: Flags) -> Flags | None:
        network = self.model_
        return None if network is None else network.misses(network.windows(lines), self.top)


@neural_detector(
    "untrained-deeplog-lstm",
    title="Untrained DeepLog (LSTM)",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    tables=("logs",),
    complexity="O(L + U·w·h²), U distinct sequences of w templates, h hidden units",
    departures=_SHARED_DEPARTURES,
)
class UntrainedDeepLogLSTM(DeepLogLSTM):
    """Control: DeepLog's network with its initial weights and the same templates.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def __init__(self, *, hidden: int = 32, top: int = TOP, seed: int = 0) -> None:
        super().__init__(updates=0, hidden=hidden, top=top, seed=seed)
