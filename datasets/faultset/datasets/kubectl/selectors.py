"""Label selectors and field selectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from faultset.datasets.kubectl.errors import CommandError

_LABEL_TERM = re.compile(
    r"""\s*(?:(?P<absent>!)?\s*(?P<key>[\w./-]+))\s*"""
    r"""(?:(?P<sign>==|=|!=)\s*(?P<value>[\w.-]*)|(?<=\s)(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,|$)""",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class LabelTerm:
    """One condition of a label selector.

    Attributes
    ----------
    values
        Of which the label has one; None when it only has to be there.
    wanted
        Whether the condition holds, or must not hold.
    """

    key: str
    values: tuple[str, ...] | None
    wanted: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet the condition; a label that is not there has no value."""
        holds = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return holds == self.wanted


@dataclass(frozen=True)
class LabelSelector:
    """Conditions that all hold."""

    terms: tuple[LabelTerm, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet all conditions."""
        return all(term.matches(labels) for term in self.terms)


def label_selector(text: str) -> LabelSelector:
    """Return a selector as `-l` takes it: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    >>> label_selector("app in (geo, rate),!canary").matches({"app": "geo"})
    True

    Raises
    ------
    CommandError
        It cannot be read.
    """
    terms, place = [], 0
    while place < len(text):
        found = _LABEL_TERM.match(text, place)
        if found is None or (found["absent"] and (found["sign"] or found["set"])):
            raise CommandError(
                f"the selector {text[:60]!r} cannot be read; write key=value, or several joined by commas"
            )
        terms.append(_term(found))
        place = found.end()
    return LabelSelector(tuple(terms))


def field_terms(text: str) -> list[tuple[str, str, str]]:
    """Return a field selector as (path, sign, value).

    >>> field_terms("type!=Normal,reason=Killing")
    [('type', '!=', 'Normal'), ('reason', '=', 'Killing')]

    Raises
    ------
    CommandError
        It cannot be read.
    """
    return [_field_term(term) for term in text.split(",") if term.strip()]


def _term(found: re.Match[str]) -> LabelTerm:
    if found["sign"]:
        return LabelTerm(key=found["key"], values=(found["value"],), wanted=found["sign"] != "!=")
    if found["set"]:
        values = tuple(one.strip() for one in found["values"].split(","))
        return LabelTerm(key=found["key"], values=values, wanted=found["set"] == "in")
    return LabelTerm(key=found["key"], values=None, wanted=not found["absent"])


def _field_term(term: str) -> tuple[str, str, str]:
    for sign in ("!=", "==", "="):
        path, found, value = term.partition(sign)
        if found:
            return path.strip(), sign, value.strip()
    raise CommandError(f"the field selector {term[:60]!r} cannot be read")
