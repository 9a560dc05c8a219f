"""Training data for models: folds, features and windows of episodes as arrays.

Inputs contain no part of the truth.

folds        training and test episodes, divided as in evaluations, and labels of episodes
columns      the features, the same in every episode
features     features of an episode on a regular grid
windows      windows of many episodes: as arrays for scikit-learn, or streamed
frameworks   windows for PyTorch, TensorFlow and JAX, tables for polars

Windows of recordings are in `faultset.datasets.recordings.window_view`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.datasets.recordings.window_view import window_views
    from faultset.datasets.training.columns import FeatureColumns, Modality
    from faultset.datasets.training.features import StepFeatures
    from faultset.datasets.training.folds import EpisodeLabel, Fold, dataset_folds, episode_labels
    from faultset.datasets.training.frameworks import jax_batches, polars_tables, tf_dataset, torch_dataset
    from faultset.datasets.training.windows import EpisodeWindows, RecordingWindows, WindowBatch

__all__ = [
    "EpisodeLabel",
    "EpisodeWindows",
    "FeatureColumns",
    "Fold",
    "Modality",
    "RecordingWindows",
    "StepFeatures",
    "WindowBatch",
    "dataset_folds",
    "episode_labels",
    "jax_batches",
    "polars_tables",
    "tf_dataset",
    "torch_dataset",
    "window_views",
]

__getattr__, __dir__ = lazy_names(__name__)
