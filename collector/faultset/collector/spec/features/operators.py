"""Operators, which create the workloads of other services from a custom resource."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from faultset.collector.spec.steps import FrozenModel


class CustomResource(FrozenModel):
    """The custom resource of an operator: its definition, and the application's object.

    Attributes
    ----------
    group, version, kind, plural, short
        Fields of the definition; `short` are short names for kubectl.
    name
        Name of the object.
    spec
        Fields of its spec, in addition to those of the components.
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
        """Return the `apiVersion` of its objects."""
        return f"{self.group}/{self.version}"


class OperatorSettings(FrozenModel):
    """An operator and the services that it controls.

    Attributes
    ----------
    service
        The service that runs it; none for a deployed application whose operator runs elsewhere.
    components
        Services whose workloads and Services it creates, in the order of reconciliation.
    resource
        Its custom resource.
    """

    service: str | None = None
    components: tuple[str, ...] = Field(min_length=1)
    resource: CustomResource
