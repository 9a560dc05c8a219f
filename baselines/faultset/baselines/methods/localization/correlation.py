"""Correlation with the metric that raised the alarm."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase

import numpy as np
from scipy.special import betainc

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.windows import Windows, windows_since_reference
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import MAD_TO_SD, Matrix, deviations, median_and_mad, quantiles
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.views import EpisodeView

MIN_Z = 5.0
SYMPTOMS = ("latency", "errors")
_MIN_P_VALUE = 1e-300


def correlation_p_values(series: Matrix, target: Matrix) -> Matrix:
    """Return the two-sided p-value of Pearson's correlation of each column with the target; 1 if undefined.

    Rows with a gap in either series are left out. With n rows, r² has a beta distribution with parameters 1/2 and
    (n - 2)/2, so r = 0.8 with five rows has p = 0.104.

    >>> target = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> correlation_p_values(np.array([[2.0, 1.0, 4.0, 3.0, 5.0], [7.0] * 5]).T, target).round(3).tolist()
    [0.104, 1.0]
    """
    p_values = np.ones(series.shape[1])
    for column, values in enumerate(series.T):
        is_complete = np.isfinite(values) & np.isfinite(target)
        count = int(is_complete.sum())
        x, y = values[is_complete], target[is_complete]
        if count < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            continue
        r_squared = min(1.0, float(np.corrcoef(x, y)[0, 1]) ** 2)
        p_values[column] = betainc((count - 2) / 2, 0.5, 1 - r_squared)
    return p_values


def measure_anomalies(windows: Windows, alarm_ns: int) -> Matrix:
    """Return the largest deviation of each series since the alarm in robust standard deviations.

    A robust standard deviation is 1.4826 times the median absolute deviation. After a constant reference, any change is
    an infinite deviation, as in the published code.
    """
    (center,) = quantiles(windows.reference, (0.5,))
    (spread,) = MAD_TO_SD * quantiles(np.abs(windows.reference - center), (0.5,))
    recent = windows.values[windows.times_ns > alarm_ns - windows.step_ns]
    deviation = np.abs(np.where(np.isfinite(recent), recent - center, 0.0)).max(axis=0, initial=0.0)
    return np.divide(deviation, spread, out=np.where(deviation > 0, np.inf, 0.0), where=spread > 0)


@localizer(
    "ranked-correlation",
    title="Ranked correlation",
    paper="Hardt et al., PetShop, CLeaR 2024",
    needs=("alarm_location",),
    complexity="O(S·T)",
    departures=(
        "Correlations use data after the end of the reference; on PetShop, the paper calls this data abnormal.",
        "A series is anomalous if any sample after the alarm is anomalous; the published method tests one sample.",
        "If the metric of the alarm is a pattern, a service is ranked by its strongest correlation with any match.",
        "If the metric of the alarm is unknown, the front end's most deviating latency and error series replace it. "
        "In services without a metric of that name, metrics of its role are correlated.",
    ),
)
class RankedCorrelation(TrainingFreeBaseline):
    """Rank services with an anomalous metric by the p-value of its correlation with the metric of the alarm.

    Parameters
    ----------
    min_z
        A metric is anomalous beyond this many robust standard deviations; see `measure_anomalies`.

    References
    ----------
    Hardt et al., The PetShop dataset: finding causes of performance issues across microservices, CLeaR 2024.
    """

    def __init__(self, *, min_z: float = MIN_Z) -> None:
        self.min_z = min_z

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by -log10 of their smallest p-value; the service of the alarm is not ranked."""
        source = episode.alarm_location or AlarmLocation(service=episode.context.workload_entry)
        return correlate_with_alarm(episode, alarm_ns, source, min_z=self.min_z)


def correlate_with_alarm(
    episode: EpisodeView, alarm_ns: int, source: AlarmLocation, *, min_z: float = MIN_Z
) -> Ranking:
    """Rank the other services by -log10 of their smallest p-value of a correlation with the alarm's metric."""
    windows = windows_since_reference(episode, alarm_ns)
    if windows.empty:
        return Ranking.abstain()
    z = measure_anomalies(windows, alarm_ns)
    best: dict[str, tuple[float, str]] = {}
    for target in _find_targets(episode, source, windows, alarm_ns):
        comparable = _find_comparable(episode, windows, target)
        chosen = [column for column in comparable if z[column] > min_z]
        p_values = correlation_p_values(windows.values[:, chosen], windows.values[:, target])
        for column, p in zip(chosen, p_values.tolist(), strict=True):
            service, metric = windows.series[column]
            strength = -math.log10(max(p, _MIN_P_VALUE))
            if service != source.service and strength > best.get(service, (0.0, ""))[0]:
                best[service] = strength, metric
    evidence = [
        Evidence(service=service, subject=metric, score=strength, detail="-log10 p of the correlation")
        for service, (strength, metric) in sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:10]
    ]
    scores = {service: strength for service, (strength, _) in best.items()}
    metrics = {(service, metric): strength for service, (strength, metric) in best.items()}
    return Ranking.of(scores, episode.services, evidence, metrics)


def _find_targets(episode: EpisodeView, source: AlarmLocation, windows: Windows, alarm_ns: int) -> list[int]:
    """Return the columns of the alarm's metric, or the most deviating latency and error series of its service.

    The standard deviation has a floor. Otherwise the first failed request in hours would be the largest deviation.
    """
    service_columns = [column for column, (service, _) in enumerate(windows.series) if service == source.service]
    if source.metric is not None:
        return [column for column in service_columns if fnmatchcase(windows.series[column][1], source.metric)]
    symptoms = [
        column for column in service_columns if episode.catalogue.role_of(windows.series[column][1]) in SYMPTOMS
    ]
    center, spread = median_and_mad(windows.reference[:, symptoms])
    recent = windows.values[windows.times_ns > alarm_ns - windows.step_ns][:, symptoms]
    z = np.abs(deviations(recent, center, spread)).max(axis=0, initial=0.0)
    column_of_role: dict[str, int] = {}
    for index in np.argsort(-z, kind="stable"):
        column = symptoms[index]
        column_of_role.setdefault(episode.catalogue.role_of(windows.series[column][1]), column)
    return list(column_of_role.values())


def _find_comparable(episode: EpisodeView, windows: Windows, target: int) -> list[int]:
    """Return the columns with the target's metric; for services without that metric, the columns with its role."""
    _, name = windows.series[target]
    services_with_metric = {service for service, metric in windows.series if metric == name}
    role_of = episode.catalogue.role_of
    return [
        column
        for column, (service, metric) in enumerate(windows.series)
        if metric == name or (service not in services_with_metric and role_of(metric) == role_of(name))
    ]
