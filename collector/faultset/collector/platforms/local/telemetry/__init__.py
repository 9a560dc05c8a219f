"""The telemetry process of the embedded platform, which replaces Prometheus and Jaeger.

It scrapes all pods, the node and the relay at a fixed interval and receives spans. It keeps everything in memory and
writes a time window to Arrow files on request.
"""
