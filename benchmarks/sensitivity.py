"""Effect of the methods' defaults: each method's score over a few values of each default.

    python benchmarks/sensitivity.py DATASET [--methods mksmc,baro,...] [--write]

Prints tables in which defaults are bold; `--write` also puts them into sensitivity.md, which
docs/results/sensitivity.md shows. One default changes at a time. Localizers get the true onset of manifest faults;
detectors also run on episodes without a fault. Localizers that draw random numbers run with three seeds, detectors with
one. Methods run in this process, without limits.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np

from faultset.baselines.registry import BaselineSpec, get_baseline
from faultset.baselines.stats import scaling
from faultset.baselines.stats.scaling import LEVEL
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.dataset_source import truncate_episode
from faultset.evaluators.results.truth import Truth, build_truth
from faultset.evaluators.scoring.localization import score_ranking

PAGE = Path(__file__).with_suffix(".md")
SEEDS = 3
SECOND_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoarseContext(EpisodeContext):
    """A context with which methods compare metrics on a coarser grid."""

    factor: int = 1

    @property
    def resolution_s(self) -> float:
        return self.factor * super().resolution_s


class CoarseView(EpisodeView):
    """A view on which methods compare metrics on a coarser grid."""

    def __init__(self, path: Path, factor: int) -> None:
        super().__init__(path)
        fields = {entry.name: getattr(self._context, entry.name) for entry in dataclasses.fields(EpisodeContext)}
        self._context = CoarseContext(**fields, factor=factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedDefault:
    """A change of one default; by default nothing changes."""

    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Changed parameters of the method."""
    grid: int = 1
    """Size of a step, in steps of the usual grid."""
    seen_s: float = math.inf
    """Visible seconds of the episode after the onset."""
    shared: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Change that applies to all methods during the run."""


def metric_share(share: float) -> AbstractContextManager[Any]:
    """Change the floor of a series' spread, as a share of its metric's spread."""
    stack = ExitStack()
    for function in (scaling.metric_floor, scaling.with_metric_floor):
        stack.enter_context(patch.dict(function.__kwdefaults__, share=share))
    return stack


def relative_floor(share: float) -> AbstractContextManager[Any]:
    """Change the floor of a series' spread, as a share of its level."""
    return patch.object(scaling, "RELATIVE_FLOOR", share)


def _name(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(f"{number:g}" for number in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


Values = Mapping[str, ChangedDefault]
"""Name of a value in the table -> change that sets it."""
SHARED: Mapping[str, tuple[str, Values]] = {
    "floor, share of the level": (
        "0.01",
        {
            _name(share): ChangedDefault(shared=lambda share=share: relative_floor(share))
            for share in (0.0, 0.001, 0.01, 0.1)
        },
    ),
    "floor, share of the metric": (
        "0.25",
        {
            _name(share): ChangedDefault(shared=lambda share=share: metric_share(share))
            for share in (0.0, 0.1, 0.25, 0.5, 1.0)
        },
    ),
    "resolution, steps": ("1", {str(factor): ChangedDefault(grid=factor) for factor in (1, 2, 3)}),
}
SEEN: tuple[str, Values] = (
    "all",
    {"10 s": ChangedDefault(seen_s=10), "20 s": ChangedDefault(seen_s=20), "all": ChangedDefault()},
)
"""Seconds after the onset that a localizer sees."""
SEEN_SETTING = "seen after the onset"
PARAMETERS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "pdiagnose-detector": {"queue": (10, 5, 20), "share": (0.99, 0.95, 0.999)},
    "ksigma": {"level": (LEVEL, LEVEL / 10, LEVEL / 100)},
    "spot": {"level": (LEVEL, LEVEL / 10, LEVEL / 100)},
    "baro": {"sign": ("up", "both"), "keep_constant": (False, True)},
    "nsigma": {"sign": ("up", "both"), "keep_constant": (False, True)},
    "baro-two-sided": {},
    "nsigma-two-sided": {},
    "rcd": {"runs": (10, 1, 5), "per_service": (3, 1, 2, 5)},
    "circa": {"threshold": (3.0, 2.0, 5.0)},
    "epsilon-diagnosis": {"level": (0.05, 0.01, 0.1), "draws": (499, 99)},
    "microrank": {"sigmas": (1.5, 1.0, 3.0), "before": (2, 0, 5)},
    "tracerca": {"severity": (3.0, 2.0, 5.0), "feature_rise": (0.1, 0.0, 0.3), "min_support": (0.1, 0.0, 0.3)},
    "combined-evidence": {"min_strength": (1.0, 0.5, 2.0), "min_ratio": (0.5, 0.25, 1.0)},
}
"""Method -> parameter -> values, the default first; other methods declare values in their registration."""
NAMED = ("pdiagnose", "rmlad", "mksmc")
WITHOUT_FLOOR = frozenset({"baro", "nsigma"})
"""Methods on metrics whose spreads have no floor, as published."""


def settings_of(spec: BaselineSpec) -> Iterator[tuple[str, str, Values]]:
    """Yield settings of a method: setting, name of its default, values."""
    for parameter, values in (spec.open_settings or PARAMETERS.get(spec.name, {})).items():
        named = {_name(value): ChangedDefault(parameters={parameter: value}) for value in values}
        yield parameter, _name(values[0]), named
    if "metrics" in spec.tables:
        for setting, (default, values) in SHARED.items():
            if not (setting.startswith("floor") and spec.name in WITHOUT_FLOOR):
                yield setting, default, values
    if spec.task == "localization":
        yield SEEN_SETTING, *SEEN


def view_of(folder: Path, truth: Truth, change: ChangedDefault, root: Path) -> EpisodeView:
    """Return the view of an episode after a change of one default."""
    if truth.onset_ns is not None and math.isfinite(change.seen_s):
        copy = root / f"{truth.episode}-{change.seen_s:g}"
        end_ns = truth.onset_ns + round(change.seen_s * SECOND_NS)
        existing = copy / "episodes" / truth.episode
        folder = existing if existing.exists() else truncate_episode(folder, end_ns, copy)
    return CoarseView(folder, change.grid) if change.grid > 1 else EpisodeView(folder)


def score(spec: BaselineSpec, dataset: Dataset, truths: Iterable[Truth], change: ChangedDefault, root: Path) -> str:
    """Return AC@1 of a localizer, or the balanced accuracy of a detector."""
    right: dict[bool, list[float]] = {True: [], False: []}
    seeds = SEEDS if spec.stochastic and spec.task == "localization" else 1
    for truth in truths:
        if spec.task == "localization" and not truth.faulty:
            continue
        view = view_of(dataset.path(truth.episode), truth, change, root)
        for seed in range(seeds):
            unfitted: Any = spec.build(seed=seed, **change.parameters)
            method = unfitted.fit([])
            with change.shared():
                if spec.task == "localization":
                    ranking = method.localize(view, truth.onset_ns).scores
                    scored = score_ranking(ranking, [frozenset(names) for names in truth.causes], truth.candidates)
                    right[True].append(scored.ac(1))
                else:
                    alarm_ns = method.detect(view).alarm_ns
                    hit = alarm_ns is not None and alarm_ns >= truth.onset_ns if truth.faulty else alarm_ns is None
                    right[truth.faulty].append(float(hit))
    shares = [np.mean(values) for values in right.values() if values]
    return f"{np.mean(shares):.2f}"


SMALL = 0.1
"""Smallest change of a score that gets a cell or a line."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Scores of one method over the values of one setting."""

    method: str
    setting: str
    default: str
    scores: Mapping[str, str]
    """Name of a value -> score."""

    @property
    def is_flat(self) -> bool:
        """Whether no value changes the score by more than a little."""
        usual = float(self.scores[self.default])
        return all(abs(float(value) - usual) < SMALL for value in self.scores.values())

    @property
    def is_shared(self) -> bool:
        """Whether all methods have the setting."""
        return self.setting in (*SHARED, SEEN_SETTING)

    def cell(self, value: str, text: str) -> str:
        """Return a text, bold for the default."""
        return f"**{text}**" if value == self.default else text


def measure(spec: BaselineSpec, dataset: Dataset, truths: Sequence[Truth], root: Path) -> Iterator[Measurement]:
    """Yield the scores of a method for every setting; run the default once."""
    usual = score(spec, dataset, truths, ChangedDefault(), root)
    for setting, default, values in settings_of(spec):
        scores = {
            value: usual if value == default else score(spec, dataset, truths, change, root)
            for value, change in values.items()
        }
        yield Measurement(spec.name, setting, default, scores)


def format_measurements(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield the lines of the tables: a table for each shared setting, one for the others, and flat parameters last."""
    changing = [measurement for measurement in measurements if not measurement.is_flat]
    for setting in (*SHARED, SEEN_SETTING):
        rows = [measurement for measurement in changing if measurement.setting == setting]
        if rows:
            values = [rows[0].cell(value, value) for value in rows[0].scores]
            yield f"| {setting} | {' | '.join(values)} |"
            yield f"|---|{'---:|' * len(values)}"
            yield from (f"| `{row.method}` | {' | '.join(row.scores.values())} |" for row in rows)
            yield ""
    yield "| method | parameter | value: score |"
    yield "|---|---|---|"
    for row in changing:
        if not row.is_shared:
            cells = [row.cell(value, f"{value}: {number}") for value, number in row.scores.items()]
            yield f"| `{row.method}` | {row.setting} | {', '.join(cells)} |"
    yield ""
    yield "| method | score | parameters that change it by less than 0.1 |"
    yield "|---|---:|---|"
    for method in dict.fromkeys(measurement.method for measurement in measurements):
        flat = [row for row in measurements if row.method == method and row.is_flat and not row.is_shared]
        if flat:
            yield f"| `{method}` | {flat[0].scores[flat[0].default]} | {', '.join(row.setting for row in flat)} |"


@click.command()
@click.argument("path", metavar="DATASET")
@click.option(
    "--methods",
    default=",".join([*PARAMETERS, *NAMED]),
    show_default=True,
    help="Comma-separated names.",
)
@click.option("--write", is_flag=True, help="Put the tables into sensitivity.md.")
def main(path: str, methods: str, write: bool) -> None:
    """Print the tables."""
    dataset = open_dataset(path)
    truths = [build_truth(dataset.label(e), dataset.view(e).context) for e in dataset.episodes]
    judged = [truth for truth in truths if not truth.faulty or (truth.verdict == "manifest" and truth.causes)]
    faulty = sum(truth.faulty for truth in judged)
    heading = f"Version {dataset.version}: {faulty} manifest faults, {len(judged) - faulty} episodes without a fault."
    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="faultset-bench-") as root:
        for name in methods.split(","):
            measurements += measure(get_baseline(name), dataset, judged, Path(root))
    text = "\n".join([heading, "", *format_measurements(measurements)])
    click.echo(text)
    if write:
        PAGE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
