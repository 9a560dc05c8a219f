"""Hide secrets in log messages and attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from faultset.core.errors import UsageError
from faultset.core.printable import quoted

HIDDEN = "<redacted>"
_KEYS = (
    r"pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|authorization|(?:api|access|private|client)[-_.]?"
    r"(?:key|secret)"
)
_VALUE = r"""(?:"[^"]{1,4096}"|'[^']{1,4096}'|[^\s,;&"'}\]]{1,4096})"""
_PATTERNS = (
    rf"""(?P<head>["']?[\w.-]*(?:{_KEYS})["']?\s*(?:=|:)\s*)(?:(?:bearer|basic)\s+)?{_VALUE}""",
    r"(?P<bearer>\bbearer\s+)[\w.~+/=-]{8,4096}",
    r"(?P<scheme>[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,200}:)[^\s@/]{1,200}(?=@)",
    r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
    r"\bglpat-[\w-]{20,}",
    r"\bxox[abprs]-[\w-]{10,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{0,16384}?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)
"""Texts to hide: values whose key names a secret, and tokens in a known format."""
_HINT = re.compile(rf"{_KEYS}|bearer|://|eyJ|AKIA|ASIA|gh[pousr]_|glpat-|xox|PRIVATE KEY", re.IGNORECASE)
SECRET_KEY = re.compile(rf"(?:^|[._-])(?:{_KEYS})$", re.IGNORECASE)
"""Name of an attribute whose value is a secret."""


class Redactor:
    """Replaces secrets with a mark, and counts changed texts.

    Parameters
    ----------
    enabled
        Whether the built-in patterns apply.
    patterns
        Regular expressions of the user, which always apply.

    Raises
    ------
    UsageError
        A pattern is not a regular expression.

    Examples
    --------
    >>> Redactor().hide("login of eve, password=hunter2 ok")
    'login of eve, password=<redacted> ok'
    """

    def __init__(self, enabled: bool = True, patterns: Sequence[str] = ()) -> None:
        self.changed = 0
        self.key = [enabled, *patterns]
        """Settings that the key of a staged file includes."""
        self._enabled = enabled
        self._builtin = re.compile("|".join(_PATTERNS), re.IGNORECASE)
        try:
            self._added = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise UsageError(
                f"--redact-patterns must be a regular expression, got {quoted(str(error.pattern))}"
            ) from None

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        shown = text
        if self._enabled and _HINT.search(text):
            shown = self._builtin.sub(_replace, text)
        for pattern in self._added:
            shown = pattern.sub(HIDDEN, shown)
        if shown != text:
            self.changed += 1
        return shown

    def hides_key(self, name: str) -> bool:
        """Return whether the value of an attribute must be hidden because of its name."""
        return self._enabled and SECRET_KEY.search(name) is not None


def _replace(match: re.Match[str]) -> str:
    return (match["head"] or match["bearer"] or match["scheme"] or "") + HIDDEN
