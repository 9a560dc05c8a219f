"""Background work, circuit breakers and feature flags."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, model_validator

from faultset.collector.spec.steps import FrozenModel, Steps
from faultset.core.printable import describe_choices


class BackgroundWork(FrozenModel):
    """Common fields of consumers and tasks.

    Attributes
    ----------
    log
        Text of the log line of each run; none by default.
    location
        Source location in the original program, shown in log lines.
    span
        Name of the span of each run; none by default.
    work_ms
        CPU time per run in milliseconds, including the overhead of the program.
    """

    log: str = ""
    location: str = ""
    span: str | None = None
    work_ms: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    steps: Steps


class Consumer(BackgroundWork):
    """Consumes messages from a topic as a member of a consumer group.

    A message is acknowledged after its steps. The steps see the message's fields as values.

    Attributes
    ----------
    store
        The broker, one of the service's `stores`.
    group
        Name of the consumer group; by default the service's name.
    trace
        Whether the span is a child of the publisher's span, or starts a new trace with a link to it.
    on_failure
        Whether a message whose steps failed is acknowledged (`skip`) or redelivered.
    redeliver_after_s
        Seconds without acknowledgement after which a message is redelivered to any member of the group.
    batch
        Messages fetched at a time; they are processed in sequence.
    """

    store: str
    topic: str
    group: str | None = None
    trace: Literal["child", "link"] = "link"
    on_failure: Literal["skip", "redeliver"] = "skip"
    redeliver_after_s: float = Field(default=30.0, gt=0.0, allow_inf_nan=False)
    batch: int = Field(default=16, ge=1, le=1000)


class Task(BackgroundWork):
    """Steps that run periodically; a failure is logged and does not stop later runs.

    Attributes
    ----------
    every_s
        Seconds between the starts of two runs; runs do not overlap.
    """

    every_s: float = Field(gt=0.0, allow_inf_nan=False)


class CircuitBreaker(FrozenModel):
    """A circuit breaker for calls to one service.

    A call fails if the connection fails, the response is late, or the status is internal or unknown. Other errors, such
    as invalid arguments, count as successes.

    Attributes
    ----------
    failures
        Consecutive failures that open the breaker.
    open_s
        Seconds after which an open breaker becomes half-open and allows trial calls.
    trials
        Maximum number of concurrent trial calls. That many successes close the breaker; one failure opens it again.
    """

    failures: int = Field(default=5, ge=1, le=10_000)
    open_s: float = Field(default=30.0, gt=0.0, le=86_400.0, allow_inf_nan=False)
    trials: int = Field(default=1, ge=1, le=1000)


class Flag(FrozenModel):
    """A feature flag.

    Attributes
    ----------
    variants
        Values by name.
    default
        Name of the initial variant.
    service
        Service whose behaviour the flag changes.
    description
        One sentence.
    """

    variants: dict[str, Any] = Field(min_length=1)
    default: str
    service: str
    description: str = ""

    @model_validator(mode="after")
    def _default_is_a_variant(self) -> Flag:
        if self.default not in self.variants:
            raise ValueError(f"default must be one of {', '.join(self.variants)}, got {self.default!r}")
        return self

    @property
    def value(self) -> Any:
        """Return the value of the initial variant."""
        return self.variants[self.default]


class FlagSettings(FrozenModel):
    """The feature flags of an application and their storage.

    Attributes
    ----------
    config_map, file
        ConfigMap and key with the flags.
    folder
        Mount path of the ConfigMap.
    provider
        Service that reads the file for the others; without a provider, every service reads the file.
    operation
        Operation of the provider that returns the values of all flags.
    poll_s
        Seconds between two reads of the file or requests to the provider.
    """

    config_map: str = "flags"
    file: str = "flags.json"
    folder: str = "/etc/flags"
    provider: str | None = None
    operation: str | None = None
    poll_s: float = Field(default=2.0, gt=0.0, allow_inf_nan=False)
    flags: dict[str, Flag] = Field(min_length=1)

    @model_validator(mode="after")
    def _provider_has_an_operation(self) -> FlagSettings:
        if (self.provider is None) != (self.operation is None):
            raise ValueError("provider and operation must be given together")
        return self

    @property
    def path(self) -> str:
        """Return the path of the mounted file."""
        return f"{self.folder}/{self.file}"

    def defaults(self) -> dict[str, Any]:
        """Return the initial value of every flag."""
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
    """Return the flag file with a new default variant for one flag.

    Raises
    ------
    ValueError
        The text is not a flag file, or the flag or variant does not exist; the message lists the valid ones.
    """
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
