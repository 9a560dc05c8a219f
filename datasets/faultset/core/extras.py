"""What the extras of the distribution bring, so that a missing package is one sentence and not a traceback."""

from __future__ import annotations

from faultset.core.errors import UsageError

EXTRAS = {
    "evaluate": ("cachetools", "cloudpickle", "dask", "distributed", "fsspec", "jinja2", "networkx", "sklearn"),
    "inspect": ("inspect_ai",),
    "kubernetes": ("kubernetes",),
}
"""Extra -> the packages that only it brings, as they are imported."""


def missing_extra(error: ModuleNotFoundError) -> UsageError | None:
    """Return the error for a user who has not installed an extra; None where the missing module is another one."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return UsageError(
                f'this needs the package "{package}", which comes with the extra "{extra}"; '
                f"run: pip install 'faultset[{extra}]', or in a clone pip install '.[{extra}]'"
            )
    return None
