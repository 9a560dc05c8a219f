"""How kubectl reads and prints: command lines, kinds, selectors, tables, documents. Pure functions, light to import."""
