"""Reading other benchmarks' data into our tables and versions.

`protocol` says what a format has to offer, `registry` lists the formats, `importing` runs an import.
"""
