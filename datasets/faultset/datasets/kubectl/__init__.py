"""kubectl over any cluster state: command lines, kinds, selectors, tables and the reading verbs."""
