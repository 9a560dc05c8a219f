"""How much a command says on standard error: warnings by default, every step with `-v`, errors alone with `-q`."""

from __future__ import annotations

import logging

import click

_LOGGER = logging.getLogger("faultset")


def set_verbosity(*, verbose: int = 0, quiet: bool = False) -> None:
    """Choose which log messages of faultset are shown.

    Parameters
    ----------
    verbose
        0 shows warnings, 1 what a command does step by step, 2 everything.
    quiet
        Show errors alone, and no progress.
    """
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    _LOGGER.setLevel(level)
    if logging.lastResort is not None:  # writes to standard error where nobody has set up logging
        logging.lastResort.setLevel(level)


def is_quiet() -> bool:
    """Return whether progress is not to be shown."""
    return not _LOGGER.isEnabledFor(logging.WARNING)


def verbosity_options() -> list[click.Option]:
    """Return the options `-v` and `-q` of a command; `read_verbosity` takes what they gave."""
    return [
        click.Option(["-v", "--verbose"], count=True, help="Print what is done, step by step; -vv prints everything."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only: no progress and no warnings."),
    ]


def read_verbosity(context: click.Context) -> None:
    """Take the values of `-v` and `-q` out of a command's parameters, and act on them.

    Raises
    ------
    click.UsageError
        Both were given.
    """
    verbose, quiet = context.params.pop("verbose", 0), context.params.pop("quiet", False)
    if verbose and quiet:
        raise click.UsageError("give either -v or -q", context)
    set_verbosity(verbose=verbose, quiet=quiet)
