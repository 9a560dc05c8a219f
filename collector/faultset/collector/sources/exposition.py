"""Read Prometheus' text exposition format, scrape after scrape, from the same target."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from faultset.datasets.telemetry_formats.prometheus import canonical_labels, sample_kind


class ExpositionReader:
    """Reads the scrapes of one target.

    The text before the value is the same in every scrape, so each series is parsed once and then looked up.
    Timestamps in the text are ignored in favour of the scraper's clock.

    Parameters
    ----------
    register
        Called once per new series with its metric, canonical labels and kind; returns its number.
    """

    def __init__(self, register: Callable[[str, str, str], int]):
        self._register = register
        self._numbers: dict[str, int] = {}

    def read(self, text: str) -> tuple[list[int], list[float]]:
        """Return the series numbers and values of all samples in one scrape.

        Raises
        ------
        ValueError
            The text is not in the exposition format.
        """
        numbers: list[int] = []
        values: list[float] = []
        cache = self._numbers
        family, family_type = "", "untyped"
        for line in text.splitlines():
            if line.startswith("#"):
                words = line.split(None, 3)
                if len(words) == 4 and words[1] == "TYPE":
                    family, family_type = words[2], words[3].strip()
                continue
            head, _, tail = line.rpartition(" ")
            if not head:
                if line.strip():
                    raise ValueError(f"not a sample: {line!r}")
                continue
            number = cache.get(head)
            if number is None:
                number, tail, cacheable = self._parse(line, family, family_type)
                if cacheable:
                    cache[head] = number
            numbers.append(number)
            values.append(float(tail))
        return numbers, values

    def _parse(self, line: str, family: str, family_type: str) -> tuple[int, str, bool]:
        samples = [sample for parsed in text_string_to_metric_families(line + "\n") for sample in parsed.samples]
        if len(samples) != 1:
            raise ValueError(f"not a sample: {line!r}")
        sample = samples[0]
        kind = sample_kind(sample.name, family, family_type) if sample.name.startswith(family) else "gauge"
        number = self._register(sample.name, canonical_labels(sample.labels), kind)
        return number, repr(sample.value), sample.timestamp is None
