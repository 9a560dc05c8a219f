"""Names of the data on which methods were developed.

Data count as seen if the authors inspected their episodes, or the method's scores on them, before the last change that
affects its answers.
"""

from __future__ import annotations

OWN_CAMPAIGNS = "campaigns of this project with the hotel application on the embedded platform"
SAMPLE = "datasets/sample"
NEZHA = "Nezha, Train Ticket, 2023-01-29"
PETSHOP = "PetShop, public issues"
NEZHA_SHOP = "Nezha, Online Boutique, 2022-08-22"
RCAEVAL_CASE = "RCAEval, one case of RE2-OB"
OPENSTACK = "OpenStack failure dataset, 45 tests"
OWN_CAMPAIGNS_ALL_APPS = "campaigns of this project with all four applications on the embedded platform"

OWN = (OWN_CAMPAIGNS, SAMPLE)
OWN_AND_PUBLISHED = (*OWN, NEZHA, PETSHOP)
"""For localizers whose preprocessing was last changed after they were scored on these data."""
NOTHING: tuple[str, ...] = ()
"""For methods that read no telemetry."""
