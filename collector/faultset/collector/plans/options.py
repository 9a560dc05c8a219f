"""Options of a campaign for the command line, campaign files and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Required, TypedDict, Unpack, get_args, get_origin, get_type_hints

from faultset.core.errors import UsageError, suggest

NoFaultKind = Literal["plain", "disturbed", "sham"]
NO_FAULT_KINDS: tuple[NoFaultKind, ...] = get_args(NoFaultKind)
Schedule = Literal["constant", "gradual", "intermittent", "delayed"]
MAX_CONCURRENT = 2
MAX_ROLLOUTS = 20
_DAY_S = 86_400.0
_NAMES_HELP = "Comma-separated names, or all."


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a campaign; `campaign_options` fills in name, flag, kind and whether it is required."""

    help: str
    """Text for `--help`."""
    default: Any = None
    """Value when the option is left out."""
    flag: str = ""
    """Name on the command line and in campaign files, without dashes, if it differs from Python's."""
    metavar: str | None = None
    """Placeholder in `--help`."""
    choices: Sequence[str] = ()
    """Allowed values; empty for any value of the type."""
    shown_default: str | None = None
    """Default to show in `--help` if it is not `default`."""
    minimum: float | None = None
    maximum: float | None = None
    """With `minimum`, the range of a number."""
    plugins: tuple[str, ...] = ()
    """Entry-point group whose names the shell completes, followed by other allowed words."""
    name: str = ""
    """Keyword in Python; lengths of time end in `_s`."""
    kind: Any = None
    """Type of a value that is not None."""
    is_required: bool = False

    @property
    def takes_names(self) -> bool:
        return self.kind == Sequence[str]

    @property
    def is_length(self) -> bool:
        """Whether the value is a length of time in seconds."""
        return self.name.endswith("_s")


def _define_duration(text: str, flag: str = "") -> Option:
    return Option(help=text, flag=flag, minimum=0.0, maximum=_DAY_S, shown_default="by profile")


class CampaignOptions(TypedDict, total=False):
    """Options of a campaign; only faults and apps are required."""

    faults: Required[
        Annotated[
            Sequence[str],
            Option(
                help=f"Faults to inject. {_NAMES_HELP} noop injects none.",
                metavar="NAMES",
                plugins=("faultset.faults", "all", "noop"),
            ),
        ]
    ]
    apps: Required[
        Annotated[
            Sequence[str],
            Option(
                help="Applications to run. Comma-separated names or paths, or all.",
                metavar="NAMES",
                plugins=("faultset.apps", "all"),
            ),
        ]
    ]
    targets: Annotated[
        Sequence[str],
        Option(
            help="Services to apply faults to.", metavar="NAMES", default=(), shown_default="drawn evenly at random"
        ),
    ]
    platform: Annotated[str, Option(help="Where the applications run: local or kubernetes.", default="local")]
    seed: Annotated[int, Option(help="Seed of plans and load.", default=0, minimum=0, maximum=2**63 - 1)]
    repeat: Annotated[int, Option(help="Episodes for each fault.", default=1, minimum=1, maximum=100_000)]
    spread: Annotated[
        bool, Option(help="Inject each fault into one suitable application instead of all of them.", default=False)
    ]
    concurrent: Annotated[
        int,
        Option(
            help="Faults in each faulty episode; 2 injects two different ones on different targets.",
            default=1,
            minimum=1,
            maximum=MAX_CONCURRENT,
        ),
    ]
    schedule: Annotated[
        Schedule | None,
        Option(
            help="How faults act over time.",
            choices=get_args(Schedule),
            shown_default="each fault's own, mostly constant",
        ),
    ]
    normal: Annotated[
        int | None,
        Option(
            help="Episodes without a fault in each application.",
            shown_default="one for each faulty episode, at least 2; with more than 6 faults, half as many, at least 6",
            minimum=0,
            maximum=100_000,
        ),
    ]
    no_fault: Annotated[
        Sequence[str],
        Option(
            help="Kinds of episodes without a fault, which take turns.",
            metavar="KINDS",
            default=NO_FAULT_KINDS,
            shown_default=",".join(NO_FAULT_KINDS),
        ),
    ]
    profile: Annotated[
        str, Option(help="Lengths of the phases.", default="standard", choices=("quick", "standard", "long"))
    ]
    rate_rps: Annotated[
        float | None,
        Option(help="Requests per second.", flag="rate", minimum=0.01, maximum=10_000.0, shown_default="20"),
    ]
    mix: Annotated[
        str | None, Option(help="Workload mix; A..B changes from mix A to mix B.", shown_default="the application's")
    ]
    load: Annotated[
        str | None,
        Option(
            help="How the request rate changes: constant, bursty, daily, flash-crowd, ramp or replay:FILE.csv.",
            metavar="KIND[:NAME=VALUE,...]",
            shown_default="bursty; constant with --profile quick",
        ),
    ]
    regions: Annotated[
        str,
        Option(
            help="Regions of the clients, for instance eu=0.6:20ms,us=0.4:90ms.",
            metavar="NAME=SHARE:TIME,...",
            default="",
            shown_default="one region",
        ),
    ]
    rollouts: Annotated[
        int | None,
        Option(
            help="Mean number of harmless changes in each episode, such as rollouts and scale-outs of random services; "
            "0 for none.",
            metavar="N",
            shown_default="4; 3 with --profile quick, 10 with long",
            minimum=0,
            maximum=MAX_ROLLOUTS,
        ),
    ]
    recording_s: Annotated[
        float | None,
        Option(
            help="Record each application for this time, with incidents, instead of episodes.",
            flag="recording",
            minimum=60.0,
            maximum=31 * _DAY_S,
            shown_default="episodes",
        ),
    ]
    incidents: Annotated[
        int, Option(help="Faults in each recording, at random times; 0 for none.", default=0, minimum=0, maximum=10_000)
    ]
    overlap: Annotated[
        float,
        Option(help="Share of the incidents that start during another one.", default=0.0, minimum=0.0, maximum=0.5),
    ]
    chunk_s: Annotated[
        float,
        Option(
            help="Length of the chunks of a recording; a crash loses at most one.",
            default=600.0,
            shown_default="10m",
            minimum=60.0,
            maximum=3600.0,
        ),
    ]
    slow_traces_s: Annotated[
        float | None,
        Option(
            help="With --recording, keep all traces that take this long or have an error.",
            flag="slow-traces",
            minimum=0.001,
            maximum=3600.0,
            shown_default="sampled like others",
        ),
    ]
    log_levels: Annotated[
        Sequence[str],
        Option(
            help="With --recording, levels of the log lines to keep.", metavar="LEVELS", default=(), shown_default="all"
        ),
    ]
    warmup_s: Annotated[float | None, _define_duration("Load before the view begins.")]
    baseline_s: Annotated[float | None, _define_duration("Healthy part of the view, on average.", "healthy")]
    fault_s: Annotated[float | None, _define_duration("Faulty part of the view, on average.", "faulty")]
    cooldown_s: Annotated[float | None, _define_duration("Time after the recovery for late telemetry.")]
    step_s: Annotated[
        float,
        Option(
            help="Sampling interval of metrics; ignored on a cluster.",
            default=1.0,
            shown_default="1s",
            minimum=0.1,
            maximum=60.0,
        ),
    ]
    trace_sampling: Annotated[
        float, Option(help="Share of requests whose spans are kept.", default=1.0, minimum=0.0, maximum=1.0)
    ]
    sources: Annotated[
        Sequence[str],
        Option(help="Additional sources of telemetry.", metavar="NAMES", default=(), plugins=("faultset.sources",)),
    ]
    injector: Annotated[
        str | None,
        Option(
            help="Method of injecting faults into pods of a cluster.",
            choices=("agent", "chaos-mesh"),
            shown_default="agent",
        ),
    ]
    stores: Annotated[
        str | None,
        Option(
            help="Store servers: redis for all; original for real memcached and PostgreSQL; or one name.",
            metavar="NAMES",
            shown_default="redis",
        ),
    ]


@cache
def campaign_options() -> Mapping[str, Option]:
    """Return all options of a campaign by their names in Python."""
    options = {}
    for name, hint in get_type_hints(CampaignOptions, include_extras=True).items():
        is_required = get_origin(hint) is Required
        kind, option = get_args(get_args(hint)[0] if is_required else hint)
        if type(None) in get_args(kind):
            (kind,) = (kind_of_value for kind_of_value in get_args(kind) if kind_of_value is not type(None))
        flag = option.flag or name.removesuffix("_s").replace("_", "-")
        options[name] = replace(option, name=name, flag=flag, kind=kind, is_required=is_required)
    return options


def complete_options(**values: Unpack[CampaignOptions]) -> dict[str, Any]:
    """Return a value for every option, with lists of names as tuples without duplicates; raise UsageError if one is
    missing.
    """
    registered = campaign_options()
    for name in values:
        if name not in registered:
            raise UsageError(f'a campaign has no option "{name}"; {suggest(name, registered)}')
    complete = {}
    for name, option in registered.items():
        if option.is_required and name not in values:
            raise UsageError(f"a campaign needs {name}; give at least one")
        value: Any = values.get(name, option.default)
        if option.takes_names:
            value = tuple(dict.fromkeys(value))
        complete[name] = float(value) if option.kind is float and value is not None else value
    return complete


def check_ranges(values: Mapping[str, Any]) -> None:
    """Raise UsageError if a number is outside its range; None is always allowed."""
    for name, option in campaign_options().items():
        minimum, maximum, value = option.minimum, option.maximum, values.get(name)
        if value is not None and minimum is not None and maximum is not None and not minimum <= value <= maximum:
            raise UsageError(f"--{option.flag} must be from {minimum:g} to {maximum:g}, but is {_shorten(value)}")


def _shorten(number: float) -> str:
    return f"a number of {len(str(number))} digits" if isinstance(number, int) and number > 2**64 else f"{number:g}"
