"""Errors that a person using faultset can cause or meet.

FaultsetError                 one clear sentence: what was wanted, what was found, what to do
├── UsageError       exit 2   a wrong or impossible request
├── DataError        exit 3   a dataset that is missing, damaged or of another schema
└── PlatformError    exit 4   the place where applications run does not do what is needed

Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import ClassVar


class FaultsetError(Exception):
    """Root of the errors that are shown as one sentence instead of a traceback."""

    exit_code: ClassVar[int] = 1


class UsageError(FaultsetError):
    """A request that cannot be meant: unknown name, impossible length, contradicting options."""

    exit_code = 2


class DataError(FaultsetError):
    """A dataset, version, episode or file that is missing, damaged or not readable by this release."""

    exit_code = 3


class PlatformError(FaultsetError):
    """A platform that cannot run the application, or an application that does not become healthy."""

    exit_code = 4
