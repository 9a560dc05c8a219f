"""The telemetry process of the local platform: what Prometheus and Jaeger are on a cluster.

It scrapes every pod, the node and the relay once an interval, receives spans, keeps both in memory, and writes
a window of them as Arrow files when asked.
"""

from faultset.collector.platforms.local.telemetry.process import main

__all__ = ["main"]
