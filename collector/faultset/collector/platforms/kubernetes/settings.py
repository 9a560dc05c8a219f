"""Settings of the cluster on which episodes run, and the images that its nodes need."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faultset.collector.runtime.builds import TAGS
from faultset.collector.spec.containers import APP_REPOSITORY

REPOSITORY = APP_REPOSITORY


PAUSE_TAG = "3.9"


_MAX_REPORTED = 50
"""A kubelet reports at most this many images, so a full list may be incomplete."""


def app_image(tag: str, repository: str = REPOSITORY) -> str:
    return f"{repository}:{tag}"


def pause_image(repository: str = REPOSITORY) -> str:
    """Return the pause image in the registry of the application's repository."""
    folder, slash, _ = repository.rpartition("/")
    return f"{folder}{slash}pause:{PAUSE_TAG}"


def required_images(repository: str = REPOSITORY, tags: Iterable[str] = TAGS) -> tuple[str, ...]:
    """Return the images of the builds, and the pause image."""
    return (*(app_image(tag, repository) for tag in tags), pause_image(repository))


def find_absent_images(nodes: Iterable[dict[str, Any]], required: Iterable[str]) -> list[str]:
    """Return the required images that at least one node does not have.

    Parameters
    ----------
    nodes
        Node objects; nodes with an incomplete list of images are skipped.
    """
    required, absent = list(required), set()
    for node in nodes:
        images = node.get("status", {}).get("images") or []
        if len(images) < _MAX_REPORTED:
            names = {_shorten(name) for image in images for name in image.get("names") or ()}
            absent |= {image for image in required if _shorten(image) not in names}
    return [image for image in required if image in absent]


def _shorten(image: str) -> str:
    return image.removeprefix("docker.io/").removeprefix("library/")


def explain_missing_images(missing: Sequence[str]) -> str:
    """Return a sentence about missing images and how to build and load them."""
    shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    repository = next((image.rpartition(":")[0] for image in missing if not _is_pause(image)), REPOSITORY)
    option = "" if repository == REPOSITORY else f" --repository {repository}"
    tags = " ".join(sorted(image.rpartition(":")[2] for image in missing if not _is_pause(image)))
    images = " ".join(missing)
    return (
        f"every node needs the images of the application; missing: {shown}. Build them with "
        f"`scripts/build-image.sh{option}{' ' + tags if tags else ''}` of the source tree and load them with "
        f"`kind load docker-image {images}` or `minikube image load {images}`; or push them with "
        "`scripts/build-image.sh --repository REGISTRY/faultset/app --push` and use that repository"
    )


def _is_pause(image: str) -> bool:
    return image.rpartition(":")[0].rpartition("/")[2] == "pause"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the names of images, one per line."""
    parser = argparse.ArgumentParser(description="Print the images that a cluster needs.")
    parser.add_argument("--repository", default=REPOSITORY)
    parser.add_argument("tags", nargs="*", default=list(TAGS))
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.tags) - set(TAGS))
    if unknown:
        parser.error(f"unknown build {', '.join(unknown)}; choose from {', '.join(TAGS)}")
    print("\n".join(required_images(arguments.repository, arguments.tags)))


if __name__ == "__main__":
    main()


AGENT, CHAOS_MESH = INJECTORS = ("agent", "chaos-mesh")
"""Mechanisms that impair pods: our node agents, or the cluster's Chaos Mesh."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Options of the command line; None for automatic discovery.

    Attributes
    ----------
    image
        Repository of the application's image, without a tag.
    privileged
        Whether agents may run on the nodes; otherwise a container in every pod impairs its network.
    """

    kubeconfig: str | None = None
    context: str | None = None
    prometheus_url: str | None = None
    jaeger_url: str | None = None
    image: str = REPOSITORY
    privileged: bool = True
    injector: str = AGENT
    original_servers: Mapping[str, str] = field(default_factory=dict[str, str])
