#!/usr/bin/env python3
"""The short form of torture.py: a round of each kind of fault, half of them on pools of a Ceph and half on directories with an etcd; and that blocks.py finds
what is wrong.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_torture.py [NAME...]

Environment: SEED. Exit status 0 where hosts, a Ceph or an etcd cannot be had: the tests skip then, and say why.
"""

import os
import pathlib
import random
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
import torture  # noqa: E402
from blocks import DONE, REFUSED, UNKNOWN, Block, Truncation, Wrong  # noqa: E402

# As clusters have it unless they say otherwise: a busy machine keeps an agent waiting for 2 s now and then, and then its host is silent.
TIMEOUT_SECONDS, SILENCE_SECONDS = 5, 6


class Blocks(unittest.TestCase):
    """Of a block of ten bytes at 100 on host 2, in which `abc` was written at 3."""

    def setUp(self):
        self.block, self.truncations = Block(100, 10), []
        self.block.wrote(3, b"abc", 0, 0, self.truncations, 200)

    def reads(self, expected, ended=0, begun=0):
        self.block.found(0, 10, expected, ended, begun, self.truncations, 2)

    def does_not_read(self, found, ended=0, begun=0):
        with self.assertRaises(Wrong):
            self.reads(found, ended, begun)

    def test_what_was_acknowledged_is_there(self):
        self.reads(b"\0\0\0abc\0\0\0\0")
        for wrong in (b"\0\0\0abd\0\0\0\0", bytes(10), b"\0\0\0abc\0\0\0x", b"\0\0\0ab"):
            self.does_not_read(wrong)
        self.block.wrote(4, b"B", 0, 0, self.truncations, 200)
        self.does_not_read(b"\0\0\0abc\0\0\0\0")
        # A file that ends before zeros is not short of anything.
        self.reads(b"\0\0\0aBc")

    def test_a_truncation_takes_effect_when_it_is_done_and_perhaps_before(self):
        self.truncations.append(Truncation(104))
        self.reads(b"\0\0\0abc\0\0\0\0", 0, 1)
        # Once it was seen it stays.
        self.reads(b"\0\0\0a\0\0\0\0\0\0", 0, 1)
        self.does_not_read(b"\0\0\0abc\0\0\0\0", 0, 1)
        self.truncations[0].outcome = DONE
        self.reads(b"\0\0\0a\0\0\0\0\0\0", 1, 1)

    def test_a_truncation_that_was_not_seen_is_done_all_the_same(self):
        self.truncations.append(Truncation(104, DONE))
        self.does_not_read(b"\0\0\0abc\0\0\0\0", 1, 1)

    def test_one_that_was_refused_changes_nothing(self):
        self.truncations.append(Truncation(104))
        self.reads(b"\0\0\0a\0\0\0\0\0\0", 0, 1)
        self.truncations[0].outcome = REFUSED
        self.does_not_read(b"\0\0\0a\0\0\0\0\0\0", 1, 1)

    def test_of_one_whose_outcome_nobody_knows_a_read_decides(self):
        self.truncations.append(Truncation(104, UNKNOWN))
        self.reads(b"\0\0\0abc\0\0\0\0", 1, 1)
        self.does_not_read(b"\0\0\0a\0\0\0\0\0\0", 1, 1)

    def test_a_write_beside_a_truncation_comes_before_or_after_it(self):
        self.truncations.append(Truncation(104))
        self.block.wrote(5, b"xy", 0, 1, self.truncations, 200)
        self.truncations[0].outcome = DONE
        self.assertEqual({state[1] for state in self.block.states}, {b"\0\0\0abxy\0\0\0", b"\0\0\0a\0xy\0\0\0"})
        self.does_not_read(b"\0\0\0abxy\0\0\0", 1, 1)
        self.reads(b"\0\0\0a\0xy\0\0\0", 1, 1)

    def test_a_write_beside_a_truncation_may_come_after_it_though_nothing_was_there_before(self):
        self.truncations.append(Truncation(106))
        self.block.wrote(7, b"x", 0, 1, self.truncations, 200)
        self.reads(b"\0\0\0abc\0x\0\0", 0, 1)
        self.truncations[0].outcome = DONE
        self.reads(b"\0\0\0abc\0x\0\0", 1, 1)

    def test_a_write_that_failed_may_have_landed_byte_by_byte_until_a_read_decides(self):
        self.block.failed(4, b"XYZ", 0)
        self.does_not_read(b"\0\0\0aQc\0\0\0\0")
        self.reads(b"\0\0\0abY\0\0\0\0")
        self.does_not_read(b"\0\0\0aXY\0\0\0\0")

    def test_one_that_failed_is_cut_by_a_truncation_for_which_its_host_was_shut_out(self):
        self.block.failed(4, b"XYZ", 0)
        self.truncations.append(Truncation(105, DONE, frozenset({2})))
        self.does_not_read(b"\0\0\0abY\0\0\0\0", 1, 1)
        self.reads(b"\0\0\0aX\0\0\0\0\0", 1, 1)

    def test_what_was_not_synced_beyond_the_known_size_may_be_lost_with_its_host_alone(self):
        self.block.wrote(6, b"def", 0, 0, self.truncations, 107)
        self.does_not_read(b"\0\0\0abcd\0\0\0")
        self.block.host_was_lost()
        # What others knew of is there.
        self.does_not_read(b"\0\0\0abc\0\0\0\0")
        self.reads(b"\0\0\0abcd\0\0\0")
        self.block.wrote(6, b"def", 0, 0, self.truncations, 107)
        self.block.synced()
        self.block.host_was_lost()
        self.does_not_read(b"\0\0\0abcd\0\0\0")


class Tortured:
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))

    def tortured(self, servers):
        seed = self.seed
        print(f"SEED={seed}", file=sys.stderr)
        faults = sorted(torture.FAULTS, key=lambda name: (name in torture.OF_OSDS, random.Random(f"{seed} {name}").random()))
        # Those of OSDs are the last of the pools' half.
        faults = faults[len(faults) // 2:] if servers == "pools" else faults[: len(faults) // 2]
        try:
            with torture.on(servers, seed, SILENCE_SECONDS, TIMEOUT_SECONDS) as tortured:
                for number in range(len(faults)):
                    try:
                        print(tortured.round(number, faults), file=sys.stderr)
                    except torture.Lost as lost:
                        self.fail("\n".join([*torture.logs(tortured), f"seed {seed}, round {number}: {lost}"]))
                tortured.end()
        except beds.Unavailable as why:
            self.skipTest(str(why))


class OnPools(Tortured, unittest.TestCase):
    def test_nothing_is_lost_on_pools(self):
        self.tortured("pools")


class OnDirectories(Tortured, unittest.TestCase):
    def test_nothing_is_lost_on_directories(self):
        self.tortured("directories")


if __name__ == "__main__":
    unittest.main(verbosity=2)
