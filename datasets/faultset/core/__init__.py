"""What every part of faultset builds on: errors, the command line, plug-ins, progress and files."""

from importlib.metadata import version

__version__ = version("faultset")
