"""Sets, reads and removes impairments in one network namespace, with the programs iptables and tc."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import (
    HANDLE,
    IN,
    OUT,
    NetworkImpairment,
    delayed_packets,
    dropped_packets,
    is_in_force,
    is_marked,
    netem_words,
    restore_text,
    rules_of,
)

_TIMEOUT_S = 15.0
_FAMILIES = ("", "6")
_TRIED = "FAULTSET-TRIED"


class Network:
    """One network namespace.

    Parameters
    ----------
    descriptor
        An open file of the namespace; this process' own when None.
    variant
        Suffix of the iptables that works here, empty or `-legacy`.
    """

    def __init__(self, descriptor: int | None = None, *, variant: str = ""):
        self._descriptor, self._variant = descriptor, variant

    def impair(self, impairment: NetworkImpairment) -> None:
        """Put a impairment in place of any before; raise AgentError when the kernel does not take it."""
        if impairment.kind == "delay":
            self._set_rules(None)
            for device in self._devices():
                self._run("tc", "qdisc", "replace", "dev", device, *netem_words(impairment))
        else:
            self._remove_queues()
            self._set_rules(impairment)
        if not self.holds(impairment):
            raise AgentError(f"the rules for {impairment.kind} were set but are not there")

    def lift(self) -> None:
        """Remove all that is ours; nothing happens when there is nothing."""
        self._set_rules(None)
        self._remove_queues()

    def is_marked(self) -> bool:
        """Say whether anything of ours is there."""
        return any(is_marked(self._rules(family)) for family in self._families()) or bool(self._queues())

    def holds(self, impairment: NetworkImpairment) -> bool:
        """Say whether a impairment is in force."""
        if impairment.kind == "delay":
            return len(self._queues()) == len(self._devices()) > 0
        return all(is_in_force(self._rules(family), impairment) for family in self._families())

    def packets(self) -> int:
        """Return how many packets were impaired since the present impairment was set."""
        count = 0
        for family in self._families():
            if is_marked(self._rules(family)):
                count += dropped_packets(self._run(self._iptables(family), "-w", "5", "-L", "-v", "-x", "-n"))
        return count + delayed_packets(self._disciplines())

    def try_rules(self, impairment: NetworkImpairment) -> None:
        """Set the rules of a impairment where no packet comes along, and remove them; raise AgentError."""
        rules = [rule.replace(OUT, _TRIED).replace(IN, _TRIED) for rule in rules_of(impairment)]
        restore, empty = f"{self._iptables('')}-restore", f"*filter\n:{_TRIED} - [0:0]\n"
        try:
            self._run(restore, "-w", "5", "--noflush", stdin="\n".join([f"{empty}{rules[0]}", *rules[1:], "COMMIT\n"]))
        finally:
            self._run(restore, "-w", "5", "--noflush", stdin=f"{empty}-X {_TRIED}\nCOMMIT\n", allow_failure=True)

    def try_queue(self, impairment: NetworkImpairment) -> None:
        """Delay the loopback interface for an instant; raise AgentError."""
        self._run("tc", "qdisc", "replace", "dev", "lo", *netem_words(impairment))
        self._run("tc", "qdisc", "del", "dev", "lo", "root")

    def _set_rules(self, impairment: NetworkImpairment | None) -> None:
        for family in self._families():
            text = restore_text(self._rules(family), impairment)
            if text:
                self._run(f"{self._iptables(family)}-restore", "-w", "5", "--noflush", stdin=text)

    def _rules(self, family: str) -> str:
        return self._run(self._iptables(family), "-w", "5", "-S")

    def _iptables(self, family: str) -> str:
        return f"ip{family}tables{self._variant}"

    def _families(self) -> Sequence[str]:
        """Return the versions of IP that have an address beyond the link; IPv6 is often absent altogether."""
        addresses = self._run("cat", "/proc/self/net/if_inet6", allow_failure=True)
        has_6 = any(len(words := line.split()) > 3 and words[3] == "00" for line in addresses.splitlines())
        return _FAMILIES if has_6 else _FAMILIES[:1]

    def _devices(self) -> list[str]:
        lines = self._run("cat", "/proc/self/net/dev").splitlines()[2:]
        return [name for line in lines if (name := line.partition(":")[0].strip()) != "lo"]

    def _disciplines(self) -> list[dict[str, object]]:
        return json.loads(self._run("tc", "-s", "-j", "qdisc", "show") or "[]")

    def _queues(self) -> list[str]:
        return [str(one["dev"]) for one in self._disciplines() if one.get("handle") == HANDLE]

    def _remove_queues(self) -> None:
        for device in self._queues():
            self._run("tc", "qdisc", "del", "dev", device, "root")

    def _run(self, *argv: str, stdin: str | None = None, allow_failure: bool = False) -> str:
        within, passed = [], ()
        if self._descriptor is not None:
            within, passed = ["nsenter", f"--net=/proc/self/fd/{self._descriptor}", "--"], (self._descriptor,)
        try:
            done = subprocess.run(
                [*within, *argv],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                pass_fds=passed,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            raise AgentError(f"the image has no {argv[0]}") from None
        except subprocess.TimeoutExpired:
            raise AgentError(f"{argv[0]} took longer than {_TIMEOUT_S:g} s") from None
        if done.returncode and not allow_failure:
            said = " ".join((done.stderr or done.stdout).split())[:300]
            raise AgentError(f"{' '.join(argv[:3])} failed with code {done.returncode}: {said}")
        return done.stdout
