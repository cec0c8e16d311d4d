#!/usr/bin/env python3
"""The daily work of a cluster on several hosts, each step on another one: tracing, planning, moving, following programs, emptying a server, checking. With
servers in directories and the table in a real etcd, and all of it in a real Ceph.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_operations.py [NAME...]

Exit status 0 where hosts, an etcd or a Ceph cannot be had: the tests skip then, and say why.
"""

import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
from clusters import UNHURRIED_SECONDS  # noqa: E402
from test_sharing import REGION, STRIPEWISE, WAIT_SECONDS, Cluster  # noqa: E402

REGIONS = 6
# Reads and writes back what it has read, all over the file.
COPYING = r"""
import os, sys
descriptor, size, seed = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2]), int(sys.argv[3])
for turn in range(100):
    at = (turn * 7919 + seed * 104729) * 4096 % (size - 65536)
    os.pwrite(descriptor, os.pread(descriptor, 65536, at), at)
os.fsync(descriptor)
"""
# Reads small pieces of the last region but one until standard input ends.
READING = r"""
import os, random, select, sys
descriptor, region = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    os.pread(descriptor, 4096, 4 * region + random.randrange(region // 4096) * 4096)
"""
# Does nothing until standard input ends; the agent of its host lives as long.
STAYING = "import sys; print('ready', flush=True); sys.stdin.read()"


def profile_of(cluster, servers):
    """Disks that seek and an SSD that does not: what a policy goes by must not depend on this machine's load."""
    line = lambda alpha: {"alpha_s": alpha, "beta_s_per_byte": 1e-8, "r2": 1.0, "spread": 0.0, "samples": 9}  # noqa: E731
    kinds = ("read_sequential", "read_random", "write_sequential", "write_random")
    of = lambda name, kind: {"name": name, "class": kind, **{key: line(0.01 if kind == "hdd" else 0.0001) for key in kinds}}  # noqa: E731
    network = {"e_s": 1e-5, "t_s_per_byte": 1e-9, "source": "given"}
    return {"version": 3, "cluster": cluster, "emulated": False, "measured_at": "2024-02-29T12:00:00Z",
            "servers": [of(*server) for server in servers], "network": network}


class OnDirectories(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def setUp(self):
        self.common = pathlib.Path(self.bed.common)
        self.path = str(self.cluster.directory / "data")

    def json(self, host, *words):
        return json.loads(self.cluster.stripewise(host, *words, "--json"))

    def start(self, host, *words):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        program = self.bed.start(host, [STRIPEWISE, *words], env=self.cluster.env, **pipes)
        self.addCleanup(program.kill)
        return program

    def run_program(self, host, script, *words):
        program = self.start(host, "run", "--", sys.executable, "-c", script, *words)
        self.assertEqual(program.stdout.readline(), "ready\n", f"host {host}")
        return program

    def end(self, program):
        _, complaints = program.communicate(timeout=WAIT_SECONDS)
        self.assertEqual(program.returncode, 0, complaints)

    def layout_of(self, host, region):
        stat = self.json(host, "stat", self.path)["files"][0]
        spans = stat["spans"]
        return next(span["layout"] for span in spans if span["first_region"] <= region < span["first_region"] + span["regions"])

    def until(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}\n{self.cluster.stripewise(0, 'ls')}{self.cluster.stripewise(0, 'host', 'list')}{self.cluster.log_of(0)}")
            time.sleep(0.1)

    def all_is_there(self):
        for host in range(4):
            found = self.cluster.run(host, "sha256sum", self.path).split()[0]
            self.assertEqual(found, self.sum, f"host {host}")

    def test_a_day_on_four_hosts(self):
        data = random.Random(3).randbytes(REGIONS * REGION)
        self.sum = hashlib.sha256(data).hexdigest()
        (self.common / "source").write_bytes(data)
        self.cluster.run(1, "cp", str(self.common / "source"), self.path)
        self.traces_and_plans()
        self.first_master = self.run_program(0, STAYING)
        self.follows_a_plan()
        self.follows_programs_of_all_hosts()
        self.empties_a_server_whoever_is_master()
        self.checks()
        self.all_is_there()

    def traces_and_plans(self):
        trace = str(self.common / "job.trace")
        programs = []
        for seed, host in enumerate((1, 2, 2, 3)):
            words = ["run", "--trace", trace, "--join", "--", sys.executable, "-c", COPYING, self.path, str(REGIONS * REGION), str(seed)]
            programs.append(self.start(host, *words))
        for program in programs:
            self.end(program)
        shown = self.json(0, "trace", "show", trace)
        self.assertEqual((shown["processes"], shown["processes_by_node"]), (4, {"h1": 1, "h2": 2, "h3": 1}))
        cluster = next(line.split('"')[1] for line in (self.common / "cluster.toml").read_text().splitlines() if line.startswith("id ="))
        profile = profile_of(cluster, [("a", "hdd"), ("b", "hdd"), ("c", "ssd")])
        (self.common / "profile.json").write_text(json.dumps(profile))
        plan = str(self.common / "plan.json")
        self.cluster.stripewise(3, "plan", trace, "--policy", "h2dp", "--least-size", "1MiB", "-o", plan)
        self.assertEqual(json.loads(pathlib.Path(plan).read_text())["concurrency"], {"processes": 4, "processes_per_node": 2})
        self.cluster.stripewise(1, "explain", plan)
        self.plan = plan
        self.replays(trace)

    def replays(self, trace):
        """On a host that follows the master, into files that are made in the managed directory and removed again."""
        into = str(self.cluster.directory / "replayed")
        self.bed.run(1, ["mkdir", into], check=True)
        replayed = self.json(3, "replay", trace, "--file", self.path, "--posix", "--redirect", "--directory", into)
        self.assertEqual((replayed["redirected"], replayed["files"], replayed["managed_files"]), (True, 1, 1), replayed)
        # The last close is told without waiting, and this is another host.
        self.until("files of the replay are still there", lambda: [file["path"] for file in self.json(0, "ls")["files"]] == [self.path])

    def follows_a_plan(self):
        self.cluster.stripewise(2, "restripe", self.path, "--layout", "a 64KiB")
        self.cluster.stripewise(3, "restripe", self.path, "--plan", self.plan, "--force")
        planned = self.layout_of(1, 0)
        self.assertNotEqual(planned, "a 64KiB")
        self.cluster.stripewise(0, "restripe", self.path, "--layout", "a 64KiB, b 64KiB")
        # A pause is for all hosts.
        self.cluster.stripewise(3, "migrate", "pause")
        self.assertTrue(self.json(1, "migrate", "status")["totals"]["paused"])
        self.cluster.stripewise(2, "migrate", "resume")
        daemon = self.start(1, "daemon", "--plan", self.plan, "--force")
        self.until("the daemon of a host that follows the master moves nothing", lambda: self.layout_of(2, 0) == planned)
        # Another host has none beside it, and a command there leaves moves to it.
        guide = self.json(3, "migrate", "status")["guide"]
        self.assertRegex(guide, r"^process \d+ on host h1$")
        other = self.bed.run(2, [STRIPEWISE, "daemon"], env=self.cluster.env, timeout=WAIT_SECONDS)
        self.assertEqual(other.returncode, 2)
        self.assertIn(guide, other.stderr)
        daemon.terminate()
        daemon.communicate(timeout=WAIT_SECONDS)

    def follows_programs_of_all_hosts(self):
        self.cluster.stripewise(2, "restripe", self.path, "--layout", "a 64KiB, b 64KiB")
        daemon = self.start(3, "daemon", "--online", "--window", "1s", "--policy", "h2dp")
        self.until("there is no daemon", lambda: self.json(1, "migrate", "status")["guide"])
        # None of them runs beside the daemon, and one beside the master.
        readers = [self.run_program(host, READING, self.path, str(REGION)) for host in (0, 1, 2)]
        seen = lambda: (self.json(3, "migrate", "status")["online"] or {}).get("window_requests", 0)  # noqa: E731
        self.until("the daemon sees no requests", lambda: seen() > 0)
        self.until("the region that hosts read stays on disks", lambda: self.layout_of(1, 4).startswith(("<0B,", "c ")))
        for reader in readers:
            self.end(reader)
        daemon.terminate()
        daemon.communicate(timeout=WAIT_SECONDS)

    def empties_a_server_whoever_is_master(self):
        self.cluster.stripewise(2, "restripe", self.path, "--layout", "a 64KiB, b 64KiB")
        self.cluster.stripewise(3, "evacuate", "b")
        # The host that was master then is not any more.
        self.end(self.first_master)
        self.second_master = self.run_program(2, STAYING)
        refused = self.bed.run(1, [STRIPEWISE, "restripe", self.path, "--layout", "b 64KiB"], env=self.cluster.env, timeout=WAIT_SECONDS)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("server b is drained", refused.stderr)
        self.cluster.run(0, "cp", str(self.common / "source"), self.path + "-2")
        servers = self.json(3, "stat", self.path + "-2")["files"][0]["servers"]
        self.assertEqual({server["name"] for server in servers if server["bytes"]}, {"a", "c"})
        self.cluster.stripewise(0, "evacuate", "b", "--undo")
        self.cluster.stripewise(1, "restripe", self.path, "--layout", "b 64KiB")

    def checks(self):
        # Made under one master, checked under another, whose mount has another device number.
        self.assertEqual(self.json(0, "check")["findings"], [])
        stub = pathlib.Path(self.bed.store) / "data" / "data-2"
        stub.unlink()
        found = self.bed.run(3, [STRIPEWISE, "check", "--json"], env=self.cluster.env, timeout=WAIT_SECONDS)
        self.assertEqual(found.returncode, 1)
        self.assertIn("data-2", json.loads(found.stdout)["findings"][0]["what"])
        self.cluster.stripewise(1, "check", "--repair")
        self.assertEqual(self.cluster.run(0, "sha256sum", self.path + "-2").split()[0], self.sum)
        # A person puts another file where the stub was; what was there gets a new name from another host.
        stub.unlink()
        stub.write_text("not it")
        found = self.bed.run(1, [STRIPEWISE, "check", "--json"], env=self.cluster.env, timeout=WAIT_SECONDS)
        self.assertEqual(found.returncode, 1, found.stderr)
        number = re.search(r"\b[0-9a-f]{16}\b", json.dumps(json.loads(found.stdout)["findings"]))[0]
        self.cluster.stripewise(3, "rescue", number, self.path + "-3")
        self.assertEqual(stub.read_text(), "not it")
        stub.unlink()
        for host in range(4):
            found = self.bed.run(host, [STRIPEWISE, "cat", self.path + "-3"], env=self.cluster.env, timeout=WAIT_SECONDS, text=False)
            self.assertEqual((found.returncode, hashlib.sha256(found.stdout).hexdigest()), (0, self.sum), found.stderr)
        self.cluster.stripewise(0, "rm", self.path + "-3")
        self.assertNotIn("data-", self.cluster.stripewise(3, "ls"))
        self.assertEqual(self.json(1, "check")["findings"], [])
        self.end(self.second_master)


class InPools(OnDirectories):
    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            ceph = cls.enterClassContext(cls.bed.ceph("--osds", "4"))
            cls.cluster = Cluster(cls.bed, "--rados", ceph["pools"][3], "--conf", ceph["conf"], ceph=ceph, host_timeout_s=UNHURRIED_SECONDS)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None


if __name__ == "__main__":
    unittest.main(verbosity=2)
