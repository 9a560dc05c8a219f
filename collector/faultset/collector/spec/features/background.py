"""Work that no request asks for: consumers of messages, and tasks that are carried out again and again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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
