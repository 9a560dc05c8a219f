"""The definition of an application's custom resource, which all episodes on a cluster share.

A definition belongs to no namespace. The first episode that needs it makes it; every episode enters its namespace into
the definition's annotations before it uses it, and the last one removes it. The removal names the version that was
looked at, so that the server refuses it when another episode has entered itself meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.client import MERGE_PATCH, Api, Conflict, NotFound
from faultset.collector.platforms.kubernetes.api.kinds import path_of
from faultset.collector.platforms.kubernetes.api.namespaces import MANAGED
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.custom_resources import resource_definition
from faultset.core.errors import PlatformError

KIND = "CustomResourceDefinition"
DEFINITION = "faultset.dev/definition"
"""Label of a namespace that uses a definition of ours: the definition's name."""
USER = "user.faultset.dev/"
"""Begin of the annotation of a definition that a namespace uses; its name follows."""

_TIMEOUT_S = 60.0
_PAUSE_S = 0.2
_REMOVALS = 10


class SharedDefinition:
    """The definition that an application brings along, as one episode uses it; nothing for one without an operator.

    Parameters
    ----------
    namespace
        The application's, which must exist when the definition is taken.
    """

    def __init__(self, api: Api, app: AppSpec, namespace: str):
        self._api, self._app, self._namespace = api, app, namespace
        self._wanted = resource_definition(app)

    @property
    def name(self) -> str | None:
        """Name of the definition; None where there is nothing to define."""
        return None if self._wanted is None else self._wanted["metadata"]["name"]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the namespace that uses it."""
        return {} if self.name is None else {DEFINITION: self.name}

    def check(self) -> None:
        """Raise PlatformError when somebody else has defined the custom resource, and so may act on every object."""
        if self.name is not None:
            self._refuse_others(_find(self._api, self.name))

    def take(self, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Make the definition unless it exists, enter the namespace as a user, and wait until it is served.

        Raises
        ------
        PlatformError
            Somebody else has defined the resource, or the server does not serve it in time.
        """
        if self._wanted is None or self.name is None:
            return
        deadline = time.monotonic() + timeout_s
        while not self._is_taken(self._wanted, self.name):
            if time.monotonic() > deadline:
                raise PlatformError(f"the cluster does not serve {self.name} after {timeout_s:g} s; look at its status")
            time.sleep(_PAUSE_S)

    def _is_taken(self, wanted: Object, name: str) -> bool:
        """Take the next step; say whether there was none to take."""
        found = _find(self._api, name)
        self._refuse_others(found)
        user = {f"{USER}{self._namespace}": "yes"}
        try:
            if found is None:
                metadata = {**wanted["metadata"], "labels": MANAGED, "annotations": user}
                self._api.post(path_of(KIND, ""), {**wanted, "metadata": metadata})
            elif found["metadata"].get("deletionTimestamp"):
                return False  # the last user of before removes it at this moment
            elif self._namespace not in _users(found):
                change = {"metadata": {"annotations": user}}
                self._api.call("PATCH", path_of(KIND, "", name), body=change, content_type=MERGE_PATCH)
            else:
                return _is_established(found) and _objects(self._api, found) is not None
        except (Conflict, NotFound):
            pass  # another episode was faster
        return False

    def release(self) -> None:
        """Remove the definition unless others use it, once the namespace is gone; may be called twice."""
        if self.name is not None:
            remove_unused(self._api, self.name)

    def _refuse_others(self, found: Object | None) -> None:
        if found is not None and not _is_ours(found):
            kind = found["spec"]["names"]["kind"]
            raise PlatformError(
                f"the cluster has a definition of {kind} that is not ours ({self.name}), whose operator would act on "
                f"the {kind} of app {self._app.name} as well; name an app file with deployed for a {kind} of that "
                "operator, or remove the definition"
            )


def remove_unused(api: Api, name: str) -> bool:
    """Remove a definition of ours that no existing namespace uses and that has no objects; say whether it was removed.

    It is looked at again when it has changed meanwhile.
    """
    for _ in range(_REMOVALS):
        found = _find(api, name)
        if found is None or not _is_ours(found) or found["metadata"].get("deletionTimestamp"):
            return False
        if any(_exists(api, user) for user in _users(found)) or _objects(api, found):
            return False
        seen = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            api.call("DELETE", path_of(KIND, "", name), body={"preconditions": seen})
        except NotFound:
            return False
        except Conflict:
            continue
        return True
    return False


def _find(api: Api, name: str) -> Object | None:
    try:
        return api.get(path_of(KIND, "", name))
    except NotFound:
        return None


def _is_ours(found: Object) -> bool:
    return MANAGED.items() <= (found["metadata"].get("labels") or {}).items()


def _users(found: Mapping[str, Mapping[str, dict[str, str]]]) -> Iterator[str]:
    for key in found["metadata"].get("annotations") or {}:
        if key.startswith(USER):
            yield key.removeprefix(USER)


def _exists(api: Api, namespace: str) -> bool:
    try:
        api.get(path_of("Namespace", "", namespace))
    except NotFound:
        return False
    return True


def _is_established(found: Object) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _objects(api: Api, found: Object) -> list[Object] | None:
    """Return an object of the kind that is defined, if there is one, of any namespace; None when it is not served."""
    spec = found["spec"]
    version = next(one["name"] for one in spec["versions"] if one["served"])
    try:
        return api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", {"limit": 1})["items"]
    except NotFound:
        return None
