"""Set, read and remove impairments in one network namespace with iptables and tc."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

from faultset.collector.agent.impairments import (
    HANDLE,
    IN,
    OUT,
    NetworkImpairment,
    count_delayed_packets,
    count_dropped_packets,
    format_restore_input,
    is_in_force,
    is_marked,
    list_netem_arguments,
    list_rules,
)
from faultset.collector.agent.protocol import AgentError

_TIMEOUT_S = 15.0
_COMMAND_INFIXES = ("", "6")
_TEST_CHAIN = "FAULTSET-TEST"


class Network:
    """One network namespace.

    Parameters
    ----------
    descriptor
        An open file of the namespace; None for the namespace of this process.
    variant
        Suffix of the iptables command that works here, empty or `-legacy`.
    """

    def __init__(self, descriptor: int | None = None, *, variant: str = ""):
        self._descriptor, self._variant = descriptor, variant

    def impair(self, impairment: NetworkImpairment) -> None:
        """Set an impairment, replacing an earlier one; raise AgentError if the kernel rejects it."""
        if impairment.kind == "delay":
            self._set_rules(None)
            for device in self._devices():
                self._run("tc", "qdisc", "replace", "dev", device, *list_netem_arguments(impairment))
        else:
            self._remove_queues()
            self._set_rules(impairment)
        if not self.holds(impairment):
            raise AgentError(f"the kernel accepted the rules for {impairment.kind} but does not list them")

    def lift(self) -> None:
        """Remove our rules and queues, if there are any."""
        self._set_rules(None)
        self._remove_queues()

    def is_marked(self) -> bool:
        """Return whether our rules or queues exist in the namespace."""
        return any(is_marked(self._rules(family)) for family in self._families()) or bool(self._queues())

    def holds(self, impairment: NetworkImpairment) -> bool:
        """Return whether an impairment is in force."""
        if impairment.kind == "delay":
            return len(self._queues()) == len(self._devices()) > 0
        return all(is_in_force(self._rules(family), impairment) for family in self._families())

    def packets(self) -> int:
        """Return how many packets have been impaired since the current impairment was set."""
        count = 0
        for family in self._families():
            if is_marked(self._rules(family)):
                count += count_dropped_packets(self._run(self._iptables(family), "-w", "5", "-L", "-v", "-x", "-n"))
        return count + count_delayed_packets(self._disciplines())

    def try_rules(self, impairment: NetworkImpairment) -> None:
        """Set an impairment's rules in an unused chain and remove them; raise AgentError if that fails."""
        rules = [rule.replace(OUT, _TEST_CHAIN).replace(IN, _TEST_CHAIN) for rule in list_rules(impairment)]
        restore, empty = f"{self._iptables('')}-restore", f"*filter\n:{_TEST_CHAIN} - [0:0]\n"
        try:
            self._run(restore, "-w", "5", "--noflush", stdin="\n".join([f"{empty}{rules[0]}", *rules[1:], "COMMIT\n"]))
        finally:
            self._run(restore, "-w", "5", "--noflush", stdin=f"{empty}-X {_TEST_CHAIN}\nCOMMIT\n", allow_failure=True)

    def try_queue(self, impairment: NetworkImpairment) -> None:
        """Delay the loopback interface briefly; raise AgentError if that fails."""
        self._run("tc", "qdisc", "replace", "dev", "lo", *list_netem_arguments(impairment))
        self._run("tc", "qdisc", "del", "dev", "lo", "root")

    def _set_rules(self, impairment: NetworkImpairment | None) -> None:
        for family in self._families():
            text = format_restore_input(self._rules(family), impairment)
            if text:
                self._run(f"{self._iptables(family)}-restore", "-w", "5", "--noflush", stdin=text)

    def _rules(self, family: str) -> str:
        return self._run(self._iptables(family), "-w", "5", "-S")

    def _iptables(self, family: str) -> str:
        return f"ip{family}tables{self._variant}"

    def _families(self) -> Sequence[str]:
        """Return the infix of the iptables command per IP version; IPv6 only if the pod has a routable address."""
        addresses = self._run("cat", "/proc/self/net/if_inet6", allow_failure=True)
        has_ipv6 = any(len(words := line.split()) > 3 and words[3] == "00" for line in addresses.splitlines())
        return _COMMAND_INFIXES if has_ipv6 else _COMMAND_INFIXES[:1]

    def _devices(self) -> list[str]:
        lines = self._run("cat", "/proc/self/net/dev").splitlines()[2:]
        return [name for line in lines if (name := line.partition(":")[0].strip()) != "lo"]

    def _disciplines(self) -> list[dict[str, object]]:
        return json.loads(self._run("tc", "-s", "-j", "qdisc", "show") or "[]")

    def _queues(self) -> list[str]:
        return [str(queue["dev"]) for queue in self._disciplines() if queue.get("handle") == HANDLE]

    def _remove_queues(self) -> None:
        for device in self._queues():
            self._run("tc", "qdisc", "del", "dev", device, "root")

    def _run(self, *argv: str, stdin: str | None = None, allow_failure: bool = False) -> str:
        prefix, descriptors = [], ()
        if self._descriptor is not None:
            prefix, descriptors = ["nsenter", f"--net=/proc/self/fd/{self._descriptor}", "--"], (self._descriptor,)
        try:
            result = subprocess.run(
                [*prefix, *argv],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                pass_fds=descriptors,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            raise AgentError(f"the image does not contain {argv[0]}") from None
        except subprocess.TimeoutExpired:
            raise AgentError(f"{argv[0]} took longer than {_TIMEOUT_S:g} s") from None
        if result.returncode and not allow_failure:
            message = " ".join((result.stderr or result.stdout).split())[:300]
            raise AgentError(f"{' '.join(argv[:3])} failed with code {result.returncode}: {message}")
        return result.stdout
