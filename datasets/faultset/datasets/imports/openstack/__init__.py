"""OpenStack failure dataset: tests of code faults in Nova, Cinder and Neutron, with logs and RPC spans."""

from faultset.datasets.imports.openstack.format import OpenStackImport

__all__ = ["OpenStackImport"]
