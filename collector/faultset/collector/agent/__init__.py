"""The node agent: impairs the network of pods on its node, kills containers, and makes folders for volumes.

It runs inside the image of the application and imports nothing but the standard library.
"""
