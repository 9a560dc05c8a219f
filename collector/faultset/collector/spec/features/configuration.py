"""Configuration of containers: ConfigMaps and Secrets of an application, as variables and as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from faultset.collector.spec.steps import FrozenModel

ConfigurationKind = Literal["ConfigMap", "Secret"]


class ConfigurationSource(FrozenModel):
    """A ConfigMap or a Secret that a container refers to.

    Attributes
    ----------
    config, secret
        Name of the ConfigMap, or of the Secret; one of both.
    optional
        Whether the container starts without the object, or without a key of it that it names.
    """

    config: str | None = None
    secret: str | None = None
    optional: bool = False

    @property
    def kind(self) -> ConfigurationKind:
        """Kind of the object."""
        return "ConfigMap" if self.secret is None else "Secret"

    @property
    def source(self) -> str | None:
        """Name of the object; None for a variable whose value the spec gives."""
        return self.config if self.secret is None else self.secret


class Variable(ConfigurationSource):
    """The value of an environment variable: a text, or a key of a ConfigMap or Secret, read when the container starts.

    Attributes
    ----------
    value
        The text, where the spec gives it.
    key
        The key of the ConfigMap or Secret.
    """

    value: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _has_one_origin(self) -> Variable:
        given = [name for name in ("value", "config", "secret") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a variable has one of value, config and secret; found {' and '.join(given) or 'none'}")
        if (self.key is None) != (self.value is not None):
            raise ValueError("config and secret need the key whose value is meant, and value has none")
        return self


class VariableGroup(ConfigurationSource):
    """All keys of a ConfigMap or Secret as environment variables.

    Attributes
    ----------
    prefix
        What the variables' names begin with, before the key.
    """

    prefix: str = ""

    @model_validator(mode="after")
    def _has_one_origin(self) -> VariableGroup:
        _require_one_origin(self)
        return self


class MountedFiles(ConfigurationSource):
    """Keys of a ConfigMap or Secret as files of a folder, which follow changes of the object within about a minute.

    Attributes
    ----------
    items
        Files by key, where not all keys are wanted under their own names.
    """

    items: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_origin(self) -> MountedFiles:
        _require_one_origin(self)
        return self


def _require_one_origin(source: ConfigurationSource) -> None:
    if (source.config is None) == (source.secret is None):
        raise ValueError("name either the ConfigMap (config) or the Secret (secret) that it comes from")


def _variable(value: Any) -> Any:
    """Return a plain value as a variable; numbers become text, as Kubernetes knows no others."""
    if isinstance(value, bool):
        raise ValueError(f"the value of a variable is a text; put {str(value).lower()} into quotes")
    return {"value": str(value)} if isinstance(value, str | int | float) else value


Environment = dict[str, Annotated[Variable, BeforeValidator(_variable)]]
"""Variables by name."""
ConfigTexts = dict[str, Any]
"""Contents of a ConfigMap by key: texts, or values that are written as JSON."""
SecretTexts = dict[str, str | None]
"""Contents of a Secret by key; one without a value is drawn anew whenever the application is deployed."""


def config_data(texts: Mapping[str, Any]) -> dict[str, str]:
    """Return the contents of a ConfigMap, whose values are texts.

    >>> config_data({"a": "text", "b": {"c": 1}})
    {'a': 'text', 'b': '{\\n  "c": 1\\n}'}
    """
    return {key: text if isinstance(text, str) else json.dumps(text, indent=2) for key, text in texts.items()}


def secret_data(texts: Mapping[str, str | None], draw: Callable[[], str]) -> dict[str, str]:
    """Return the contents of a Secret, with new values where the spec gives none."""
    return {key: draw() if text is None else text for key, text in texts.items()}
