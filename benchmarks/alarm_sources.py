"""Choose the detector whose alarms localizers get, from a table that also has the true onset for comparison.

    python benchmarks/alarm_sources.py datasets/sample [--detectors spot,ksigma] [--localizers simple-rca,pdiagnose]
    python benchmarks/alarm_sources.py DATASET --detection-only

False alarms waste the time of localizers. So only detectors that raise alarms in less than 5 % of the episodes without
a fault are eligible. The script chooses the one with the largest event recall, then the smallest median time to detect.
In some episodes without a fault, clients noticed a restart or more load. An alarm is right there, so these episodes
have a separate column. The table shows the number of episodes and the interval behind each rate, because three episodes
cannot prove a rate below 5 %.

`--detection-only` skips the localizers' scores with each detector's alarms, which take an evaluation per detector. The
choice does not depend on them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import click
import numpy as np
import pandas as pd

from faultset.core.output import report_progress
from faultset.datasets import open_dataset
from faultset.evaluators import evaluate
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards.records import ALL_APPS
from faultset.evaluators.scoring.intervals import clustered_mean

DETECTORS = (
    "spot", "ksigma", "mksmc", "lof", "mahalanobis", "pca-spe", "trace-errors", "trace-p95", "missing-edge", "log-rate",
    "sli-rule-detector",
)  # fmt: skip
LOCALIZERS = ("simple-rca", "nsigma", "baro", "tracerca", "pdiagnose", "max-z")
MAX_FALSE_ALARMS = 0.05


class DetectorAlarms(NamedTuple):
    """Figures about the alarms of a detector."""

    false_alarms: int
    unnoticed_episodes: int
    """Episodes without a fault in which clients noticed nothing."""
    false_alarm_interval: str
    """Interval of the rate of alarms in those episodes."""
    noticed_alarms: int
    noticed_episodes: int
    """Episodes without a fault in which clients noticed something."""
    event_recall: float
    ttd_median_s: float

    @property
    def is_eligible(self) -> bool:
        """Whether the rate is below its limit."""
        return self.unnoticed_episodes > 0 and self.false_alarms / self.unnoticed_episodes < MAX_FALSE_ALARMS

    def __str__(self) -> str:
        unnoticed = f"{self.false_alarms} of {self.unnoticed_episodes} {self.false_alarm_interval}"
        noticed = f"{self.noticed_alarms} of {self.noticed_episodes}"
        return f"{unnoticed} | {noticed} | {self.event_recall:.2f} | {self.ttd_median_s:.1f}"


def episodes_noticed_by_clients(dataset: str) -> frozenset[str]:
    """Return the episodes in which clients noticed something, by their evidence."""
    opened = open_dataset(dataset)
    evidence = {name: opened[name].evidence for name in opened.episodes}
    return frozenset(name for name, rows in evidence.items() if ((rows["check"] == "sli") & rows["passed"]).any())


def count_alarms(evaluation: Evaluation, detector: str, noticed: frozenset[str]) -> DetectorAlarms:
    """Return figures about the alarms of a detector."""
    rows = [row for row in evaluation.rows if row.baseline == detector and row.protocol == "detected"]
    healthy: dict[str, list[float]] = {}
    for row in rows:
        if not row.truth.faulty:
            healthy.setdefault(row.episode, []).append(float(row.alarm_ns is not None or row.status != "ok"))
    alarms = {name: float(np.mean(values)) for name, values in healthy.items()}
    unnoticed = {name: rate for name, rate in alarms.items() if name not in noticed}
    rate = clustered_mean(list(unnoticed.values()), list(unnoticed))
    frame = _select_overall(evaluation.leaderboard("detection"))
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


def _select_overall(board: pd.DataFrame) -> pd.DataFrame:
    """Return the lines over all applications, or all lines if there is only one application."""
    several = board["app"] == ALL_APPS
    return board[several] if several.any() else board


def score_localizers(evaluation: Evaluation, protocol: str) -> dict[str, tuple[float, float]]:
    """Return localizer -> AC@1 and Avg@5 on manifest faults."""
    frame = _select_overall(evaluation.leaderboard("localization"))
    chosen = frame[(frame["protocol"] == protocol) & (frame["verdict"] == "manifest")]
    return {line["baseline"]: (line["ac1"], line["avg5"]) for _, line in chosen.iterrows()}


@click.command()
@click.argument("dataset")
@click.option("--detectors", default=",".join(DETECTORS), show_default=True)
@click.option("--localizers", default=",".join(LOCALIZERS), show_default=True)
@click.option("--detection-only", is_flag=True, help="Skip the scores of localizers.")
@click.option("--workers", type=int, default=2, show_default=True)
def main(dataset: str, detectors: str, localizers: str, detection_only: bool, workers: int) -> None:
    """Print the table and the chosen detector."""
    names, methods = detectors.split(","), [] if detection_only else localizers.split(",")

    def localization_cells(protocol: Literal["oracle", "detected"], alarm: str | None = None) -> str:
        if not methods:
            return ""
        with report_progress(f"localizing, {alarm or 'from the true onset'}") as progress:
            localization = evaluate(
                dataset,
                methods,
                tasks=("localization",),
                protocol=protocol,
                alarm=alarm,
                thresholds=("reference",),
                workers=workers,
                progress=progress,
            )
        scores = score_localizers(localization, protocol)
        return "".join(f" {scores[localizer][0]:.2f} / {scores[localizer][1]:.2f} |" for localizer in methods)

    with report_progress("detecting") as progress:
        evaluation = evaluate(
            dataset, names, tasks=("detection",), thresholds=("reference",), workers=workers, progress=progress
        )
    columns = ["alarm", "alarms without a fault", "where clients noticed something", "event recall", "median TTD, s"]
    print(f"| {' | '.join([*columns, *methods])} |")
    print("|" + "---|" * (len(columns) + len(methods)))
    noticed = episodes_noticed_by_clients(dataset)
    choices = []
    for name in names:
        facts = count_alarms(evaluation, name, noticed)
        print(f"| `{name}` | {facts} |{localization_cells('detected', name)}", flush=True)
        if facts.is_eligible:
            choices.append((-facts.event_recall, facts.ttd_median_s, name))
    if methods:
        print(f"| oracle | | | | |{localization_cells('oracle')}")
    print(f"\nchosen: {min(choices)[2] if choices else 'none; all raise too many alarms without a fault'}")


if __name__ == "__main__":
    main()
