"""Features of services and applications beyond operations."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from faultset.collector.spec.steps import FrozenModel, Steps
from faultset.core.printable import describe_choices


class BackgroundWork(FrozenModel):
    """Common fields of consumers and tasks."""

    log: str = ""
    """Text of the log line of each run; none by default."""
    location: str = ""
    """Source location in the original program, shown in log lines."""
    span: str | None = None
    """Name of the span of each run; none by default."""
    work_ms: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """CPU time per run in milliseconds, including the overhead of the program."""
    steps: Steps


class Consumer(BackgroundWork):
    """Consumes messages from a topic as a member of a consumer group.

    A message is acknowledged after its steps. The steps see the message's fields as values.
    """

    store: str
    """The broker, one of the service's `stores`."""
    topic: str
    group: str | None = None
    """Name of the consumer group; by default the service's name."""
    trace: Literal["child", "link"] = "link"
    """Whether the span is a child of the publisher's span, or starts a new trace with a link to it."""
    on_failure: Literal["skip", "redeliver"] = "skip"
    """Whether a message whose steps failed is acknowledged (`skip`) or redelivered."""
    redeliver_after_s: float = Field(default=30.0, gt=0.0, allow_inf_nan=False)
    """Seconds without acknowledgement after which a message is redelivered to any member of the group."""
    batch: int = Field(default=16, ge=1, le=1000)
    """Messages fetched at a time; they are processed in sequence."""


class Task(BackgroundWork):
    """Steps that run periodically; a failure is logged and does not stop later runs."""

    every_s: float = Field(gt=0.0, allow_inf_nan=False)
    """Seconds between the starts of two runs; runs do not overlap."""


class CircuitBreaker(FrozenModel):
    """A circuit breaker for calls to one service.

    A call fails if the connection fails, the response is late, or the status is internal or unknown. Other errors, such
    as invalid arguments, count as successes.
    """

    failures: int = Field(default=5, ge=1, le=10_000)
    """Consecutive failures that open the breaker."""
    open_s: float = Field(default=30.0, gt=0.0, le=86_400.0, allow_inf_nan=False)
    """Seconds after which an open breaker becomes half-open and allows trial calls."""
    trials: int = Field(default=1, ge=1, le=1000)
    """Maximum number of concurrent trial calls. That many successes close the breaker; one failure opens it again."""


class Flag(FrozenModel):
    """A feature flag."""

    variants: dict[str, Any] = Field(min_length=1)
    """Values by name."""
    default: str
    """Name of the initial variant."""
    service: str
    """Service whose behaviour the flag changes."""
    description: str = ""
    """One sentence."""

    @model_validator(mode="after")
    def _default_is_a_variant(self) -> Flag:
        if self.default not in self.variants:
            raise ValueError(f"default must be one of {', '.join(self.variants)}, got {self.default!r}")
        return self

    @property
    def value(self) -> Any:
        return self.variants[self.default]


class FlagSettings(FrozenModel):
    """The feature flags of an application and their storage."""

    config_map: str = "flags"
    file: str = "flags.json"
    """ConfigMap and key with the flags."""
    folder: str = "/etc/flags"
    """Mount path of the ConfigMap."""
    provider: str | None = None
    """Service that reads the file for the others; without a provider, every service reads the file."""
    operation: str | None = None
    """Operation of the provider that returns the values of all flags."""
    poll_s: float = Field(default=2.0, gt=0.0, allow_inf_nan=False)
    """Seconds between two reads of the file or requests to the provider."""
    flags: dict[str, Flag] = Field(min_length=1)

    @model_validator(mode="after")
    def _provider_has_an_operation(self) -> FlagSettings:
        if (self.provider is None) != (self.operation is None):
            raise ValueError("provider and operation must be given together")
        return self

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.file}"

    def defaults(self) -> dict[str, Any]:
        return {name: flag.value for name, flag in self.flags.items()}


def format_flags(settings: FlagSettings) -> str:
    """Return the flag file with all initial variants, in flagd's format."""
    flags = {
        name: {
            "description": flag.description,
            "state": "ENABLED",
            "variants": flag.variants,
            "defaultVariant": flag.default,
        }
        for name, flag in settings.flags.items()
    }
    return json.dumps({"$schema": "https://flagd.dev/schema/v0/flags.json", "flags": flags}, indent=2)


def set_variant(text: str, name: str, variant: str) -> str:
    """Return the flag file with a new default variant for one flag; raise ValueError if either is unknown."""
    value = json.loads(text)
    flags = value.get("flags") if isinstance(value, dict) else None
    if not isinstance(flags, dict) or name not in flags:
        raise ValueError(f"unknown flag {name!r}, {describe_choices(flags or ())}")
    variants = flags[name].get("variants", {})
    if variant not in variants:
        raise ValueError(f"unknown variant {variant!r} of flag {name}, expected one of {', '.join(variants)}")
    flags[name]["defaultVariant"] = variant
    return json.dumps(value, indent=2)


def values_in(text: str) -> dict[str, Any]:
    """Return the values of all enabled flags in a flag file; raise ValueError if the text is not a flag file.

    >>> values_in('{"flags": {"f": {"state": "ENABLED", "variants": {"on": 100}, "defaultVariant": "on"}}}')
    {'f': 100}
    """
    value = json.loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("flags"), dict):
        raise ValueError('a flag file must be a mapping with the key "flags"')
    values = {}
    for name, flag in value["flags"].items():
        variants = flag.get("variants") if isinstance(flag, dict) else None
        if isinstance(variants, dict) and flag.get("state") == "ENABLED" and flag.get("defaultVariant") in variants:
            values[name] = variants[flag["defaultVariant"]]
    return values


Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
PerMinute = Annotated[float, Field(ge=0.0, le=60.0, allow_inf_nan=False)]


class BackgroundErrors(FrozenModel):
    """Rates of errors of the application and its clients that occur without a fault, before and after the onset."""

    unknown_paths: Share = 0.0
    """Share of client requests that go to a path that does not exist; the response is 404."""
    impatient_clients: Share = 0.0
    """Share of client requests that clients abandon after a few milliseconds."""
    hasty_calls: Share = 0.0
    """Share of the calls between services that time out immediately and are retried."""
    failed_uploads: PerMinute = 0.0
    """Failed uploads of usage statistics per minute in each service, logged with a stack trace."""
    rebalances: PerMinute = 0.0
    """Times per minute that each consumer leaves its group and joins it again."""
    slow_phases: PerMinute = 0.0
    """Phases per minute in which a service is a few milliseconds slower for some seconds."""
    unhealthy_answers: Share = 0.0
    """Share of the readiness probes that services answer with 503."""


Language = Literal["go", "jvm", "nodejs", "python"]


class HeapUse(FrozenModel):
    """The heap of a service: live data, and garbage that grows with the requests until it is collected."""

    live_mib: float = Field(ge=0.0, le=1024.0, allow_inf_nan=False)
    """Live data once the service is warm."""
    garbage_mib: float = Field(ge=0.0, le=1024.0, allow_inf_nan=False)
    """Amount of garbage that triggers a collection."""
    request_kib: float = Field(ge=0.0, le=1024.0, allow_inf_nan=False)
    """Memory that each request allocates."""


class CustomResource(FrozenModel):
    """The custom resource of an operator: its definition, and the application's object."""

    group: str
    version: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    """Fields of the definition; `short` are short names for kubectl."""
    name: str
    """Name of the object."""
    spec: dict[str, Any] = Field(default_factory=dict)
    """Fields of its spec, in addition to the components' fields."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


class OperatorSettings(FrozenModel):
    """An operator and the services that it controls."""

    service: str | None = None
    """The service that runs it; none for a deployed application whose operator runs elsewhere."""
    components: tuple[str, ...] = Field(min_length=1)
    """Services whose workloads and Services it creates, in the order of reconciliation."""
    resource: CustomResource
    """Its custom resource."""
