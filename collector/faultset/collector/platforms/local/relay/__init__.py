"""The relay of the local platform: what kube-proxy and the network are on a cluster.

It listens on the address of every Service, forwards to the pods behind it, counts what each pod sends and
receives, and is where loss, delay and partition happen.
"""

from faultset.collector.platforms.local.relay.process import main

__all__ = ["main"]
