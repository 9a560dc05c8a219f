"""Networks give equal results in NumPy and JAX, and training reduces the loss."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from faultset.baselines.methods.detection import neural_detectors as networks
from faultset.baselines.methods.detection.neural_detectors import USAD, LSTMAutoencoder, TranAD
from faultset.baselines.methods.localization.trained_rankers import pad_graphs
from faultset.baselines.networks import jax_and_optax, lstm_last, lstm_parameters, train
from faultset.baselines.registry import get_baseline
from faultset.core.errors import UsageError, is_installed
from faultset.evaluators.execution.plan import choose_baselines

ROLES = 4
needs_extra = pytest.mark.skipif(not is_installed("neural"), reason="the extra neural is not installed")


def windows(count: int = 64, seed: int = 0) -> np.ndarray:
    """Return windows with correlated columns."""
    wave = np.sin(np.random.default_rng(seed).uniform(0, 6, (count, 1, 1)) + np.arange(8)[None, :, None])
    return 0.5 + 0.4 * wave * np.linspace(0.5, 1, ROLES)


def test_an_lstm_step_is_the_published_formula():
    rng = np.random.default_rng(0)
    cell, given = lstm_parameters(rng, 1, 1), np.array([[[0.7]]])

    def logistic(x: float) -> float:
        return 1 / (1 + np.exp(-x))

    enter, forget, new, leave = 0.7 * cell["x"][0] + cell["b"]
    memory = logistic(enter) * np.tanh(new) + logistic(forget) * 0.0
    output, kept = lstm_last(np, cell, given)
    assert kept[0, 0] == pytest.approx(memory)
    assert output[0, 0] == pytest.approx(logistic(leave) * np.tanh(memory))


@needs_extra
@pytest.mark.parametrize(
    ("made", "run"),
    [
        (LSTMAutoencoder, networks.reconstruct),
        (USAD, lambda xp, p, w: networks.autoencode(xp, p, w)[3]),
        (TranAD, lambda xp, p, w: networks.run_phases(xp, p, w)[1]),
    ],
)
def test_numpy_and_jax_give_the_same_numbers(made, run):
    jax, _ = jax_and_optax()
    parameters = made(updates=0)._draw_parameters(np.random.default_rng(1), ROLES)
    np.testing.assert_allclose(
        run(np, parameters, windows()), np.asarray(run(jax.numpy, parameters, windows())), atol=1e-4
    )


@needs_extra
def test_training_makes_the_loss_smaller_and_is_decided_by_its_seed():
    before = LSTMAutoencoder(updates=0)._draw_parameters(np.random.default_rng(0), ROLES)
    losses = LSTMAutoencoder.losses
    after, again = (train(before, losses, [windows()], updates=60, batch=32, seed=3) for _ in range(2))
    first, last = (networks.squared_error(np, one, (windows(seed=1),), 0.0) for one in (before, after))
    assert last < 0.5 * first
    np.testing.assert_array_equal(after["encoder"]["x"], again["encoder"]["x"])


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        UsageError, match=r"training .* needs the extra \"neural\"; run: pip install 'faultset\[neural\]'"
    ):
        jax_and_optax()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"\"usad\" needs the extra \"neural\""):
        choose_baselines(["usad"])
    assert not [spec.name for spec in choose_baselines(["methods"]) if spec.extra]


def test_nothing_of_an_extra_is_in_the_default_choice():
    assert get_baseline("tranad").extra == "neural"
    assert not [spec.name for spec in choose_baselines() if spec.extra]


def test_padding_has_no_neighbours():
    small, large = (tuple(np.ones(shape) for shape in ((n, 5), (n, n), (n,), (n,))) for n in (2, 3))
    rows, near, there, _ = pad_graphs([small, large])
    assert rows.shape == (2, 3, 5)
    assert near[0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert there[0].tolist() == [1, 1, 0]
