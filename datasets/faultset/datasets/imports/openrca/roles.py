"""Which signal OpenRCA's indicators carry, by words in their names; earlier rows win."""

from __future__ import annotations

_WORDS = (
    ("latency", "s", "max", ("mrt", "avg_time", "*atency*", "*duration*", "*esponseTime*", "*_time_*")),
    ("errors", "1", "mean", ("rr", "sr", "succee_rate", "succee_num", "*rror*", "*ail*")),
    ("traffic", "1", "sum", ("cnt", "num", "count", "*equests*", "*_tps*", "*QPS*")),
    ("cpu", "1", "max", ("*cpu*", "*CPU*", "*Cpu*")),
    ("memory", "1", "max", ("*mem*", "*Mem*", "*MEM*", "*heap*", "*Heap*", "*swap*", "*Swap*")),
    ("disk", "1", "max", ("*disk*", "*Disk*", "*DSK*", "*_fs_*", "*FileSystem*", "*blkio*", "*I/O*", "*IO*")),
    ("network", "1", "sum", ("*network*", "*Net*", "*tcp*", "*TCP*", "*bytes_*", "*sent*", "*received*")),
    ("threads", "1", "max", ("*thread*", "*Thread*", "*rocs*")),
    ("saturation", "1", "max", ("*onn*", "*ueue*", "*ession*", "*load*", "*Load*")),
)

METRIC_ROLES: tuple[dict[str, str], ...] = tuple(
    {
        "source": "openrca",
        "metric": pattern,
        "role": role,
        "unit": unit,
        "kind": "gauge",
        "combine": combine,
        "meaning": "by a word in its name",
    }
    for role, unit, combine, patterns in _WORDS
    for pattern in patterns
)
