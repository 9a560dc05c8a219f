"""Operators: a service that makes the workloads of others from a custom resource."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from faultset.collector.spec.steps import FrozenModel


class CustomResource(FrozenModel):
    """The custom resource that an operator acts on: its definition, and the one object of an application.

    Attributes
    ----------
    group, version, kind, plural, short
        What the definition says; `short` are names for kubectl.
    name
        Name of the object.
    spec
        Fields of its spec beside those of the components, which are made from the components' services.
    """

    group: str
    version: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    name: str
    spec: dict[str, Any] = Field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}"


class OperatorSettings(FrozenModel):
    """An operator, and what it is responsible for.

    Attributes
    ----------
    service
        The service that runs it; none where it runs elsewhere, beside an application that somebody else has deployed.
    components
        Services whose workloads and Services it makes, in the order in which it looks after them.
    resource
        What it makes them from.
    """

    service: str | None = None
    components: tuple[str, ...] = Field(min_length=1)
    resource: CustomResource
