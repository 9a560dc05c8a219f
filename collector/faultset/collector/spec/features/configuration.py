"""Configuration of containers: ConfigMaps and Secrets as environment variables and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from faultset.collector.spec.steps import FrozenModel

ConfigurationKind = Literal["ConfigMap", "Secret"]


class ConfigurationSource(FrozenModel):
    """A reference to a ConfigMap or Secret.

    Attributes
    ----------
    config, secret
        Name of the ConfigMap or of the Secret; exactly one.
    optional
        Whether the container starts even if the object or key is missing.
    """

    config: str | None = None
    secret: str | None = None
    optional: bool = False

    @property
    def kind(self) -> ConfigurationKind:
        """Return the kind of the object."""
        return "ConfigMap" if self.secret is None else "Secret"

    @property
    def source(self) -> str | None:
        """Return the name of the object; None for a literal value."""
        return self.config if self.secret is None else self.secret


class Variable(ConfigurationSource):
    """An environment variable: a literal value, or a key of a ConfigMap or Secret, read when the container starts.

    Attributes
    ----------
    value
        The literal value.
    key
        The key of the ConfigMap or Secret.
    """

    value: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _has_one_origin(self) -> Variable:
        origins = [name for name in ("value", "config", "secret") if getattr(self, name) is not None]
        if len(origins) != 1:
            raise ValueError(
                f"a variable must have exactly one of value, config and secret, got {' and '.join(origins) or 'none'}"
            )
        if (self.key is None) != (self.value is not None):
            raise ValueError("a variable must have key together with config or secret, and not with value")
        return self


class VariableGroup(ConfigurationSource):
    """All keys of a ConfigMap or Secret as environment variables.

    Attributes
    ----------
    prefix
        Prefix of the variables' names.
    """

    prefix: str = ""

    @model_validator(mode="after")
    def _has_one_origin(self) -> VariableGroup:
        _require_one_origin(self)
        return self


class MountedFiles(ConfigurationSource):
    """Keys of a ConfigMap or Secret as files, updated within about a minute after the object changes.

    Attributes
    ----------
    items
        File names by key, to mount only some keys or to mount them under other names.
    """

    items: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_origin(self) -> MountedFiles:
        _require_one_origin(self)
        return self


def _require_one_origin(source: ConfigurationSource) -> None:
    if (source.config is None) == (source.secret is None):
        raise ValueError("exactly one of config and secret must be given")


def _to_variable(value: Any) -> Any:
    """Convert a plain value to a variable; numbers become text, the only type of Kubernetes variables."""
    if isinstance(value, bool):
        raise ValueError(f"the value of a variable must be text; put {str(value).lower()} in quotes")
    return {"value": str(value)} if isinstance(value, str | int | float) else value


Environment = dict[str, Annotated[Variable, BeforeValidator(_to_variable)]]
"""Variables by name."""
ConfigTexts = dict[str, Any]
"""Contents of a ConfigMap by key: texts, or values that are written as JSON."""
SecretTexts = dict[str, str | None]
"""Contents of a Secret by key; a missing value is generated at each deployment."""


def config_data(texts: Mapping[str, Any]) -> dict[str, str]:
    """Convert the contents of a ConfigMap to texts.

    >>> config_data({"a": "text", "b": {"c": 1}})
    {'a': 'text', 'b': '{\\n  "c": 1\\n}'}
    """
    return {key: text if isinstance(text, str) else json.dumps(text, indent=2) for key, text in texts.items()}


def secret_data(texts: Mapping[str, str | None], draw: Callable[[], str]) -> dict[str, str]:
    """Return the contents of a Secret, with generated values for missing ones."""
    return {key: draw() if text is None else text for key, text in texts.items()}
