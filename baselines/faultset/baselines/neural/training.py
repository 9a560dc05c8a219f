"""Training by Adam: a fixed number of updates, each on some rows, from one seed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from faultset.baselines.neural.extra import jax_and_optax
from faultset.baselines.neural.networks import Parameters

Loss = Callable[[Any, Parameters, tuple[Any, ...], Any], Any]
"""From `jax.numpy`, parameters, a batch and the share of the updates that are done to a number."""


def trained(
    parameters: Parameters,
    losses: Sequence[tuple[Loss, Sequence[str]]],
    rows: Sequence[np.ndarray],
    *,
    updates: int,
    batch: int,
    seed: int,
    rate: float = 3e-3,
    decay: float = 0.0,
) -> Parameters:
    """Return parameters that make the losses small; those given stay as they are.

    Parameters
    ----------
    losses
        Each with the names of the parameters that it changes; every update makes one step for each of them.
    rows
        Arrays of one length, from which batches are drawn in whole passes.
    decay
        Weight decay of an update.

    Raises
    ------
    UsageError
        The extra `neural` is not installed.
    """
    jax, optax = jax_and_optax()
    jnp = jax.numpy
    data = tuple(jnp.asarray(part, jnp.float32 if part.dtype.kind == "f" else None) for part in rows)
    start = jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), parameters)
    begin, run = _compiled(jax, optax, tuple((loss, tuple(names)) for loss, names in losses), rate, decay)
    order = jnp.asarray(_passes(len(rows[0]), updates, batch, seed))
    shares = jnp.arange(updates, dtype=jnp.float32) / updates
    return jax.tree.map(lambda value: np.asarray(value, dtype=float), run(start, begin(start), data, order, shares))


@functools.cache
def _compiled(jax: Any, optax: Any, losses: tuple[tuple[Loss, tuple[str, ...]], ...], rate: float, decay: float) -> Any:
    """Return functions that make the optimizers' states and make all updates; compiled once for arrays of one shape."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=decay))

    def begin(start: Parameters) -> tuple[Any, ...]:
        return tuple(optimizer.init({name: start[name] for name in names}) for _, names in losses)

    def run(start: Parameters, states: tuple[Any, ...], data: tuple[Any, ...], order: Any, shares: Any) -> Parameters:
        def update(carried: Any, given: tuple[Any, Any]) -> tuple[Any, None]:
            now, before = carried
            chosen, done = given
            part = tuple(one[chosen] for one in data)
            after = []
            for (loss, names), state in zip(losses, before, strict=True):
                mine, others = {n: now[n] for n in names}, {n: v for n, v in now.items() if n not in names}
                slope = jax.grad(lambda own, rest, loss=loss: loss(jax.numpy, {**rest, **own}, part, done))
                change, state = optimizer.update(slope(mine, others), state, mine)
                now = {**now, **optax.apply_updates(mine, change)}
                after.append(state)
            return (now, tuple(after)), None

        return jax.lax.scan(update, (start, states), (order, shares))[0][0]

    return begin, jax.jit(run)


def _passes(count: int, updates: int, batch: int, seed: int) -> np.ndarray:
    """[updates, batch] rows, each as often as every other one, but for the last pass."""
    rng = np.random.default_rng(seed)
    needed = updates * batch
    passes = [rng.permutation(count) for _ in range(-(-needed // count))]
    return np.concatenate(passes)[:needed].reshape(updates, batch).astype(np.int32)
