"""Give each service one name in all signals, and infer kinds and roles of metrics from their names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from faultset.datasets.imports.telemetry.identity import NO_SERVICE, Origin
from faultset.datasets.imports.telemetry.mapping import TelemetryMapping
from faultset.datasets.metrics.roles import builtin_catalogue

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
"""Letters of the random suffixes of Kubernetes."""
_POD_SUFFIXES = (
    re.compile(rf"-{_RANDOM}{{5,10}}-{_RANDOM}{{5}}$"),
    re.compile(r"-[0-9a-f]{8,10}-[a-z0-9]{5}$"),
    re.compile(r"-\d{1,3}$"),
    re.compile(rf"-(?=\S*\d){_RANDOM}{{5}}$"),
)
_CLUSTER_DOMAIN = re.compile(r"\.(?P<namespace>[a-z0-9-]+)\.svc(?:\.cluster\.local)?(?::\d+)?$")
_ENDINGS = re.compile(r"(?:service|svc|deployment)$")
_UNKNOWN = frozenset({"unknown", "unknown_service", "none", "<null>"})


@dataclass(frozen=True, kw_only=True)
class ServiceNames:
    """Services of an import, and their names in the data."""

    of_origin: Mapping[str, str | None]
    """`Origin` as text -> its service; None if its rows belong to no service."""
    of_name: Mapping[str, str | None]
    """Name in the data -> its service."""
    aliases: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Service -> all its names in the data, by signal."""
    unmatched: Mapping[str, int]
    """Signal -> number of rows without a service."""
    linked: tuple[tuple[str, str, str], ...] = ()
    """Names that were attributed to a service, each with the service and the reason."""
    services: tuple[str, ...] = ()

    def find(self, name: str) -> str | None:
        """Return the service of a name in the data or in the dataset, or None."""
        if name in self.services:
            return name
        return self.of_name.get(name)


def derive_workload(pod: str) -> str:
    """Return the workload that the name of a pod suggests; empty if the name is empty.

    >>> [derive_workload(pod) for pod in ("cart-7d4b9c5f6-x2x4z", "redis-0", "kube-proxy-8nmp6", "standalone")]
    ['cart', 'redis', 'kube-proxy', 'standalone']
    """
    for suffix in _POD_SUFFIXES:
        name, count = suffix.subn("", pod)
        if count and name:
            return name
    return pod


def name_services(origins: Mapping[str, Mapping[str, int]], mapping: TelemetryMapping) -> ServiceNames:
    """Name the services of all origins (table -> origin -> rows); names in the mapping file take precedence."""
    parsed = {text: _clean(Origin.parse(text)) for counts in origins.values() for text in counts}
    _strip_namespaces(parsed)
    of_pod, of_workload = _find_links(parsed, origins)
    raw = {text: _find_raw_name(origin, of_pod, of_workload) for text, origin in parsed.items()}
    canonical, linked = _unify(raw, origins, mapping)
    linked = [*linked, *_describe_links(parsed, raw)]
    of_origin = {text: _resolve_name(name, canonical, parsed[text], mapping) for text, name in raw.items()}
    of_name = {
        name: _resolve_name(name, canonical, Origin(service=name), mapping) for name in set(raw.values()) if name
    }
    for origin in parsed.values():
        for name in (origin.service, origin.workload, derive_workload(origin.pod)):
            if name and name not in of_name:
                of_name[name] = _resolve_name(
                    canonical.get(name, of_workload.get(name, name)), canonical, origin, mapping
                )
    aliases: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    unmatched: Counter[str] = Counter()
    for table, counts in origins.items():
        for text, count in counts.items():
            service, origin = of_origin[text], parsed[text]
            if service is None:
                unmatched[table] += count
            else:
                aliases[service][table].add(
                    origin.service or origin.workload or derive_workload(origin.pod) or origin.container
                )
    return ServiceNames(
        of_origin=of_origin,
        of_name=of_name,
        aliases={name: {t: tuple(sorted(n)) for t, n in tables.items()} for name, tables in aliases.items()},
        unmatched=unmatched,
        linked=tuple(dict.fromkeys(linked)),
        services=tuple(sorted(aliases)),
    )


def _clean(origin: Origin) -> Origin:
    service = origin.service
    match = _CLUSTER_DOMAIN.search(service)
    if match:
        origin = origin._replace(service=service[: match.start()], namespace=origin.namespace or match["namespace"])
    if origin.service.lower().partition(":")[0] in _UNKNOWN:
        origin = origin._replace(service="")
    return origin


def _strip_namespaces(parsed: dict[str, Origin]) -> None:
    """Remove a known namespace from names such as `reviews.bookinfo`, in place."""
    namespaces = {origin.namespace for origin in parsed.values()} - {""}
    tails = Counter(o.service.rpartition(".")[2] for o in parsed.values() if "." in o.service)
    namespaces |= {tail for tail, count in tails.items() if count >= 3}
    for text, origin in parsed.items():
        name, dot, tail = origin.service.rpartition(".")
        if dot and name and tail in namespaces:
            parsed[text] = origin._replace(service=name)


def _find_links(
    parsed: Mapping[str, Origin], origins: Mapping[str, Mapping[str, int]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the service of each pod, and of each workload whose pods all have the same service."""
    rows: Counter[str] = Counter()
    for counts in origins.values():
        rows.update(counts)
    by_pod: dict[str, Counter[str]] = defaultdict(Counter)
    by_workload: dict[str, Counter[str]] = defaultdict(Counter)
    for text, origin in parsed.items():
        if origin.service in ("", NO_SERVICE):
            continue
        workload = origin.workload or derive_workload(origin.pod)
        if origin.pod:
            by_pod[origin.pod][origin.service] += rows[text]
        if workload:
            by_workload[workload][origin.service] += rows[text]
    of_pod = {pod: names.most_common(1)[0][0] for pod, names in by_pod.items()}
    of_workload = {workload: next(iter(names)) for workload, names in by_workload.items() if len(names) == 1}
    return of_pod, of_workload


def _find_raw_name(origin: Origin, of_pod: Mapping[str, str], of_workload: Mapping[str, str]) -> str:
    if origin.service:
        return "" if origin.service == NO_SERVICE else origin.service
    if origin.pod in of_pod:
        return of_pod[origin.pod]
    workload = origin.workload or derive_workload(origin.pod)
    if workload:
        return of_workload.get(workload, workload)
    return "" if origin.pod else origin.container


def _simplify(name: str) -> str:
    """Return a name in lower case, without separators or an ending such as `service`.

    >>> _simplify("cart-service"), _simplify("CartService"), _simplify("service")
    ('cart', 'cart', 'service')
    """
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    return _ENDINGS.sub("", text) or text


def _unify(
    raw: Mapping[str, str], origins: Mapping[str, Mapping[str, int]], mapping: TelemetryMapping
) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Map each name to one spelling; names in different signals are unified if only their spelling differs."""
    tables: dict[str, Counter[str]] = defaultdict(Counter)
    for table, counts in origins.items():
        for text, count in counts.items():
            if raw[text]:
                tables[raw[text]][table] += count
    groups: dict[str, list[str]] = defaultdict(list)
    for name in tables:
        groups[_simplify(name)].append(name)
    canonical: dict[str, str] = {}
    linked: list[tuple[str, str, str]] = []
    for names in groups.values():
        main = max(names, key=lambda name: (tables[name]["spans"] > 0, sum(tables[name].values()), name))
        for name in names:
            shares = tables[name].keys() & tables[main].keys()
            is_same = name == main or not shares or name in mapping.services
            canonical[name] = main if is_same else name
            if name != main and is_same:
                linked.append((name, main, "the names differ only in spelling"))
    return canonical, linked


def _describe_links(parsed: Mapping[str, Origin], raw: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    for text, origin in parsed.items():
        workload = origin.workload or derive_workload(origin.pod)
        if not origin.service and workload and raw[text] != workload:
            yield workload, raw[text], "records of one pod use both names"


def _resolve_name(name: str, canonical: Mapping[str, str], origin: Origin, mapping: TelemetryMapping) -> str | None:
    spelling = canonical.get(name, name)
    for key in (origin.service, origin.pod, origin.workload, name, spelling):
        if key and key in mapping.services:
            return mapping.services[key] or None
    return spelling or None


_ROLE_WORDS = (
    ("errors", r"error|fail|exception|5xx|4xx"),
    ("latency", r"latency|duration|response_time|elapsed|_rt$|^rt_|p9\d|p50|percentile"),
    ("restarts", r"restart"),
    ("throttling", r"throttl"),
    ("limits", r"limit|quota|_max$"),
    ("cpu", r"cpu|load1|load5"),
    ("memory", r"mem|heap|rss|swap|gc_"),
    ("network", r"network|net_|_net|rx_|tx_|socket|tcp|packet|receive|transmit"),
    ("disk", r"disk|_io_|fs_|iops|filesystem|storage"),
    ("threads", r"thread|goroutine"),
    ("descriptors", r"_fds|descriptor|open_files"),
    ("saturation", r"queue|pool|connection|saturat|pending|backlog|lag|wait"),
    ("traffic", r"request|qps|rps|tps|throughput|calls|messages|workload|_count$|_total$"),
)
_MEANS = frozenset({"latency", "saturation", "limits"})


def guess_role(metric: str, kind: str) -> dict[str, str]:
    """Return the row of the catalogue that a metric's name suggests.

    >>> guess_role("cart_queue_length", "gauge")["role"], guess_role("jvm_heap_used", "gauge")["role"]
    ('saturation', 'memory')
    """
    name = metric.lower()
    role = next((role for role, words in _ROLE_WORDS if re.search(words, name)), "other")
    unit = "s" if "second" in name else "By" if "bytes" in name else "1"
    return role_row(metric, role, kind, unit)


def role_row(metric: str, role: str, kind: str, unit: str = "1") -> dict[str, str]:
    """Return a row of the catalogue for a metric of an import."""
    kind = "histogram" if kind in ("bucket", "sum", "count") else "counter" if kind.endswith("counter") else "gauge"
    return {
        "source": "telemetry",
        "metric": metric,
        "role": role,
        "unit": unit,
        "kind": kind,
        "combine": "mean" if role in _MEANS else "sum",
        "keep_label": "",
        "meaning": "",
    }


def infer_kinds(metrics: Mapping[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each metric of unknown kind, from declared types of families and the names of all metrics.

    >>> infer_kinds(dict.fromkeys(("d_bucket", "d_sum", "d_count", "r_total", "up", "x_count"), "unknown"), {})
    {'d_bucket': 'bucket', 'd_sum': 'sum', 'd_count': 'count', 'r_total': 'counter', 'up': 'gauge', 'x_count': 'gauge'}
    """
    return {metric: _infer_kind(metric, metrics, types) for metric, kind in metrics.items() if kind == "unknown"}


def _infer_kind(metric: str, metrics: Mapping[str, str], types: Mapping[str, str]) -> str:
    for suffix in ("bucket", "sum", "count"):
        family = metric.removesuffix(f"_{suffix}")
        if family == metric:
            continue
        declared = types.get(family)
        if declared in ("histogram", "summary"):
            return suffix
        if declared is None and (suffix == "bucket" or {f"{family}_sum", f"{family}_count"} <= metrics.keys()):
            return suffix
    declared = types.get(metric) or types.get(metric.removesuffix("_total"), "")
    if declared == "counter" or (declared in ("", "unknown", "untyped") and metric.endswith("_total")):
        return "counter"
    return "gauge"


def list_roles(
    metrics: Mapping[str, str], declared: Mapping[str, Mapping[str, str]], mapped: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return catalogue rows for metrics that the built-in catalogue lacks and whose role is declared or can be guessed.

    Roles of the mapping file (`mapped`, by metric or pattern) come first, then rows that our own export declares.
    Metrics with an empty declared row are left out.
    """
    rows = [role_row(metric, role, metrics.get(metric, "gauge")) for metric, role in mapped.items()]
    rows += [dict(row) for metric, row in declared.items() if row and metric not in mapped]
    covered = {row["metric"] for row in rows} | declared.keys()
    catalogue = builtin_catalogue()
    for metric, kind in sorted(metrics.items()):
        family = re.sub(r"_(bucket|sum|count)$", "", metric) if kind in ("bucket", "sum", "count") else metric
        name = family.partition("{")[0]
        if covered & {name, family, metric} or catalogue.find(family) is not None:
            continue
        covered.add(family)
        guess = guess_role(family, kind)
        if catalogue.role_of(family) == guess["role"] or guess["role"] == "other":
            continue
        if catalogue.role_of(family) == "other":
            rows.append(guess)
    return rows
