"""Init containers: what runs to its end before the container of a service starts."""

from __future__ import annotations

from pydantic import model_validator

from faultset.collector.spec.features.container_fields import ContainerFields


class InitContainer(ContainerFields):
    """A program that has to end well before the next one starts; it is started again while it does not.

    Attributes
    ----------
    name
        Name of the container.
    program
        Its command: a program of the image with an absolute path, or of an image of its own.
    wait_for
        A service for which is waited in place of a program, until a connection to its port can be made.
    """

    name: str
    program: tuple[str, ...] = ()
    wait_for: str | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> InitContainer:
        if bool(self.program) == (self.wait_for is not None):
            raise ValueError("name either a program or the service that is waited for (wait_for)")
        return self
