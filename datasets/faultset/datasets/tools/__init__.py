"""Questions to a recorded episode: typed tools and an emulated kubectl, as an operator or an agent would ask them.

`Episode.tools` gives them. Every answer has a status; what was not recorded is said to be so.
"""
