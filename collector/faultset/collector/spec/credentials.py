"""Secrets of an application: those of its spec, and passwords of its stores, drawn anew for each episode.

Every store has a Secret with both passwords. The services share one that holds the passwords of their accounts, not
those of administrators, and the number that decides which build has which defect. Containers find them as files:
neither the environment nor the arguments of a process hold a password.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import ADMINISTRATOR, APPLICATION, BUILD_SEED, CREDENTIALS_PATH
from faultset.collector.spec.features.configuration import secret_data

_PASSWORD_BYTES = 24
_VOLUME = "credentials"


def new_password() -> str:
    """Return a password that nobody can guess."""
    return secrets.token_hex(_PASSWORD_BYTES)


def credential_secrets(app: AppSpec, draw: Callable[[], str] = new_password) -> list[dict[str, Any]]:
    """Return the Secrets of an application: the one that services share, and one for each store of ours.

    Parameters
    ----------
    draw
        Returns another password at each call.
    """
    stores = [service for service in app.services.values() if service.store_driver is not None]
    passwords = {store.name: draw() for store in stores}
    own = (_secret(_name(store), {ADMINISTRATOR: draw(), APPLICATION: passwords[store.name]}) for store in stores)
    return [_secret(_shared_name(app), {**passwords, BUILD_SEED: str(app.variation.seed)}), *own]


def secrets_of_spec(app: AppSpec, draw: Callable[[], str] = new_password) -> list[dict[str, Any]]:
    """Return the Secrets that the spec gives; `draw` makes the values that it leaves out."""
    return [_secret(name, secret_data(texts, draw)) for name, texts in app.secrets.items()]


def credential_volume(app: AppSpec, service: ServiceSpec) -> dict[str, Any] | None:
    """Return the volume with what a service's container may know; None for programs that are not ours."""
    if service.store_driver is not None:
        return {"name": _VOLUME, "secret": {"secretName": _name(service)}}
    if service.program[:1] == ("faultset-service",):
        return {"name": _VOLUME, "secret": {"secretName": _shared_name(app)}}
    return None


def credential_mount() -> dict[str, Any]:
    """Return where a container mounts its volume with passwords."""
    return {"name": _VOLUME, "mountPath": CREDENTIALS_PATH, "readOnly": True}


class SecretKey(NamedTuple):
    """A key of a Secret."""

    secret: str
    key: str


def password_key(app: AppSpec, store: str) -> SecretKey:
    """Return where the services of an application find the password of their account in a store."""
    return SecretKey(_shared_name(app), store)


def store_password_key(app: AppSpec, store: str) -> SecretKey:
    """Return where a store itself finds that password."""
    return SecretKey(_name(app.services[store]), APPLICATION)


def _name(store: ServiceSpec) -> str:
    return f"{store.name}-credentials"


def _shared_name(app: AppSpec) -> str:
    return f"{app.name}-store-accounts"


def _secret(name: str, texts: dict[str, str]) -> dict[str, Any]:
    data = {key: encoded(text) for key, text in texts.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}


def encoded(text: str) -> str:
    """Return a text as it stands in the data of a Secret."""
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """Return what stands in the data of a Secret.

    >>> decoded(encoded("word"))
    'word'
    """
    return base64.b64decode(text).decode()
