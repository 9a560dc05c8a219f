"""How to reach the store of this pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faultset.collector.runtime.stores.driver import Credentials
from faultset.collector.runtime.stores.redis_driver import ADMINISTRATOR, client_of_account

if TYPE_CHECKING:
    import redis


class StoreAccess(NamedTuple):
    """Where a store is and with what one logs in; `account` is the application's."""

    address: str
    port: int
    account: str
    credentials: Credentials

    def administrator(self) -> redis.Redis:
        """Return a client of the administrator."""
        return client_of_account(self.address, self.port, ADMINISTRATOR, self.credentials.administrator)

    def application(self) -> redis.Redis:
        """Return a client of the application's account."""
        return client_of_account(self.address, self.port, self.account, self.credentials.application)
