"""Names of the data that authors of methods had seen.

Data count as seen if the authors had looked at episodes, or at scores of the method on them, before they last changed
its answers.
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
"""For localizers whose preprocessing was last changed after results on these data were known."""
NOTHING: tuple[str, ...] = ()
"""For methods that read no evidence."""
