"""The relay process of the embedded platform, which replaces kube-proxy and the network.

It listens on the address of every Service, forwards connections to the pods behind it, counts the traffic of each pod
and applies network impairments.
"""
