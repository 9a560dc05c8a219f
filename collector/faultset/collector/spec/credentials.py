"""Secrets of an application: Secrets from its spec, and store passwords, which are random in each episode.

Each store has its own Secret with the passwords of its administrator and of the services' account. The services share a
Secret with the passwords of their accounts and the seed that decides which build has which defect. Containers read
these from files, never from environment variables or arguments.
"""

from __future__ import annotations

import base64
import secrets
from typing import Any, NamedTuple

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import ADMINISTRATOR, APPLICATION, BUILD_SEED, CREDENTIALS_PATH, secret_data

_PASSWORD_BYTES = 24
_VOLUME = "credentials"


def new_password() -> str:
    return secrets.token_hex(_PASSWORD_BYTES)


def credential_secrets(app: AppSpec) -> list[dict[str, Any]]:
    """Return the Secrets of an application: one shared by its services, and one per built-in store."""
    stores = [service for service in app.services.values() if service.store_driver is not None]
    passwords = {store.name: new_password() for store in stores}
    store_secrets = (
        _build_secret(_get_secret_name(store), {ADMINISTRATOR: new_password(), APPLICATION: passwords[store.name]})
        for store in stores
    )
    return [_build_secret(_get_shared_name(app), {**passwords, BUILD_SEED: str(app.variation.seed)}), *store_secrets]


def secrets_of_spec(app: AppSpec) -> list[dict[str, Any]]:
    """Return the Secrets in the spec, with new passwords for values that the spec leaves out."""
    return [_build_secret(name, secret_data(texts, new_password)) for name, texts in app.secrets.items()]


def credential_volume(app: AppSpec, service: ServiceSpec) -> dict[str, Any] | None:
    """Return the volume with the secrets a service's container may read; None for third-party programs."""
    if service.store_driver is not None:
        return {"name": _VOLUME, "secret": {"secretName": _get_secret_name(service)}}
    if service.runs_faultset_service:
        return {"name": _VOLUME, "secret": {"secretName": _get_shared_name(app)}}
    return None


def credential_mount() -> dict[str, Any]:
    return {"name": _VOLUME, "mountPath": CREDENTIALS_PATH, "readOnly": True}


class SecretKey(NamedTuple):
    """A key of a Secret."""

    secret: str
    key: str


def password_key(app: AppSpec, store: str) -> SecretKey:
    """Return the key with the password of the services' account in a store."""
    return SecretKey(_get_shared_name(app), store)


def store_password_key(app: AppSpec, store: str) -> SecretKey:
    """Return the key with the services' password in the store's own Secret."""
    return SecretKey(_get_secret_name(app.services[store]), APPLICATION)


def _get_secret_name(store: ServiceSpec) -> str:
    return f"{store.name}-credentials"


def _get_shared_name(app: AppSpec) -> str:
    return f"{app.name}-store-accounts"


def _build_secret(name: str, texts: dict[str, str]) -> dict[str, Any]:
    data = {key: encoded(text) for key, text in texts.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """Decode a string from the data of a Secret.

    >>> decoded(encoded("word"))
    'word'
    """
    return base64.b64decode(text).decode()
