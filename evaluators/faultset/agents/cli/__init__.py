"""The commands `faultset agents import` and `show`."""
