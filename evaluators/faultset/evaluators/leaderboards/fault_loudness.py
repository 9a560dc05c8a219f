"""Classify the built-in faults as gray or loud.

A gray fault leaves all pods of its target running and reachable. A loud one replaces, stops, restarts or cuts off pods.
Labels do not record this, and evaluators do not import the collector, so the declarations of its fault catalogue are
repeated here. A test checks that both are equal.
"""

from __future__ import annotations

from typing import Literal

from faultset.evaluators.results.truth import Truth

Loudness = Literal["all", "gray", "loud"]
"""Faults that a table is about."""

GRAY_FAULTS = frozenset(
    """
    ad-failure ad-high-cpu ad-manual-gc bandwidth-limit cart-failure connection-reset cpu-hog cpu-throttle
    heavy-query http-abort image-slow-load locked-store network-delay network-jitter network-loss payment-failure
    payment-unreachable product-catalog-failure slow-answers slow-store
    """.split()
)
LOUD_FAULTS = frozenset(
    """
    auth-missing buggy-image connection-limit connection-pool-exhausted consumer-stopped container-kill
    failing-build failing-readiness-probe flood-homepage invalid-security-context invalid-toleration
    kafka-queue-problems killing-liveness-probe memory-leak memory-limit missing-image missing-service
    network-partition nonexistent-node nonexistent-storage-class one-bad-replica overload-replicas pod-failure
    pod-kill poison-message read-only-account recommendation-cache-failure redeploy-without-pv retry-storm
    revoke-auth scale-to-zero short-timeout slow-build store-memory-limit target-port unknown-update-strategy
    user-unregistered volume-full wrong-binary wrong-config-key wrong-environment wrong-host wrong-operator-image
    wrong-secret wrong-selector
    """.split()
)


def classify_loudness(truth: Truth) -> Loudness | None:
    """Return whether the faults of an episode are gray or loud; None for unknown faults.

    An episode with several faults is loud if one of them is.
    """
    names = {fault.fault for fault in truth.faults} or {truth.fault}
    if not names <= GRAY_FAULTS | LOUD_FAULTS:
        return None
    return "gray" if names <= GRAY_FAULTS else "loud"
