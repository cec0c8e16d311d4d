#!/usr/bin/env python3
"""Managed files that several hosts use at once on I/O servers of OrangeFS, with the mapping table in an etcd.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_on_orangefs.py [NAME...]

The I/O servers are those of the stand-in (tests/engines/standin.py): the directories of its servers are on all hosts, and its library checks how it
is called. Where ORANGEFS names an installation, in a place that hosts see (not below /tmp), they are real ones. Environment: SEED. Exit status 0
where hosts or an etcd cannot be had: the tests skip then, and say why.
"""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "engines"))
import bed as beds  # noqa: E402
import orangefs as engine  # noqa: E402
import standin  # noqa: E402
import test_moving as moving  # noqa: E402
import test_sharing as sharing  # noqa: E402
from test_sharing import REGION, STRIPEWISE, WAIT_SECONDS  # noqa: E402

HOSTS = 4
REAL = os.environ.get("ORANGEFS")


class RealServers:
    """I/O servers of a real OrangeFS that all hosts of a bed reach; use it in a `with` statement."""

    def __init__(self, bed):
        program = [sys.executable, HERE.parent / "engines" / "orangefs.py", "--servers", "3", "--address", bed.outside]
        environment = {**os.environ, "TMPDIR": str(bed.common)}
        self.process = bed.start(None, program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def __enter__(self):
        description = json.loads(self.process.stdout.readline())
        self.fs, self.servers, self.directory = (description[key] for key in ("fs", "servers", "directory"))
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(WAIT_SECONDS)

    def environment(self):
        return {"LD_LIBRARY_PATH": str(pathlib.Path(REAL) / "lib")}

    def stored_bytes(self, number):
        return engine.stored_bytes_in(self.directory, number)


class OnOrangeFS(moving.Moving, sharing.Sharing):
    """What test_sharing.py and test_moving.py check; and hosts that fall silent and agents that are killed, of which OrangeFS can shut out neither."""

    @classmethod
    def setUpClass(cls):
        os.environ.setdefault("STEPS", "100")
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=HOSTS))
            beside = pathlib.Path(cls.bed.common) / "pvfs2"
            servers = RealServers(cls.bed) if REAL else standin.StandIn(servers=3, library_directory=beside)
            cls.orangefs = cls.enterClassContext(servers)
            cls.cluster = sharing.Cluster(cls.bed, orangefs=cls.orangefs)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        # The first is master.
        cls.agents = [cls.cluster.start_agent(host, cls.addClassCleanup) for host in range(HOSTS)]

    def tearDown(self):
        super().tearDown()
        if REAL:
            return
        for number in range(3):
            self.orangefs.control(number)
        self.assertEqual(self.orangefs.violations(), "")

    def wait_until(self, what, holds):
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            self.assertLess(time.monotonic(), end, f"seed {self.seed}: {what}")
            time.sleep(0.02)

    def couriers(self, name):
        """How many late requests have been sent, or have arrived."""
        path = self.orangefs.directory / name
        return path.stat().st_size if path.exists() else 0

    def assert_holds(self, worker, offset, data):
        told = f"seed {self.seed}: bytes from {offset} on, read on host {worker.host}"
        self.assertEqual(worker.ask("read", offset, len(data)), f"{len(data)} {hashlib.sha256(data).hexdigest()}", told)

    def bytes_of(self, number, length):
        """What a worker writes that is given this number."""
        return random.Random(number).randbytes(length)

    @unittest.skipIf(REAL, "the stand-in's servers are ordered to be late")
    def test_a_late_write_of_a_killed_agent_changes_nothing_in_a_region_that_has_moved(self):
        path = str(self.cluster.directory / "late")
        writer, other = self.worker(1, "late"), self.worker(2, "late")
        first, second, length = self.seed, self.seed + 1, 700_000
        self.cluster.stripewise(0, "restripe", path, "--layout", "b 1MiB")
        self.assertEqual(writer.ask("write", 0, length, 1), "ok")
        self.orangefs.control(1, "late=3000")
        sent, arrived = self.couriers("sent"), self.couriers("arrived")
        writer.say("write", 0, length, first)
        self.wait_until("the write is under way", lambda: self.couriers("sent") > sent)
        self.assertEqual(self.bed.run(1, ["kill", "-KILL", str(self.agents[1])]).returncode, 0)
        self.orangefs.control(1)
        # The worker's own process takes over, and does the write again.
        self.assertEqual(writer.hear(), "ok")
        self.assert_holds(other, 0, self.bytes_of(first, length))
        self.cluster.stripewise(0, "restripe", path, "--layout", "c 1MiB")
        self.assertEqual(other.ask("write", 0, length, second), "ok")
        self.assertEqual(other.ask("sync"), "ok")
        self.wait_until("what the killed agent sent arrives", lambda: self.couriers("arrived") - arrived >= self.couriers("sent") - sent)
        for worker in (writer, other):
            self.assert_holds(worker, 0, self.bytes_of(second, length))
            self.assertEqual(worker.end(), 0)
        self.assertEqual(self.cluster.stripewise(0, "check"), "")

    def test_what_a_silent_host_may_use_stays_as_it_is_until_it_is_back(self):
        path = str(self.cluster.directory / "silent")
        # A master that is silent would be followed first, which is another test.
        silent = next(host for host in (3, 2) if not self.listed(0, host)["is_master"])
        writer, other = self.worker(silent, "silent"), self.worker(1, "silent")
        length = 2 * REGION
        self.assertEqual(writer.ask("write", 0, length, self.seed), "ok")
        self.assertEqual(writer.ask("sync"), "ok")
        self.bed.part(silent)
        try:
            self.wait_until("the host is silent", lambda: not self.listed(0, silent)["answers"])
            self.assertTrue(other.ask("truncate", 100).startswith("error"), "what it has open is not truncated")
            move = self.bed.start(0, [STRIPEWISE, "restripe", path, "--layout", "b 1MiB"], env=self.cluster.env)
            self.addCleanup(move.kill)
            self.wait_until("the host misses its master", lambda: "the master is lost" in self.cluster.log_of(silent))
            # It goes on writing where the regions lie, which therefore do not move.
            self.assertEqual(writer.ask("write", 500, 1000, self.seed + 1), "ok")
            expected = bytearray(self.bytes_of(self.seed, length))
            expected[500:1500] = self.bytes_of(self.seed + 1, 1000)
            self.assert_holds(other, 0, bytes(expected))
            self.assertIsNone(move.poll(), "the move waits")
        finally:
            self.bed.rejoin(silent)
        self.wait_until("the host is back", lambda: self.listed(0, silent)["answers"])
        self.assertEqual(move.wait(timeout=WAIT_SECONDS), 0)
        self.assert_holds(writer, 0, bytes(expected))
        self.assertEqual(self.servers(path), {"b"})
        self.assertEqual(other.ask("truncate", 100), "ok")
        self.assertEqual(writer.ask("size"), "100")
        for worker in (writer, other):
            self.assertEqual(worker.end(), 0)

    def listed(self, by, host):
        """What one host's list of hosts says of another."""
        hosts = json.loads(self.cluster.stripewise(by, "host", "list", "--json"))["hosts"]
        return next(found for found in hosts if found["name"] == f"h{host}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
