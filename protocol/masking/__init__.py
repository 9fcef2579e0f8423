"""Secure aggregation: the server learns the sum of the devices' vectors and no single one of them.

Bonawitz et al. 2017 on the sparse graph of Bell et al. 2020, bytes in and bytes out. `docs/masking.md` describes
the protocol message by message.
"""
