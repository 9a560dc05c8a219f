"""The extra that training needs; running what was trained does not."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from faultset.core.errors import EXTRAS, needs_extra

EXTRA = "neural"
_PACKAGES = EXTRAS[EXTRA]


def missing_packages() -> tuple[str, ...]:
    """Return what the extra would bring and is not installed."""
    return tuple(name for name in _PACKAGES if importlib.util.find_spec(name) is None)


def jax_and_optax() -> tuple[Any, Any]:
    """Import what trains networks, on the CPU.

    Raises
    ------
    UsageError
        The extra is not installed.
    """
    try:
        jax, optax = (importlib.import_module(name) for name in _PACKAGES)
    except ImportError as error:
        raise needs_extra("training of neural baselines", EXTRA) from error
    jax.config.update("jax_platforms", "cpu")
    return jax, optax
