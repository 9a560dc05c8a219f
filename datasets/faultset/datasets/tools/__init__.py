"""Query a recorded episode with typed tools and an emulated kubectl, like an operator or an agent; see `Episode.tools`.

Every answer has a status, including one for data that was not recorded.
"""
