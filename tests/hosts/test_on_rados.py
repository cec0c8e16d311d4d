#!/usr/bin/env python3
"""Managed files that several hosts use at once, with the mapping table and the election, the servers, or both in pools of a real Ceph.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_on_rados.py [NAME...]

Exit status 0 where hosts or a Ceph cannot be had: the tests skip then, and say why.
"""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
import test_moving as moving  # noqa: E402
import test_sharing as sharing  # noqa: E402
from clusters import UNHURRIED_SECONDS  # noqa: E402


class TableInAPool(sharing.Sharing):
    """What test_sharing.py checks, with servers in directories as there."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            ceph = cls.enterClassContext(cls.bed.ceph("--osds", "1"))
            cls.cluster = sharing.Cluster(cls.bed, "--rados", ceph["pools"][0], "--conf", ceph["conf"], host_timeout_s=UNHURRIED_SECONDS)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None


def in_pools(test, with_table):
    """Starts hosts, a Ceph, and a cluster whose servers are pools; with the table in a pool too, or in an etcd."""
    try:
        test.bed = test.enterClassContext(beds.Bed(hosts=4))
        ceph = test.enterClassContext(test.bed.ceph("--osds", "4"))
        engine = ("--rados", ceph["pools"][3], "--conf", ceph["conf"]) if with_table else ()
        test.cluster = sharing.Cluster(test.bed, *engine, ceph=ceph, host_timeout_s=UNHURRIED_SECONDS)
    except beds.Unavailable as why:
        raise unittest.SkipTest(str(why)) from None


class ServersInPools(sharing.Sharing):
    """The same with servers that are pools, and the table in an etcd."""

    @classmethod
    def setUpClass(cls):
        in_pools(cls, with_table=False)


class MovingInPools(moving.Moving):
    """What test_moving.py checks, with all that is stored in a Ceph."""

    @classmethod
    def setUpClass(cls):
        in_pools(cls, with_table=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
