"""Files with passwords: those mounted into containers, and those that servers are started with."""

from __future__ import annotations

import os
from pathlib import Path

from faultset.collector.spec.containers import CREDENTIALS_PATH
from faultset.core.errors import PlatformError


def read_password(name: str) -> str:
    """Return the password in a mounted file; raise PlatformError when there is none."""
    path = Path(os.environ.get("FAULTSET_CREDENTIALS") or CREDENTIALS_PATH) / name
    try:
        password = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise PlatformError(
            f"the password in {path} cannot be read ({reason}); mount the Secret there, or name its folder in "
            "FAULTSET_CREDENTIALS"
        ) from None
    if not password:
        raise PlatformError(f"the password in {path} must not be empty")
    return password


def write_private_file(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
