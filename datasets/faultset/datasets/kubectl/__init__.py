"""kubectl over any cluster state: command lines, kinds, selectors, tables, and one reader of all verbs that look."""
