"""Objects, events and logs of a cluster, followed as they change."""
