"""Import the telemetry of any system from files that its monitoring exports.

files ─▶ recognition ─▶ readers ─▶ staged rows ─▶ naming ─▶ assembly ─▶ episodes
         by content     streams     on disk        services   windows    of the dataset
"""
