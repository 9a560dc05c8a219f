"""Feature flags: a file in the format of flagd, kept in a ConfigMap, by which services change what they do."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, model_validator

from faultset.collector.spec.steps import FrozenModel


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
