#!/usr/bin/env python3
"""One host name, two agents: another machine, or another container of the same machine. The second takes no part while the first may have files open, or what
the first writes would be lost.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_names.py [NAME...]

Exit status 0 where hosts, an etcd or a Ceph cannot be had: the tests skip then, and say why.
"""

import errno
import hashlib
import pathlib
import random
import signal
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
from clusters import REGION, STRIPEWISE, Cluster  # noqa: E402
from test_faults import OnHosts as Faulty  # noqa: E402
from test_sharing import WORKER, Worker  # noqa: E402

SIZE = 2 * REGION
# Another machine that has the name of host 1.
NAMED_H1 = ["unshare", "--uts", "sh", "-c", 'hostname h1 && exec "$@"', "sh"]
# A container with its machine's name and its own /dev/shm.
CONTAINED = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && echo $$ && exec "$@"', "sh"]


def data_of(seed, length=SIZE):
    return random.Random(seed).randbytes(length)


class OnHosts(Faulty):
    def setUp(self):
        try:
            self.bed = self.enterContext(beds.Bed(hosts=4))
            self.cluster = self.cluster_of()
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def cluster_of(self):
        return Cluster(self.bed)

    def attempt(self, host, *words, before=()):
        return self.bed.run(host, [*before, STRIPEWISE, *words], env=self.cluster.env)

    def path(self, name):
        return str(self.cluster.directory / name)

    def end(self, agent):
        """As it ends by itself: it leaves."""
        agent.send_signal(signal.SIGTERM)
        agent.wait()

    def assert_holds(self, worker, data):
        self.assertEqual(worker.ask("read", 0, len(data)), f"{len(data)} {hashlib.sha256(data).hexdigest()}", f"host {worker.host}")

    def assert_refused(self, host, first, second, before=()):
        said = self.refused(host, "ls", before=before, within_s=40)
        for part in ("two machines have the host name h1", self.machine(first), self.machine(second), "stripewise host forget h1"):
            self.assertIn(part, said)

    def machine(self, host):
        return self.bed.run(host, ["cat", "/etc/machine-id"]).stdout.strip()

    def restripe_in_vain(self, host, name):
        """Asks for a move, which waits; returns it."""
        move = self.bed.start(host, [STRIPEWISE, "restripe", self.path(name), "--layout", "c 256KiB"], env=self.cluster.env, stdout=subprocess.DEVNULL)
        self.addCleanup(move.kill)
        return move


class OnDirectories(OnHosts):
    def test_the_name_of_a_silent_host_is_not_given_to_another_machine(self):
        agent = self.agent(0)
        first, other = self.worker(1, "named"), self.worker(3, "named")
        self.assertEqual(first.ask("write", 0, SIZE, 1), "ok")
        self.assertEqual(first.ask("sync"), "ok")
        self.assert_holds(other, data_of(1))
        self.bed.cut(1)
        self.wait("the host is silent", lambda: not self.hosts(0)["h1"]["answers"])
        self.assert_refused(2, 1, 2, before=NAMED_H1)
        self.assertIn("two machines have the host name h1", self.cluster.log_of(0))
        self.assertEqual(self.hosts(0)["h1"]["files"], 1)
        self.assertEqual(other.ask("truncate", REGION), f"error {errno.EBUSY}")
        # Nor by the next master, who knows the hosts from the table.
        self.end(agent)
        self.wait("another master", lambda: self.hosts(3)["h3"]["is_master"])
        self.assert_refused(2, 1, 2, before=NAMED_H1)
        self.assertIsNone(self.hosts(3)["h1"].get("files"), "it may have any")
        self.assertEqual(other.ask("truncate", REGION), f"error {errno.EBUSY}")
        move = self.restripe_in_vain(3, "named")
        self.assertEqual(first.ask("write", 0, SIZE, 2), "ok")
        self.assert_holds(other, data_of(2))
        self.assertIsNone(move.poll(), "a file that a silent host has open moves")
        self.bed.restore(1)
        self.wait("the host is back", lambda: self.hosts(3)["h1"]["answers"])
        self.assertEqual(move.wait(timeout=180), 0)
        self.assertEqual(first.ask("write", 1000, 2000, 3), "ok")
        expected = bytearray(data_of(2))
        expected[1000:3000] = data_of(3, 2000)
        for worker in (first, other):
            self.assert_holds(worker, bytes(expected))
        # When it has left, another may have the name.
        self.assertEqual(first.end(), 0)
        self.wait("it has left", lambda: "h1" not in self.hosts(3))
        done = self.attempt(2, "ls", before=NAMED_H1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(other.end(), 0)
        self.assertEqual(self.cluster.stripewise(3, "check"), "")

    def test_a_name_is_free_again_when_its_host_is_forgotten_and_who_had_it_learns_that(self):
        self.agent(0)
        first, other = self.worker(1, "forgotten"), self.worker(3, "forgotten")
        self.assertEqual(first.ask("write", 0, SIZE, 1), "ok")
        self.assertEqual(first.ask("sync"), "ok")
        self.bed.cut(1)
        self.wait("the host is silent", lambda: not self.hosts(0)["h1"]["answers"])
        self.cluster.stripewise(0, "host", "forget", "h1")
        # It is there, and gone again, before the first comes back.
        done = self.attempt(2, "run", "--", "sha256sum", self.path("forgotten"), before=NAMED_H1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.cluster.stripewise(0, "restripe", self.path("forgotten"), "--layout", "c 256KiB")
        self.assertEqual(other.ask("write", 0, SIZE, 2), "ok")
        self.bed.restore(1)
        self.wait("the host is back", lambda: self.hosts(0).get("h1", {}).get("answers"))
        # What it had open was moved without it.
        self.wait("it learns that", lambda: first.ask("read", 0, SIZE) == f"error {errno.EIO}")
        self.assertEqual(first.ask("write", 0, SIZE, 3), f"error {errno.EIO}")
        again = self.worker(1, "forgotten")
        for worker in (again, other):
            self.assert_holds(worker, data_of(2))
            self.assertEqual(worker.end(), 0)
        self.assertEqual(self.cluster.stripewise(0, "check"), "")

    def test_a_host_comes_back_under_its_name_after_a_crash_and_after_a_reboot(self):
        self.agent(0)
        worker = self.worker(1, "crashed")
        self.assertEqual(worker.ask("write", 0, SIZE, 1), "ok")
        self.assertEqual(worker.ask("sync"), "ok")
        pid = self.cluster.agent_of(1)
        self.bed.run(1, ["kill", "-KILL", pid], check=True)
        # The next agent there has the state directory.
        agent = self.agent(1)
        self.assert_holds(worker, data_of(1))
        self.assertEqual(self.hosts(0)["h1"]["files"], 1)
        self.bed.kill_host(1)
        agent.wait()
        worker.process.wait()
        self.bed.boot(1)
        done = self.attempt(1, "ls")
        self.assertEqual(done.returncode, 0, done.stderr)
        # It has nothing open, and ends.
        self.wait("it has left", lambda: "h1" not in self.hosts(0))
        self.cluster.stripewise(0, "restripe", self.path("crashed"), "--layout", "c 256KiB")

    def test_another_machine_does_not_become_master_under_the_name_of_a_host_that_is_down(self):
        agent = self.agent(0)
        worker = self.worker(1, "down")
        self.assertEqual(worker.ask("write", 0, SIZE, 1), "ok")
        self.assertEqual(worker.ask("sync"), "ok")
        self.bed.kill_host(1)
        worker.process.wait()
        self.end(agent)
        said = self.refused(2, "ls", before=NAMED_H1, within_s=40)
        for part in ("two machines have the host name h1", self.machine(2), "stripewise host forget h1"):
            self.assertIn(part, said)
        self.agent(0)
        self.cluster.stripewise(0, "host", "forget", "h1")
        done = self.attempt(2, "ls", before=NAMED_H1)
        self.assertEqual(done.returncode, 0, done.stderr)


class Containers(OnHosts):
    def contained(self, host, name):
        """A program in a container of its own; returns it with a process there, as the host numbers it."""
        words = [*CONTAINED, STRIPEWISE, "run", "--", sys.executable, "-c", WORKER, self.path(name)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        worker = object.__new__(Worker)
        worker.host, worker.process = host, self.bed.start(host, words, env=self.cluster.env, **pipes)
        self.addCleanup(worker.process.kill)
        pid = worker.hear()
        self.assertEqual(worker.ask("open"), "ok")
        return worker, pid

    def test_a_second_container_with_the_name_of_the_first_is_refused_while_that_may_have_files_open(self):
        self.agent(0)
        other = self.worker(3, "contained")
        first, pid = self.contained(1, "contained")
        self.assertEqual(first.ask("write", 0, SIZE, 1), "ok")

        def assert_refused():
            said = self.refused(1, "ls", before=CONTAINED, within_s=40)
            for part in ("two agents of one machine have the host name h1", "stripewise host forget h1"):
                self.assertIn(part, said)

        assert_refused()
        # The first takes part in what others do.
        self.assertEqual(self.hosts(0)["h1"]["files"], 1)
        for seed in (2, 3, 4):
            self.cluster.stripewise(0, "restripe", self.path("contained"), "--layout", ("b 256KiB", "c 256KiB")[seed % 2])
            self.assertEqual(first.ask("write", 0, SIZE, seed), "ok")
            for worker in (first, other):
                self.assert_holds(worker, data_of(seed))
        # Its agent is killed; the program goes on.
        self.bed.run(1, ["kill", "-KILL", pid], check=True)
        self.wait("the agent is gone", lambda: not self.hosts(0)["h1"]["answers"])
        assert_refused()
        self.assertEqual(other.ask("truncate", REGION), f"error {errno.EBUSY}")
        self.assertEqual(self.hosts(0)["h1"]["files"], 1)


class OnPools(OnHosts):
    """Where servers can shut a silent host out, nobody waits for a person."""

    def cluster_of(self):
        ceph = self.enterContext(self.bed.ceph("--osds", "4"))
        return Cluster(self.bed, "--rados", ceph["pools"][3], "--conf", ceph["conf"], ceph=ceph, host_timeout_s=10)

    def test_a_silent_host_is_shut_out_when_another_machine_has_its_name(self):
        self.agent(0)
        first, other = self.worker(1, "pooled"), self.worker(3, "pooled")
        self.assertEqual(first.ask("write", 0, SIZE, 1), "ok")
        self.assertEqual(first.ask("sync"), "ok")
        self.assert_refused(2, 1, 2, before=NAMED_H1)
        self.bed.part(1)
        self.wait("the host is silent", lambda: self.hosts(0)["h1"]["is_silent"])
        done = self.attempt(2, "run", "--", "sha256sum", self.path("pooled"), before=NAMED_H1)
        self.assertEqual(done.stdout.split()[:1], [hashlib.sha256(data_of(1)).hexdigest()], done.stderr)
        self.assertEqual(other.ask("truncate", REGION), "ok")
        self.bed.rejoin(1)
        self.wait("the host is back", lambda: self.hosts(0).get("h1", {}).get("answers"))
        self.wait("it learns that", lambda: first.ask("write", 0, SIZE, 3) == f"error {errno.EIO}")
        self.assert_holds(other, data_of(1)[:REGION])
        self.assertEqual(other.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
