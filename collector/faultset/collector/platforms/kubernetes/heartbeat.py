"""The heartbeat of an episode's namespaces, and how late this process gets the processor."""

from __future__ import annotations

import contextlib
import threading
import time

from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.api.namespaces import RENEW_S, EpisodeNamespaces, renew
from faultset.core.errors import PlatformError

_STEP_S = 0.05


class Heartbeat:
    """Renews the namespaces in a thread of its own, so that they count as abandoned when this process is gone.

    Attributes
    ----------
    worst_delay_s
        How late the thread was woken at worst.
    """

    def __init__(self, api: Api, namespaces: EpisodeNamespaces):
        self.worst_delay_s = 0.0
        self._api, self._namespaces = api, namespaces
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to renew."""
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Renew no more; may be called twice."""
        self._closing.set()

    def _run(self) -> None:
        next_renewal = 0.0
        while not self._closing.is_set():
            before = time.monotonic()
            self._closing.wait(_STEP_S)
            self.worst_delay_s = max(self.worst_delay_s, time.monotonic() - before - _STEP_S)
            if time.monotonic() >= next_renewal:
                next_renewal = time.monotonic() + RENEW_S
                with contextlib.suppress(PlatformError):
                    renew(self._api, self._namespaces.control)
                    renew(self._api, self._namespaces.app)
