"""Network impairments and kills on a cluster, by node agents or ephemeral containers."""
