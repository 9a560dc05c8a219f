"""LogQL: stream selectors with line filters and conditions on labels, and counts of lines as series for PromQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from faultset.datasets.serve.promql.evaluation import read_matchers
from faultset.datasets.serve.promql.series import LabelMatcher, QueryError
from faultset.datasets.serve.request_times import duration_s

_STRING = r'(?:"(?:[^"\\]|\\.)*"|`[^`]*`)'
_SELECTOR = r"\{(?:[^{}\"`]|" + _STRING + r")*\}"
_FILTER = r"\s*(?:\|=|!=|\|~|!~)\s*" + _STRING + r"(?:\s+or\s+" + _STRING + r")*"
_LABELS = r"\s*\|\s*[A-Za-z_]\w*\s*(?:=~|!~|!=|=)\s*" + _STRING
_DROP = r"\s*\|\s*drop\s+__error(?:_details)?__(?:\s*,\s*__error(?:_details)?__)*"
"""Stage that Grafana adds to its queries for the log volume; it has no effect, because no line has these labels."""
_STAGES = rf"(?:{_FILTER}|{_LABELS}|{_DROP})*"
_PIPELINE = re.compile(rf"\s*(?P<selector>{_SELECTOR})(?P<stages>{_STAGES})\s*")
_EACH_STAGE = re.compile(
    rf"\s*(?P<sign>\|=|!=|\|~|!~)\s*(?P<texts>{_STRING}(?:\s+or\s+{_STRING})*)"
    rf"|\s*\|\s*(?P<condition>[A-Za-z_]\w*\s*(?:=~|!~|!=|=)\s*{_STRING})"
)
_EACH_STRING = re.compile(_STRING)
_COUNT = re.compile(
    r"\b(?P<function>count_over_time|rate|bytes_over_time|bytes_rate)\s*\(\s*"
    rf"(?P<pipeline>{_SELECTOR}{_STAGES})\s*\[(?P<range>\w+)\]\s*(?P<offset>offset\s+-?\w+\s*)?\)"
)
_SUPPORTED = (
    "use stream selectors with the line filters |= != |~ !~ and conditions on labels, or count_over_time, rate, "
    "bytes_over_time and bytes_rate of them"
)


@dataclass(frozen=True)
class LineFilter:
    """A condition on log lines: a line must contain one of the patterns, or none if `is_negated`."""

    patterns: tuple[re.Pattern[str], ...]
    is_negated: bool

    def accepts(self, line: str) -> bool:
        """Return whether a line passes."""
        return any(pattern.search(line) for pattern in self.patterns) != self.is_negated


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A stream selector with its conditions on labels, and its line filters."""

    matchers: Sequence[LabelMatcher]
    filters: Sequence[LineFilter]

    def accepts(self, line: str) -> bool:
        """Return whether a line passes all filters."""
        return all(item.accepts(line) for item in self.filters)


def parse_pipeline(query: str) -> Pipeline:
    """Parse a query for log lines; raise QueryError if it is invalid or not supported."""
    match = _PIPELINE.fullmatch(query)
    if match is None:
        raise QueryError(f'the LogQL query "{query[:200]}" is invalid or not supported; {_SUPPORTED}')
    stages = [*_EACH_STAGE.finditer(match["stages"])]
    conditions = [stage["condition"] for stage in stages if stage["condition"]]
    selector = ",".join([match["selector"].strip("{} ").rstrip(","), *conditions])
    return Pipeline(
        matchers=read_matchers(f"{{{selector}}}"),
        filters=[_read_filter(stage["sign"], stage["texts"]) for stage in stages if stage["sign"]],
    )


def is_pipeline(query: str) -> bool:
    """Return whether a query selects log lines rather than computing numbers."""
    return query.lstrip().startswith("{")


def extract_counts(query: str, register: Callable[[Pipeline, bool], str]) -> str:
    """Return the PromQL of a LogQL query that counts lines.

    Parameters
    ----------
    register
        Called with each pipeline and whether to count bytes; returns the name of a metric with the number of lines or
        bytes per point in time.
    """

    def replace(match: re.Match[str]) -> str:
        function = match["function"]
        metric = register(parse_pipeline(match["pipeline"]), function.startswith("bytes"))
        total = f"sum_over_time({metric}[{match['range']}] {match['offset'] or ''})"
        if function in ("rate", "bytes_rate"):
            return f"({total} / {duration_s(match['range'], 'range')!r})"
        return total

    promql = _COUNT.sub(replace, query)
    if "{" in promql or "|" in promql:
        raise QueryError(f'the LogQL query "{query[:200]}" is invalid or not supported; {_SUPPORTED}')
    return promql


def _read_filter(sign: str, texts: str) -> LineFilter:
    strings = [_read_string(text) for text in _EACH_STRING.findall(texts)]
    is_regular = sign.endswith("~")
    try:
        patterns = tuple(re.compile(text if is_regular else re.escape(text)) for text in strings)
    except re.error as error:
        raise QueryError(f'the regular expression in the line filter "{texts[:100]}" is invalid ({error})') from None
    return LineFilter(patterns, is_negated=sign.startswith("!"))


def _read_string(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]
    try:
        return str(ast.literal_eval(text.replace("\n", "\\n")))
    except (ValueError, SyntaxError):
        raise QueryError(f"the string {text[:100]} is invalid; write backslashes twice or use backticks") from None
