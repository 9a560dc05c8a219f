"""Rules of the kernel that make a impairment, and how they are read back."""

from __future__ import annotations

import pytest

from faultset.collector.agent.networks import (
    AgentError,
    NetworkImpairment,
    count_delayed_packets,
    count_dropped_packets,
    format_restore_input,
    is_in_force,
    is_marked,
    list_netem_arguments,
    list_rules,
    read_impairment,
)

LOSS = NetworkImpairment(kind="loss", probability=0.3)
PARTITION = NetworkImpairment(kind="partition")
EMPTY = "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n"
WITH_LOSS = (
    f"{EMPTY}-N FAULTSET-IN\n-N FAULTSET-OUT\n-A INPUT -j FAULTSET-IN\n-A OUTPUT -j FAULTSET-OUT\n"
    "-A FAULTSET-OUT ! -o lo -m statistic --mode random --probability 0.29999999981 -j DROP\n"
)
OF_A_MESH = "-N ISTIO_OUTPUT\n-A OUTPUT -p tcp -j ISTIO_OUTPUT\n"


def test_loss_drops_a_share_of_what_leaves_by_any_device_but_the_loopback() -> None:
    rule = "-A FAULTSET-OUT ! -o lo -m statistic --mode random --probability 0.30000000000 -j DROP"
    assert list_rules(LOSS) == [rule]


def test_loss_of_everything_needs_no_chance() -> None:
    assert list_rules(NetworkImpairment(kind="loss", probability=1.0)) == ["-A FAULTSET-OUT ! -o lo -j DROP"]


def test_a_partition_drops_both_directions() -> None:
    assert list_rules(PARTITION) == ["-A FAULTSET-OUT ! -o lo -j DROP", "-A FAULTSET-IN ! -i lo -j DROP"]


def test_rules_are_set_in_one_step_and_come_first() -> None:
    assert format_restore_input(EMPTY, PARTITION).splitlines() == [
        "*filter",
        ":FAULTSET-OUT - [0:0]",
        ":FAULTSET-IN - [0:0]",
        "-A FAULTSET-OUT ! -o lo -j DROP",
        "-A FAULTSET-IN ! -i lo -j DROP",
        "-I OUTPUT 1 -j FAULTSET-OUT",
        "-I INPUT 1 -j FAULTSET-IN",
        "COMMIT",
    ]


def test_new_rules_replace_the_present_ones_and_enter_once() -> None:
    lines = format_restore_input(WITH_LOSS, PARTITION).splitlines()
    assert lines.count("-D OUTPUT -j FAULTSET-OUT") == lines.count("-I OUTPUT 1 -j FAULTSET-OUT") == 1
    assert ":FAULTSET-OUT - [0:0]" in lines, "which empties a chain that exists"


def test_lifting_removes_ours_and_nothing_else() -> None:
    assert format_restore_input(WITH_LOSS + OF_A_MESH, None).splitlines() == [
        "*filter",
        "-D INPUT -j FAULTSET-IN",
        "-D OUTPUT -j FAULTSET-OUT",
        "-F FAULTSET-OUT",
        "-F FAULTSET-IN",
        "-X FAULTSET-OUT",
        "-X FAULTSET-IN",
        "COMMIT",
    ]


def test_half_of_what_was_ours_can_be_lifted() -> None:
    assert format_restore_input(f"{EMPTY}-N FAULTSET-OUT\n", None).splitlines() == [
        "*filter",
        "-F FAULTSET-OUT",
        "-X FAULTSET-OUT",
        "COMMIT",
    ]


def test_there_is_nothing_to_lift_where_nothing_is_ours() -> None:
    assert format_restore_input(EMPTY + OF_A_MESH, None) == ""
    assert not is_marked(EMPTY + OF_A_MESH)
    assert is_marked(WITH_LOSS)


def test_rules_count_as_in_force_only_if_they_are_entered_and_of_the_right_measure() -> None:
    assert is_in_force(WITH_LOSS, LOSS)
    assert not is_in_force(WITH_LOSS, NetworkImpairment(kind="loss", probability=0.31))
    assert not is_in_force(WITH_LOSS, PARTITION)
    assert not is_in_force(WITH_LOSS.replace("-A OUTPUT -j FAULTSET-OUT\n", ""), LOSS)
    assert not is_in_force(EMPTY, LOSS)


def test_both_rules_of_a_partition_count_whatever_order_they_are_shown_in() -> None:
    rules = "-A FAULTSET-IN ! -i lo -j DROP\n-A FAULTSET-OUT ! -o lo -j DROP\n"
    present = f"-A INPUT -j FAULTSET-IN\n-A OUTPUT -j FAULTSET-OUT\n{rules}"
    assert is_in_force(present, PARTITION)
    assert not is_in_force(present.replace("-A FAULTSET-IN ! -i lo -j DROP\n", ""), PARTITION)


def test_only_drops_of_our_chains_are_counted() -> None:
    listing = """\
Chain INPUT (policy ACCEPT 7 packets, 420 bytes)
    pkts      bytes target     prot opt in     out     source               destination
      11      660 FAULTSET-IN  all  --  *      *       0.0.0.0/0            0.0.0.0/0
     500    30000 DROP       all  --  *      *       0.0.0.0/0            0.0.0.0/0

Chain FAULTSET-IN (1 references)
    pkts      bytes target     prot opt in     out     source               destination
       4      240 DROP       all  --  !lo    *       0.0.0.0/0            0.0.0.0/0

Chain FAULTSET-OUT (1 references)
    pkts      bytes target     prot opt in     out     source               destination
     107     6420 DROP       all  --  *      !lo     0.0.0.0/0            0.0.0.0/0            statistic mode random
"""
    assert count_dropped_packets(listing) == 111


def test_delay_is_a_discipline_under_our_handle() -> None:
    assert list_netem_arguments(NetworkImpairment(kind="delay", latency_s=0.25, jitter_s=0.025)) == (
        "root handle fa17: netem limit 100000 delay 250ms 25ms".split()
    )
    assert list_netem_arguments(NetworkImpairment(kind="delay", latency_s=0.2))[-2:] == ["delay", "200ms"]


def test_only_packets_of_our_discipline_are_counted() -> None:
    shown = [
        {"kind": "netem", "handle": "fa17:", "dev": "eth0", "packets": 12},
        {"kind": "netem", "handle": "8001:", "dev": "eth1", "packets": 900},
        {"kind": "noqueue", "handle": "0:", "dev": "lo", "packets": 0},
    ]
    assert count_delayed_packets(shown) == 12


def test_an_impairment_is_read_from_its_json_form() -> None:
    assert read_impairment({"kind": "loss", "probability": 0.3}) == LOSS
    assert read_impairment({"kind": "partition"}) == PARTITION
    assert read_impairment({"kind": "delay", "latency_s": 0.2, "jitter_s": 0.0}) == NetworkImpairment(
        kind="delay", latency_s=0.2
    )


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"kind": "reboot"},
        {"kind": "loss"},
        {"kind": "loss", "probability": 0},
        {"kind": "loss", "probability": 1.1},
        {"kind": "loss", "probability": True},
        {"kind": "loss", "probability": "0.3 -j ACCEPT"},
        {"kind": "delay", "latency_s": -1},
        {"kind": "delay", "latency_s": float("nan")},
        {"kind": "delay", "latency_s": 0.1, "jitter_s": 3600},
    ],
)
def test_what_is_no_impairment_is_refused(told: object) -> None:
    with pytest.raises(AgentError):
        read_impairment(told)
