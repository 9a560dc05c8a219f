"""Rates of an application's errors without a fault, drawn from the seed of an episode."""

from __future__ import annotations

import numpy as np

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import METRICS_PORT, Probe
from faultset.collector.spec.features import BackgroundErrors

_RANGES = {
    "unknown_paths": (0.002, 0.01),
    "impatient_clients": (0.002, 0.008),
    "hasty_calls": (0.001, 0.006),
    "failed_uploads": (0.1, 0.6),
    "rebalances": (0.5, 3.0),
    "slow_phases": (0.2, 1.0),
    "unhealthy_answers": (0.01, 0.04),
}
"""Lowest and highest rate of each kind; rates are log-uniform between them."""
_PROBED_SHARE = 0.3
"""Share of the services that get a readiness probe."""
_PROBE = Probe(path="/healthz", port=METRICS_PORT, every_s=2, failures=4)


def draw_background_errors(seed: int, app: AppSpec) -> BackgroundErrors:
    """Return an application's rates of errors for a seed, independent of the fault."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    rates = {kind: round(float(np.exp(rng.uniform(*np.log(bounds)))), 6) for kind, bounds in _RANGES.items()}
    if app.components:
        rates["hasty_calls"] = 0.0  # the client of a TiDB cluster has different retries
    return BackgroundErrors(**rates)


def with_background_errors(app: AppSpec, seed: int) -> AppSpec:
    """Return the application with background errors and with probes that some of its services sometimes fail.

    An application deployed by others is left unchanged.
    """
    if app.deployed is not None:
        return app
    rng = np.random.default_rng(np.random.SeedSequence([seed, 3]))
    services = {}
    for name, service in app.services.items():
        is_probed = rng.random() < _PROBED_SHARE
        if is_probed and service.exports_metrics and service.runs is None and service.runs_faultset_service:
            service = service.model_copy(update={"readiness": _PROBE})
        services[name] = service
    return app.model_copy(update={"services": services, "background_errors": draw_background_errors(seed, app)})
