"""Neural networks in NumPy and JAX: layers and training."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from faultset.core.errors import EXTRAS, needs_extra

EXTRA = "neural"


def jax_and_optax() -> tuple[Any, Any]:
    """Import JAX and Optax, and select the CPU.

    Raises
    ------
    UsageError
        The extra is not installed.
    """
    try:
        jax, optax = (importlib.import_module(name) for name in EXTRAS[EXTRA])
    except ImportError as error:
        raise needs_extra("training of neural baselines", EXTRA) from error
    jax.config.update("jax_platforms", "cpu")
    return jax, optax


Parameters = dict[str, Any]
"""Name -> array or nested parameters."""


def dense_parameters(rng: np.random.Generator, *widths: int) -> Parameters:
    """Draw the weights of consecutive layers (Glorot, Bengio, 2010); biases are 0."""
    layers = {}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        bound = np.sqrt(6.0 / (inputs + outputs))
        layers[f"w{number}"] = rng.uniform(-bound, bound, (inputs, outputs))
        layers[f"b{number}"] = np.zeros(outputs)
    return layers


def dense(xp: Any, layers: Mapping[str, Any], rows: Any) -> Any:
    """Apply dense layers with tanh between them; the last layer is linear."""
    count = len(layers) // 2
    for number in range(count):
        rows = rows @ layers[f"w{number}"] + layers[f"b{number}"]
        if number < count - 1:
            rows = xp.tanh(rows)
    return rows


def sigmoid(xp: Any, values: Any) -> Any:
    """Return the logistic function without overflow."""
    return 0.5 * (xp.tanh(0.5 * values) + 1.0)


def softmax(xp: Any, values: Any) -> Any:
    """Return the softmax along the last axis."""
    exponentials = xp.exp(values - values.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(xp: Any, values: Any) -> Any:
    """Return the logarithm of `softmax`."""
    centred = values - values.max(axis=-1, keepdims=True)
    return centred - xp.log(xp.exp(centred).sum(axis=-1, keepdims=True))


def layer_norm(xp: Any, values: Any) -> Any:
    """Apply layer normalization over the last axis, without gain and bias."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return centred / xp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def lstm_parameters(rng: np.random.Generator, inputs: int, hidden: int) -> Parameters:
    """Draw the weights of an LSTM with an open forget gate."""
    bound = 1.0 / np.sqrt(hidden)
    bias = np.zeros(4 * hidden)
    bias[hidden : 2 * hidden] = 1.0
    return {
        "x": rng.uniform(-bound, bound, (inputs, 4 * hidden)),
        "h": rng.uniform(-bound, bound, (hidden, 4 * hidden)),
        "b": bias,
    }


def lstm_step(xp: Any, cell: Mapping[str, Any], inputs: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the output and the memory [B, H] after another input [B, D]."""
    before, memory = state
    gates = inputs @ cell["x"] + before @ cell["h"] + cell["b"]
    size = gates.shape[-1] // 4
    input_gate, forget_gate, candidate, output_gate = (gates[:, i * size : (i + 1) * size] for i in range(4))
    memory = sigmoid(xp, forget_gate) * memory + sigmoid(xp, input_gate) * xp.tanh(candidate)
    return sigmoid(xp, output_gate) * xp.tanh(memory), memory


def lstm_last(xp: Any, cell: Mapping[str, Any], sequences: Any) -> tuple[Any, Any]:
    """Return the output and the memory [B, H] after sequences [B, L, D]."""
    zeros = xp.zeros((sequences.shape[0], cell["h"].shape[0]))
    state = (zeros, zeros)
    for step in range(sequences.shape[1]):
        state = lstm_step(xp, cell, sequences[:, step], state)
    return state


def attention(xp: Any, weights: Mapping[str, Any], queries: Any, sources: Any, allowed: Any = None) -> Any:
    """Apply single-head scaled dot-product attention of queries [B, L, D] on sources [B, M, D], and project the output.

    Parameters
    ----------
    allowed
        [L, M] mask; None for no mask.
    """
    query, key, value = queries @ weights["q"], sources @ weights["k"], sources @ weights["v"]
    scores = query @ xp.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    if allowed is not None:
        scores = xp.where(allowed, scores, -1e9)
    return softmax(xp, scores) @ value @ weights["o"]


def attention_parameters(rng: np.random.Generator, width: int) -> Parameters:
    """Draw the four projections of `attention`."""
    bound = np.sqrt(3.0 / width)
    return {name: rng.uniform(-bound, bound, (width, width)) for name in "qkvo"}


Loss = Callable[[Any, Parameters, tuple[Any, ...], Any], Any]
"""(`jax.numpy`, parameters, batch, share of finished updates) -> loss."""


def train(
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
    """Return trained parameters; the initial ones stay unchanged.

    Parameters
    ----------
    losses
        Each loss with the names of the parameters that it changes. An update makes a step for each loss.
    rows
        Arrays of equal length, from which batches are drawn in whole passes.
    decay
        Weight decay per update.

    Raises
    ------
    UsageError
        The extra `neural` is not installed.
    """
    jax, optax = jax_and_optax()
    jnp = jax.numpy
    data = tuple(jnp.asarray(array, jnp.float32 if array.dtype.kind == "f" else None) for array in rows)
    start = jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), parameters)
    begin, run = _compile_training(jax, optax, tuple((loss, tuple(names)) for loss, names in losses), rate, decay)
    order = jnp.asarray(_draw_batches(len(rows[0]), updates, batch, seed))
    shares = jnp.arange(updates, dtype=jnp.float32) / updates
    return jax.tree.map(lambda value: np.asarray(value, dtype=float), run(start, begin(start), data, order, shares))


@functools.cache
def _compile_training(
    jax: Any, optax: Any, losses: tuple[tuple[Loss, tuple[str, ...]], ...], rate: float, decay: float
) -> Any:
    """Return functions that initialise the optimizers and run all updates, compiled once per shape."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=decay))

    def begin(start: Parameters) -> tuple[Any, ...]:
        return tuple(optimizer.init({name: start[name] for name in names}) for _, names in losses)

    def run(start: Parameters, states: tuple[Any, ...], data: tuple[Any, ...], order: Any, shares: Any) -> Parameters:
        def update(carry: Any, batch: tuple[Any, Any]) -> tuple[Any, None]:
            current, before = carry
            chosen, done = batch
            rows_of_batch = tuple(array[chosen] for array in data)
            after = []
            for (loss, names), state in zip(losses, before, strict=True):
                trained, fixed = {n: current[n] for n in names}, {n: v for n, v in current.items() if n not in names}
                gradient = jax.grad(
                    lambda changing, constant, loss=loss: loss(jax.numpy, {**constant, **changing}, rows_of_batch, done)
                )
                change, state = optimizer.update(gradient(trained, fixed), state, trained)
                current = {**current, **optax.apply_updates(trained, change)}
                after.append(state)
            return (current, tuple(after)), None

        return jax.lax.scan(update, (start, states), (order, shares))[0][0]

    return begin, jax.jit(run)


def _draw_batches(count: int, updates: int, batch: int, seed: int) -> np.ndarray:
    """Return row numbers [updates, batch] from random passes over all rows."""
    rng = np.random.default_rng(seed)
    size = updates * batch
    passes = [rng.permutation(count) for _ in range(-(-size // count))]
    return np.concatenate(passes)[:size].reshape(updates, batch).astype(np.int32)
