"""Data that methods were developed on, by the names that their registrations use.

What the authors had seen: episodes that they had looked at, or scores of the method on them, before the last change to
what it answers.
"""

from __future__ import annotations

OWN_CAMPAIGNS = "own campaigns of the hotel application on the embedded platform"
SAMPLE = "datasets/sample"
NEZHA = "Nezha, Train Ticket, 2023-01-29"
PETSHOP = "PetShop, public issues"
NEZHA_SHOP = "Nezha, Online Boutique, 2022-08-22"
RCAEVAL_CASE = "RCAEval, one case of RE2-OB"
OPENSTACK = "OpenStack failure dataset, 45 tests"
CORE = "datasets/core-1"
OWN_CAMPAIGNS_ALL_APPS = "own campaigns of all four applications on the embedded platform"

OWN = (OWN_CAMPAIGNS, SAMPLE)
OWN_AND_PUBLISHED = (*OWN, NEZHA, PETSHOP)
"""Localizers: the tables of docs/results/ were known when their preprocessing was last changed."""
NOTHING: tuple[str, ...] = ()
"""Methods that read no evidence, so that nothing could be fitted to any."""
