"""Two pods of a cluster that talk by datagrams, so that what is done to their network shows."""

from __future__ import annotations

import time
from collections.abc import Callable

from faultset.collector.platforms.kubernetes.client import Api, NotFound, build_path, run_in_pod

RECEIVER, SENDER = "receiver", "sender"
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9000))
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""
"""What the receiver runs."""

ASK = """
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
answers = 0
def read(wait):
    global answers
    while select.select([s], [], [], wait)[0]:
        s.recv(100)
        answers += 1
for number in range(int(sys.argv[2])):
    try:
        s.sendto(b"%d" % number, (sys.argv[1], 9000))
    except PermissionError:
        pass
    read(0.002)
read(0.3)
print(answers)
"""


def answered(api: Api, namespace: str, sent: int) -> int:
    """Return how many of `sent` datagrams from the sender reach the receiver."""
    address = api.get(build_path("Pod", namespace, RECEIVER))["status"]["podIP"]
    return int(run_in_pod(api, namespace, SENDER, "main", ["python3", "-c", ASK, address, str(sent)]))


def until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait for a condition and return how long that took, in seconds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_s, "waited in vain"
        time.sleep(0.5)
    return time.monotonic() - started


def is_gone(api: Api, path: str) -> bool:
    """Return whether an object does not exist any more."""
    try:
        api.get(path)
    except NotFound:
        return True
    return False
