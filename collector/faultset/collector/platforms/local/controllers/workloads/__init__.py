"""Controllers of workloads: what makes, replaces and ends pods until there are as many as wanted."""
