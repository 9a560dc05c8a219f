"""RCD finds the node that was intervened on."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.causal_discovery import FNodeTests, mean_reciprocal_ranks


def chain(rng: np.random.Generator, samples: int, shift: float = 0.0, nodes: int = 4) -> np.ndarray:
    """x0 drives x1 drives x2 ...; the shift is an intervention on x1."""
    columns = [rng.normal(size=samples)]
    for node in range(1, nodes):
        columns.append(1.5 * columns[-1] + rng.normal(size=samples) + (shift if node == 1 else 0.0))
    return np.column_stack(columns)


@pytest.mark.parametrize("seed", range(4))
def test_rcd_finds_the_intervened_node_and_not_its_effects(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = np.hstack([chain(rng, 600), rng.normal(size=(600, 8))])
    after = np.hstack([chain(rng, 600, shift=4.0), rng.normal(size=(600, 8))])
    mixed = rng.permutation(12)
    found = mean_reciprocal_ranks(FNodeTests(before[:, mixed], after[:, mixed]), range(12), rng)
    best = max(found, key=lambda column: found[column])
    assert mixed[best] == 1
    assert found[best] > 0.9


def test_rcd_runs_with_the_same_seed_agree() -> None:
    rng = np.random.default_rng(0)
    before, after = chain(rng, 100, nodes=9), chain(rng, 100, shift=1.0, nodes=9)
    runs = [
        mean_reciprocal_ranks(FNodeTests(before, after), range(9), np.random.default_rng(5), runs=3) for _ in range(2)
    ]
    assert runs[0] == runs[1]
