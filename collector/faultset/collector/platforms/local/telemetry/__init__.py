"""The telemetry process of the embedded platform, which takes the role of Prometheus and Jaeger.

It scrapes all pods, the node and the relay at a fixed interval, receives spans, keeps both in memory and writes a
requested time window as Arrow files.
"""
