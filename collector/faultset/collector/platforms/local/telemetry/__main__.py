"""Run it by itself: `python -m ... SOCKET NODE_SOCKET RELAY_SOCKET OTLP_IP OTLP_PORT INTERVAL_S FOLDER`."""

import sys
from pathlib import Path

from faultset.collector.platforms.local.telemetry import main

socket_path, node_socket, relay_socket, otlp_ip, otlp_port, interval_s, folder = sys.argv[1:]
main(
    Path(socket_path),
    Path(node_socket) if node_socket else None,
    Path(relay_socket) if relay_socket else None,
    otlp_ip,
    int(otlp_port),
    float(interval_s),
    Path(folder),
)
