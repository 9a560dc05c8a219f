"""Windows for PyTorch, TensorFlow and JAX, and tables for polars; these libraries are imported only when used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from faultset.core.errors import UsageError, needs_extra

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset
    from faultset.datasets.training.windows import EpisodeWindows, WindowBatch

ARRAYS = ("values", "mask", "labels", "groups", "ends_ns")


def torch_dataset(windows: EpisodeWindows) -> Any:
    """Return a map-style `torch.utils.data.Dataset` whose items are dictionaries of tensors.

    Items have `values` [L, D] float32, `mask` [L, D] bool, `labels` [L] int8, and the numbers `group` and `end_ns`.
    Only one episode is in memory at a time, so read its windows consecutively: use a sampler that shuffles episodes, or
    `EpisodeWindows.batches(seed=...)`.

    Raises
    ------
    UsageError
        PyTorch is not installed.
    """
    torch = _import_library("torch", "torch.utils.data")

    class WindowDataset(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(windows)

        def __getitem__(self, number: int) -> dict[str, Any]:
            window = windows[number]
            return {
                "values": torch.from_numpy(window.values[0]),
                "mask": torch.from_numpy(window.mask[0]),
                "labels": torch.from_numpy(window.labels[0]),
                "group": int(window.groups[0]),
                "end_ns": int(window.ends_ns[0]),
            }

    return WindowDataset()


def tf_dataset(windows: EpisodeWindows, size: int = 64, *, seed: int | None = None) -> Any:
    """Return a `tf.data.Dataset` of batches as dictionaries with the names and types of `WindowBatch`.

    Raises
    ------
    UsageError
        TensorFlow is not installed.
    """
    tf = _import_library("tensorflow")
    length, width = windows.length, len(windows.columns)
    shapes = {
        "values": ((None, length, width), tf.float32),
        "mask": ((None, length, width), tf.bool),
        "labels": ((None, length), tf.int8),
        "groups": ((None,), tf.int64),
        "ends_ns": ((None,), tf.int64),
    }
    return tf.data.Dataset.from_generator(
        lambda: map(_get_arrays, windows.batches(size, seed=seed)),
        output_signature={name: tf.TensorSpec(shape=shape, dtype=kind) for name, (shape, kind) in shapes.items()},
    )


def jax_batches(windows: EpisodeWindows, size: int = 64, *, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield batches of JAX arrays; times remain NumPy arrays, because JAX uses 32 bits by default.

    Raises
    ------
    UsageError
        JAX is not installed.
    """
    jnp = _import_library("jax.numpy")

    def stream() -> Iterator[dict[str, Any]]:
        for batch in windows.batches(size, seed=seed):
            arrays = _get_arrays(batch)
            yield {name: arrays[name] if name == "ends_ns" else jnp.asarray(arrays[name]) for name in ARRAYS}

    return stream()


def polars_tables(dataset: Dataset) -> dict[str, Any]:
    """Return every table of a version as a `polars.LazyFrame` over the dataset's files, without reading them.

    Raises
    ------
    UsageError
        polars is not installed.
    """
    polars = _import_library("polars", extra="exports")
    files: dict[str, list[str]] = {}
    for episode, records in dataset.files.items():
        for name in records:
            if name.endswith(".parquet"):
                path = dataset.path(episode) / name
                files.setdefault(path.stem, []).append(str(path))
    return {table: polars.scan_parquet(paths) for table, paths in sorted(files.items())}


def _get_arrays(batch: WindowBatch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in ARRAYS}


def _import_library(name: str, *modules: str, extra: str = "") -> Any:
    try:
        for module in modules:
            importlib.import_module(module)
        return importlib.import_module(name)
    except ImportError as error:
        if extra:
            raise needs_extra(f"reading with {name}", extra) from error
        package = name.partition(".")[0]
        raise UsageError(f"{package} is not installed ({error}); install it, or use EpisodeWindows.batches") from error
