"""Query a recorded episode with typed tools and an emulated kubectl, for people and agents; see `Episode.tools`.

Every answer has a status, including one for data that was not recorded.
"""
