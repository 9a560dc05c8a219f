"""Data for models that learn: folds, features and windows of episodes as arrays, without the truth among the inputs.

folds        which episodes to learn from and which to test, as evaluations divide them
sides        the folds of an opened dataset, and what is true of its episodes
columns      which features there are: the same in every episode
features     features of one episode on a regular grid
windows      windows over many episodes, streamed one episode at a time
frameworks   the same for PyTorch, TensorFlow and JAX, where they are installed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.datasets.training.columns import FeatureColumns, Modality
    from faultset.datasets.training.features import StepFeatures
    from faultset.datasets.training.folds import EpisodeLabel, Fold, dataset_folds, episode_labels
    from faultset.datasets.training.frameworks import jax_batches, polars_tables, tf_dataset, torch_dataset
    from faultset.datasets.training.windows import EpisodeWindows, WindowBatch

__all__ = [
    "EpisodeLabel",
    "EpisodeWindows",
    "FeatureColumns",
    "Fold",
    "Modality",
    "StepFeatures",
    "WindowBatch",
    "dataset_folds",
    "episode_labels",
    "jax_batches",
    "polars_tables",
    "tf_dataset",
    "torch_dataset",
]

__getattr__, __dir__ = lazy_names(__name__)
