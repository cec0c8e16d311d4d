#!/usr/bin/env python3
"""Managed files that several hosts use at once, with the mapping table and the election in a pool of a real Ceph.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_on_rados.py [NAME...]

Exit status 0 where hosts or a Ceph cannot be had: the tests skip then, and say why.
"""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
import test_sharing as sharing  # noqa: E402


class TableInAPool(sharing.Sharing):
    """What test_sharing.py checks, with servers in directories as there."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            ceph = cls.enterClassContext(cls.bed.ceph("--osds", "1"))
            cls.cluster = sharing.Cluster(cls.bed, "--rados", ceph["pools"][0], "--conf", ceph["conf"])
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None


if __name__ == "__main__":
    unittest.main(verbosity=2)
