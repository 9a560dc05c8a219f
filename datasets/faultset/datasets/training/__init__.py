"""Data for models that learn: folds, features and windows of episodes as arrays, without the truth among the inputs.

folds        which episodes to learn from and which to test, as evaluations divide them
sides        the folds of an opened dataset, and what is true of its episodes
columns      which features there are: the same in every episode
features     features of one episode on a regular grid
windows      windows over many episodes, streamed one episode at a time
frameworks   the same for PyTorch, TensorFlow and JAX, where they are installed
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.datasets.training.columns import FeatureColumns, Modality
    from faultset.datasets.training.features import StepFeatures
    from faultset.datasets.training.folds import Fold
    from faultset.datasets.training.frameworks import jax_batches, tf_dataset, torch_dataset
    from faultset.datasets.training.sides import EpisodeLabel, dataset_folds, episode_labels
    from faultset.datasets.training.windows import WindowBatch, Windows

__all__ = [
    "EpisodeLabel",
    "FeatureColumns",
    "Fold",
    "Modality",
    "StepFeatures",
    "WindowBatch",
    "Windows",
    "dataset_folds",
    "episode_labels",
    "jax_batches",
    "tf_dataset",
    "torch_dataset",
]

_HOMES = {
    "EpisodeLabel": "sides",
    "FeatureColumns": "columns",
    "Fold": "folds",
    "Modality": "columns",
    "StepFeatures": "features",
    "WindowBatch": "windows",
    "Windows": "windows",
    "dataset_folds": "sides",
    "episode_labels": "sides",
    "jax_batches": "frameworks",
    "tf_dataset": "frameworks",
    "torch_dataset": "frameworks",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use: evaluations import the folds, and need no arrays for that.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
