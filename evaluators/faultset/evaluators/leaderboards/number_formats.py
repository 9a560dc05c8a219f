"""Formats of numbers on the terminal, in Markdown and in reports."""

from __future__ import annotations

import math

from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.statistics.intervals import TOO_FEW, Estimate

NONE = "\u2013"


def number(value: float, metric: Metric) -> str:
    """Format a number in the unit of its metric; a dash for NaN."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if metric.unit in ("s", "per hour", "per day"):
        return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
    if metric.unit == "rank":
        return f"{value:.1f}"
    return f"{value:.2f}"


def value(estimate: Estimate, metric: Metric) -> str:
    """Format the value of an estimate; `TOO_FEW` if there are too few episodes."""
    return TOO_FEW if estimate.reason.startswith(TOO_FEW) and not estimate.known else number(estimate.value, metric)


def interval(estimate: Estimate, metric: Metric) -> str:
    """Format the interval in brackets; empty if there is none."""
    if not estimate.interval_known:
        return ""
    return f"[{number(estimate.low, metric)}, {number(estimate.high, metric)}]"


def counts(estimate: Estimate, metric: Metric) -> str:
    """Format k/n for shares, the count for rates, n for other metrics."""
    if metric.unit == "share" and estimate.k is not None:
        return f"{short(estimate.k)}/{estimate.n}"
    if metric.unit in ("per hour", "per day") and estimate.k is not None:
        return f"{short(estimate.k)} alarms"
    return f"n={estimate.n}" if estimate.n else ""


def short(value: float) -> str:
    """Format a count, with one decimal if seeds or ties make it a fraction."""
    return str(round(value)) if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def p_value(p: float) -> str:
    """Format a p-value; empty if it is missing."""
    if math.isnan(p):
        return ""
    return "p<0.001" if p < 0.001 else f"p={p:.3f}"


def seconds(value: float) -> str:
    """Format a computing time."""
    if math.isnan(value):
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def mebibytes(value: float) -> str:
    """Format an amount of memory."""
    return NONE if math.isnan(value) else f"{value / 2**20:.0f} MiB"
