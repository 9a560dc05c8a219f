"""What every part of faultset builds on: errors, the command line, plug-ins, progress and files."""
