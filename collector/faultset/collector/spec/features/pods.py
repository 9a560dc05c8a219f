"""How a service's pods are watched over, and what each of them keeps."""

from __future__ import annotations

from pydantic import Field

from faultset.collector.spec.steps import FrozenModel


class Probe(FrozenModel):
    """A question that the cluster asks a container again and again: a connection, or an HTTP request.

    Attributes
    ----------
    path
        Path of the request; a connection is enough when left out.
    port
        Port that is asked; the service's own when left out.
    delay_s
        Seconds after the container's start before the first question.
    every_s
        Seconds between questions.
    timeout_s
        Seconds after which no answer is a failure.
    failures, successes
        How many in a row change what is thought of the container.
    """

    path: str | None = None
    port: int | None = Field(default=None, gt=0, le=65535)
    delay_s: int = Field(default=0, ge=0)
    every_s: int = Field(default=10, ge=1)
    timeout_s: int = Field(default=1, ge=1)
    failures: int = Field(default=3, ge=1)
    successes: int = Field(default=1, ge=1)


class Storage(FrozenModel):
    """A volume of its own for every pod of a stateful service, made on demand.

    Attributes
    ----------
    name
        What the claims' names begin with.
    size
        In Kubernetes' quantities.
    storage_class
        Class of the volumes; the cluster's own when left out.
    """

    name: str = "data"
    size: str = "1Gi"
    storage_class: str | None = None
