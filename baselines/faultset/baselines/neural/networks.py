"""Layers as functions of parameters and arrays; `xp` is `numpy` or `jax.numpy`, and both give the same numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

Parameters = dict[str, Any]
"""Names to arrays, or to more of the same."""


def dense_parameters(rng: np.random.Generator, *widths: int) -> Parameters:
    """Draw weights of layers that follow on each other, by Glorot and Bengio (2010); biases are 0."""
    layers = {}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        bound = np.sqrt(6.0 / (inputs + outputs))
        layers[f"w{number}"] = rng.uniform(-bound, bound, (inputs, outputs))
        layers[f"b{number}"] = np.zeros(outputs)
    return layers


def dense(xp: Any, layers: Mapping[str, Any], rows: Any) -> Any:
    """Apply layers with tanh between them; the last one is linear."""
    count = len(layers) // 2
    for number in range(count):
        rows = rows @ layers[f"w{number}"] + layers[f"b{number}"]
        if number < count - 1:
            rows = xp.tanh(rows)
    return rows


def sigmoid(xp: Any, values: Any) -> Any:
    """Logistic function, without overflow."""
    return 0.5 * (xp.tanh(0.5 * values) + 1.0)


def softmax(xp: Any, values: Any) -> Any:
    """Shares along the last axis."""
    grown = xp.exp(values - values.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def log_softmax(xp: Any, values: Any) -> Any:
    """Logarithms of `softmax`."""
    away = values - values.max(axis=-1, keepdims=True)
    return away - xp.log(xp.exp(away).sum(axis=-1, keepdims=True))


def normalized(xp: Any, values: Any) -> Any:
    """Layer normalization over the last axis, without gain and bias."""
    away = values - values.mean(axis=-1, keepdims=True)
    return away / xp.sqrt((away**2).mean(axis=-1, keepdims=True) + 1e-5)


def lstm_parameters(rng: np.random.Generator, inputs: int, hidden: int) -> Parameters:
    """Draw weights of an LSTM; the forget gate begins open."""
    bound = 1.0 / np.sqrt(hidden)
    bias = np.zeros(4 * hidden)
    bias[hidden : 2 * hidden] = 1.0
    return {
        "x": rng.uniform(-bound, bound, (inputs, 4 * hidden)),
        "h": rng.uniform(-bound, bound, (hidden, 4 * hidden)),
        "b": bias,
    }


def lstm_step(xp: Any, cell: Mapping[str, Any], inputs: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return output and memory [B, H] after one more input [B, D]."""
    before, memory = state
    gates = inputs @ cell["x"] + before @ cell["h"] + cell["b"]
    size = gates.shape[-1] // 4
    enter, forget, new, leave = (gates[:, i * size : (i + 1) * size] for i in range(4))
    memory = sigmoid(xp, forget) * memory + sigmoid(xp, enter) * xp.tanh(new)
    return sigmoid(xp, leave) * xp.tanh(memory), memory


def lstm_last(xp: Any, cell: Mapping[str, Any], sequences: Any) -> tuple[Any, Any]:
    """Return output and memory [B, H] after sequences [B, L, D]."""
    nothing = xp.zeros((sequences.shape[0], cell["h"].shape[0]))
    state = (nothing, nothing)
    for step in range(sequences.shape[1]):
        state = lstm_step(xp, cell, sequences[:, step], state)
    return state


def attention(xp: Any, weights: Mapping[str, Any], asking: Any, asked: Any, allowed: Any = None) -> Any:
    """Scaled dot-product attention of [B, L, D] on [B, M, D], with one head and a projection behind it.

    Parameters
    ----------
    allowed
        [L, M] where one may look; everywhere when None.
    """
    query, key, value = asking @ weights["q"], asked @ weights["k"], asked @ weights["v"]
    scores = query @ xp.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    if allowed is not None:
        scores = xp.where(allowed, scores, -1e9)
    return softmax(xp, scores) @ value @ weights["o"]


def attention_parameters(rng: np.random.Generator, width: int) -> Parameters:
    """Draw the four projections of `attention`."""
    bound = np.sqrt(3.0 / width)
    return {name: rng.uniform(-bound, bound, (width, width)) for name in "qkvo"}
