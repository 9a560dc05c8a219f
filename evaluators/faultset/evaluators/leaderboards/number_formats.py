"""How numbers are written, the same in the terminal, in Markdown and in the report."""

from __future__ import annotations

import math

from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.statistics.intervals import TOO_FEW, Estimate

NONE = "\u2013"


def number(value: float, metric: Metric) -> str:
    """Write one value."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if metric.unit in ("s", "per hour"):
        return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
    if metric.unit == "rank":
        return f"{value:.1f}"
    return f"{value:.2f}"


def value(estimate: Estimate, metric: Metric) -> str:
    """Write the value of an estimate; say where it is missing because there was too little data."""
    return TOO_FEW if estimate.reason.startswith(TOO_FEW) and not estimate.known else number(estimate.value, metric)


def interval(estimate: Estimate, metric: Metric) -> str:
    """Write the interval in brackets; nothing where there is none."""
    if not estimate.interval_known:
        return ""
    return f"[{number(estimate.low, metric)}, {number(estimate.high, metric)}]"


def counts(estimate: Estimate, metric: Metric) -> str:
    """Write k/n for shares, the count for rates, n for the rest."""
    if metric.unit == "share" and estimate.k is not None:
        return f"{short(estimate.k)}/{estimate.n}"
    if metric.unit == "per hour" and estimate.k is not None:
        return f"{short(estimate.k)} alarms"
    return f"n={estimate.n}" if estimate.n else ""


def short(value: float) -> str:
    """Write a count; one digit where seeds or ties make a fraction of it."""
    return str(round(value)) if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def p_value(p: float) -> str:
    """Write a p-value with its sign; nothing where there is none."""
    if math.isnan(p):
        return ""
    return "p<0.001" if p < 0.001 else f"p={p:.3f}"


def seconds(value: float) -> str:
    """Write a duration of computing."""
    if math.isnan(value):
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def mebibytes(value: float) -> str:
    """Write an amount of memory."""
    return NONE if math.isnan(value) else f"{value / 2**20:.0f} MiB"
