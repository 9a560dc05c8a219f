"""Processes of OpenStack: what their logs are called, which topics they listen to, and which code runs in them."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath

_SUFFIX = ".log.bzip2.out"
_TOPICS = {
    "conductor": "nova-conductor",
    "compute": "nova-compute",
    "scheduler": "nova-scheduler",
    "consoleauth": "nova-consoleauth",
    "cinder-scheduler": "cinder-scheduler",
    "cinder-volume": "cinder-volume",
    "cinder-backup": "cinder-backup",
    "q-plugin": "neutron-server",
    "q-reports-plugin": "neutron-server",
    "q-l3-plugin": "neutron-server",
    "q-metering-plugin": "neutron-server",
    "q-server-resource-versions": "neutron-server",
    "dhcp_agent": "neutron-dhcp-agent",
    "l3_agent": "neutron-l3-agent",
    "q-agent-notifier": "neutron-openvswitch-agent",
    "neutron-vo": "neutron-openvswitch-agent",
    "novaclient": "nova-api",
}
"""Topic, or its beginning, -> the process that is called. Fan-outs to all agents count for the one of the switch."""
_CODE = (
    (r"/nova/(compute/manager|virt/|compute/resource_tracker|volume/)", ("nova-compute",)),
    (r"/nova/api/metadata/", ("nova-api",)),
    (r"/nova/api/", ("nova-api",)),
    (r"/nova/compute/api", ("nova-api",)),
    (r"/nova/conductor/(manager|tasks)", ("nova-conductor",)),
    (r"/nova/scheduler/(manager|filter|host_manager|filters)", ("nova-scheduler",)),
    (r"/nova/consoleauth/", ("nova-consoleauth",)),
    (r"/nova/servicegroup/|/nova/network/", ("nova-compute", "nova-api")),
    (r"/cinder/api/", ("cinder-api",)),
    (r"/cinder/volume/api", ("cinder-api",)),
    (r"/cinder/scheduler/(manager|host_manager|filter|flows|driver)", ("cinder-scheduler",)),
    (r"/cinder/volume/(manager|drivers|driver|flows/manager|targets)", ("cinder-volume",)),
    (r"/cinder/image/", ("cinder-volume",)),
    (r"/cinder/backup/", ("cinder-backup",)),
    (r"/neutron/agent/dhcp/", ("neutron-dhcp-agent",)),
    (r"/neutron/agent/l3/", ("neutron-l3-agent",)),
    (r"/neutron/agent/metadata/", ("neutron-metadata-agent",)),
    (r"/neutron/services/metering/", ("neutron-metering-agent",)),
    (r"/neutron/plugins/ml2/drivers/(openvswitch|agent)", ("neutron-openvswitch-agent",)),
    (r"/neutron/(plugins/ml2|db|notifiers|api|services)", ("neutron-server",)),
)
"""Code -> processes that run it, the first that fits. Code that is not listed may run in any process of its project."""
_ASKED_BY_HTTP = ("neutron-server", "cinder-api", "glance-api", "keystone")
HTTP_CALLS = (
    *((caller, callee) for caller in ("nova-compute", "nova-api", "nova-conductor") for callee in _ASKED_BY_HTTP),
    ("cinder-volume", "glance-api"),
    ("cinder-api", "keystone"),
    ("neutron-server", "keystone"),
    ("glance-api", "keystone"),
    ("glance-api", "glance-registry"),
    ("neutron-metadata-agent", "nova-api"),
)
"""Calls between the projects by HTTP, as OpenStack documents them: no span shows these."""
_CODE_PATTERNS = tuple((re.compile(pattern), processes) for pattern, processes in _CODE)


def process_of_log(subsystem: str, file: str) -> str:
    """Return the process that writes a log.

    Examples
    --------
    >>> process_of_log("nova", "nova-compute.log.bzip2.out"), process_of_log("neutron", "l3-agent.log.bzip2.out")
    ('nova-compute', 'neutron-l3-agent')
    """
    name = PurePath(file).name.removesuffix(_SUFFIX)
    return name if name == subsystem or name.startswith(f"{subsystem}-") else f"{subsystem}-{name}"


def process_of_topic(topic: str) -> str | None:
    """Return the process that is called by a message to a topic; None for a topic that is not known.

    Examples
    --------
    >>> process_of_topic("cinder-volume.host@lvm"), process_of_topic("neutron-vo-Port-1.0"), process_of_topic("other")
    ('cinder-volume', 'neutron-openvswitch-agent', None)
    """
    if topic in _TOPICS:
        return _TOPICS[topic]
    return next((name for start, name in _TOPICS.items() if topic.startswith((f"{start}.", f"{start}-"))), None)


def processes_of_code(path: str, processes: Collection[str]) -> tuple[str, ...]:
    """Return the processes in which a source file runs, of those that there are.

    Examples
    --------
    >>> processes_of_code("/nova/virt/libvirt/driver.py", ["nova-api", "nova-compute"])
    ('nova-compute',)
    >>> processes_of_code("/nova/objects/instance.py", ["nova-api", "nova-compute", "cinder-api"])
    ('nova-api', 'nova-compute')
    """
    own = sorted(name for name in processes if name.startswith(f"{path.strip('/').split('/')[0]}-"))
    listed = next((names for pattern, names in _CODE_PATTERNS if pattern.search(path)), ())
    found = tuple(name for name in own if name in listed)
    return found or tuple(own)


def caller_of_code(paths: Collection[str], processes: Collection[str]) -> str | None:
    """Return the process that the nearest frame of a call stack belongs to, where it is only one."""
    for path in paths:
        found = processes_of_code(path, processes)
        if len(found) == 1:
            return found[0]
    return None
