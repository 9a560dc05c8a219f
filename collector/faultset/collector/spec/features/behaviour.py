"""Behaviour of services beyond requests: background work, circuit breakers and feature flags."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, model_validator

from faultset.collector.spec.steps import FrozenModel, Steps


class BackgroundWork(FrozenModel):
    """What consumers and tasks have in common.

    Attributes
    ----------
    log
        Text of the line that each round writes; none when left out.
    location
        Place in the modelled source that its log lines name.
    span
        Name of the span around each round; none when left out.
    work_ms
        CPU time in milliseconds that a round takes; what the program itself uses for it is part of it.
    """

    log: str = ""
    location: str = ""
    span: str | None = None
    work_ms: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    steps: Steps


class Consumer(BackgroundWork):
    """Takes messages of a topic, as a member of a group in which each message goes to one member.

    A message is acknowledged after its steps. The steps see the message's fields as values.

    Attributes
    ----------
    store
        The broker, one of the service's `stores`.
    group
        Name of the group; the service's own when left out.
    trace
        Whether the span of a round is a child of the publisher's span, or begins a trace with a link to it.
    on_failure
        Whether a message whose steps have failed is acknowledged all the same (`skip`), or given out again.
    redeliver_after_s
        Seconds without acknowledgement after which a message is given out again, to any member of the group.
    batch
        How many messages are taken at once; they are processed one after the other.
    """

    store: str
    topic: str
    group: str | None = None
    trace: Literal["child", "link"] = "link"
    on_failure: Literal["skip", "redeliver"] = "skip"
    redeliver_after_s: float = Field(default=30.0, gt=0.0, allow_inf_nan=False)
    batch: int = Field(default=16, ge=1, le=1000)


class Task(BackgroundWork):
    """Steps that are carried out again and again; a failure is logged, and the next round comes all the same.

    Attributes
    ----------
    every_s
        Seconds from the begin of one round to the begin of the next, which waits for the end of the one before.
    """

    every_s: float = Field(gt=0.0, allow_inf_nan=False)


class CircuitBreaker(FrozenModel):
    """Between a service and one that it calls: closed, it lets calls through; open, they fail at once.

    Failures are calls that did not arrive, got no answer in time, or failed with an internal or unknown error. What
    the callee refuses for good reasons, such as a wrong argument, counts as a success.

    Attributes
    ----------
    failures
        How many failures in a row open it.
    open_s
        After how many seconds the open one lets some calls through, as a trial (half-open).
    trials
        How many calls may be under way as a trial; when so many have succeeded it closes, and the first that fails
        opens it again.
    """

    failures: int = Field(default=5, ge=1, le=10_000)
    open_s: float = Field(default=30.0, gt=0.0, le=86_400.0, allow_inf_nan=False)
    trials: int = Field(default=1, ge=1, le=1000)


class Flag(FrozenModel):
    """One flag.

    Attributes
    ----------
    variants
        Values by name.
    default
        Name of the variant that holds until somebody changes the file.
    service
        Service that behaves differently under the flag, or that one would hold responsible.
    description
        A sentence for people.
    """

    variants: dict[str, Any] = Field(min_length=1)
    default: str
    service: str
    description: str = ""

    @model_validator(mode="after")
    def _default_is_a_variant(self) -> Flag:
        if self.default not in self.variants:
            raise ValueError(f"default names {self.default!r}, which is not among {', '.join(self.variants)}")
        return self

    @property
    def value(self) -> Any:
        """Value of the variant that holds by default."""
        return self.variants[self.default]


class FlagSettings(FrozenModel):
    """All flags of an application, and where they are.

    Attributes
    ----------
    config_map, file
        ConfigMap and key that hold the flags.
    folder
        Where containers mount the ConfigMap.
    provider
        Service that reads the file and answers the others; without one every service reads the file itself.
    operation
        Operation of the provider that answers with the values of all flags, a mapping.
    poll_s
        Seconds between two questions to the provider.
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
            raise ValueError("provider and operation belong together; give both or neither")
        return self

    @property
    def path(self) -> str:
        """Path of the file in a container that mounts it."""
        return f"{self.folder}/{self.file}"

    def defaults(self) -> dict[str, Any]:
        """Return the value of every flag until somebody changes the file."""
        return {name: flag.value for name, flag in self.flags.items()}


def write_flags(settings: FlagSettings) -> str:
    """Return the file with every flag at its default variant, in the format of flagd."""
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
    """Return the file with another default variant of one flag.

    Raises
    ------
    ValueError
        The text is no file of flags, or has no such flag or variant; the sentence says which there are.
    """
    value = json.loads(text)
    flags = value.get("flags") if isinstance(value, dict) else None
    if not isinstance(flags, dict) or name not in flags:
        raise ValueError(f"there is no flag {name!r} among {', '.join(flags or ()) or 'none'}")
    variants = flags[name].get("variants", {})
    if variant not in variants:
        raise ValueError(f"flag {name} has no variant {variant!r}; it has {', '.join(variants)}")
    flags[name]["defaultVariant"] = variant
    return json.dumps(value, indent=2)


def values_in(text: str) -> dict[str, Any]:
    """Return the value of every flag that is enabled in a file; raise ValueError when it is none.

    >>> values_in('{"flags": {"f": {"state": "ENABLED", "variants": {"on": 100}, "defaultVariant": "on"}}}')
    {'f': 100}
    """
    value = json.loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("flags"), dict):
        raise ValueError('a mapping with the key "flags" is wanted')
    found = {}
    for name, flag in value["flags"].items():
        variants = flag.get("variants") if isinstance(flag, dict) else None
        if isinstance(variants, dict) and flag.get("state") == "ENABLED" and flag.get("defaultVariant") in variants:
            found[name] = variants[flag["defaultVariant"]]
    return found
