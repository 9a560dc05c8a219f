"""Which detector should raise the alarm that localizers are given: a table over detectors, beside the true onset.

    python benchmarks/alarm_sources.py datasets/sample [--detectors spot,ksigma] [--localizers simple-rca,pdiagnose]
    python benchmarks/alarm_sources.py core-1 --detection-only

A detector that alarms without a fault starts a search for nothing, so the choice is among those whose rate of alarms
in episodes without a fault is below 5 %; of these it is the one with the largest event recall, then the smallest median
time to detect. Where clients noticed a restart or more load, by the evidence of the episode, an alarm is right: such
episodes have a column of their own. The table says in how many episodes the rate was measured, and its interval: with
three episodes no rate below 5 % can be shown.

What localizers make of each detector's alarms takes an evaluation for each of them and is left out with
`--detection-only`; the choice does not depend on it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import click
import numpy as np
import pandas as pd

from faultset.core.command_line.progress import report_progress
from faultset.datasets import open_dataset
from faultset.evaluators import evaluate
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards.records import ALL_APPS
from faultset.evaluators.statistics.intervals import clustered_mean

DETECTORS = (
    "spot", "ksigma", "mksmc", "lof", "mahalanobis", "pca-spe", "trace-errors", "trace-p95", "missing-edge", "log-rate",
    "sli-rule-detector",
)  # fmt: skip
LOCALIZERS = ("simple-rca", "nsigma", "baro", "tracerca", "pdiagnose", "max-z")
MOST_FALSE_ALARMS = 0.05


class DetectorAlarms(NamedTuple):
    """What the alarms of one detector are like."""

    false_alarms: int
    unnoticed_episodes: int
    """Episodes without a fault of which clients noticed nothing."""
    false_alarm_interval: str
    """Of the rate of alarms in those."""
    noticed_alarms: int
    noticed_episodes: int
    """Episodes without a fault of which clients noticed something."""
    event_recall: float
    ttd_median_s: float

    @property
    def is_eligible(self) -> bool:
        """Whether the rate is below its limit."""
        return self.unnoticed_episodes > 0 and self.false_alarms / self.unnoticed_episodes < MOST_FALSE_ALARMS

    def __str__(self) -> str:
        unnoticed = f"{self.false_alarms} of {self.unnoticed_episodes} {self.false_alarm_interval}"
        noticed = f"{self.noticed_alarms} of {self.noticed_episodes}"
        return f"{unnoticed} | {noticed} | {self.event_recall:.2f} | {self.ttd_median_s:.1f}"


def episodes_noticed_by_clients(dataset: str) -> frozenset[str]:
    """Return the episodes of which clients noticed something, by their evidence."""
    opened = open_dataset(dataset)
    evidence = {name: opened[name].evidence for name in opened.episodes}
    return frozenset(name for name, rows in evidence.items() if ((rows["check"] == "sli") & rows["passed"]).any())


def alarms_of(done: Evaluation, detector: str, noticed: frozenset[str]) -> DetectorAlarms:
    """Return what the alarms of a detector are like."""
    rows = [row for row in done.rows if row.baseline == detector and row.protocol == "detected"]
    healthy: dict[str, list[float]] = {}
    for row in rows:
        if not row.truth.faulty:
            healthy.setdefault(row.episode, []).append(float(row.alarm_ns is not None or row.status != "ok"))
    alarms = {name: float(np.mean(values)) for name, values in healthy.items()}
    unnoticed = {name: rate for name, rate in alarms.items() if name not in noticed}
    rate = clustered_mean(list(unnoticed.values()), list(unnoticed))
    frame = _of_all_apps(done.leaderboard("detection"))
    line = frame[(frame["verdict"] == "manifest") & (frame["baseline"] == detector)]
    return DetectorAlarms(
        false_alarms=round(sum(unnoticed.values())),
        unnoticed_episodes=len(unnoticed),
        false_alarm_interval=f"[{rate.low:.2f}, {rate.high:.2f}]",
        noticed_alarms=round(sum(alarms.values()) - sum(unnoticed.values())),
        noticed_episodes=len(alarms) - len(unnoticed),
        event_recall=float(line["event_recall"].item()),
        ttd_median_s=float(line["ttd_median"].item()),
    )


def _of_all_apps(board: pd.DataFrame) -> pd.DataFrame:
    """Return the lines over all applications; with one application there are no others."""
    several = board["app"] == ALL_APPS
    return board[several] if several.any() else board


def localization_scores(done: Evaluation, protocol: str) -> dict[str, tuple[float, float]]:
    """Return localizer -> AC@1 and Avg@5 on headline episodes."""
    frame = _of_all_apps(done.leaderboard("localization"))
    chosen = frame[(frame["protocol"] == protocol) & (frame["verdict"] == "manifest")]
    return {line["baseline"]: (line["ac1"], line["avg5"]) for _, line in chosen.iterrows()}


@click.command()
@click.argument("dataset")
@click.option("--detectors", default=",".join(DETECTORS), show_default=True)
@click.option("--localizers", default=",".join(LOCALIZERS), show_default=True)
@click.option("--detection-only", is_flag=True, help="Leave out what localizers make of the alarms.")
@click.option("--workers", type=int, default=2, show_default=True)
def main(dataset: str, detectors: str, localizers: str, detection_only: bool, workers: int) -> None:
    """Print the table, and which detector it chooses."""
    names, where = detectors.split(","), [] if detection_only else localizers.split(",")

    def localization_cells(protocol: Literal["oracle", "detected"], alarm: str | None = None) -> str:
        if not where:
            return ""
        with report_progress(f"localizing, {alarm or 'told the onset'}") as progress:
            done = evaluate(
                dataset,
                where,
                tasks=("localization",),
                protocol=protocol,
                alarm=alarm,
                thresholds=("reference",),
                workers=workers,
                progress=progress,
            )
        scores = localization_scores(done, protocol)
        return "".join(f" {scores[one][0]:.2f} / {scores[one][1]:.2f} |" for one in where)

    with report_progress("detecting") as progress:
        found = evaluate(
            dataset, names, tasks=("detection",), thresholds=("reference",), workers=workers, progress=progress
        )
    columns = ["alarm", "alarms without a fault", "where clients noticed something", "event recall", "median TTD, s"]
    print(f"| {' | '.join([*columns, *where])} |")
    print("|" + "---|" * (len(columns) + len(where)))
    noticed = episodes_noticed_by_clients(dataset)
    choices = []
    for name in names:
        facts = alarms_of(found, name, noticed)
        print(f"| `{name}` | {facts} |{localization_cells('detected', name)}", flush=True)
        if facts.is_eligible:
            choices.append((-facts.event_recall, facts.ttd_median_s, name))
    if where:
        print(f"| oracle | | | | |{localization_cells('oracle')}")
    print(f"\nchosen: {min(choices)[2] if choices else 'none, all alarm too often without a fault'}")


if __name__ == "__main__":
    main()
