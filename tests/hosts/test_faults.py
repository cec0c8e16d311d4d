#!/usr/bin/env python3
"""Bad input and faults of clusters that several hosts share: each is named with its remedy, or does no harm. docs/hosts.md lists them all with their tests.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_faults.py [NAME...]

Exit status 0 where hosts, an etcd or a Ceph cannot be had: the tests skip then, and say why.
"""

import base64
import errno
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
from clusters import REGION, STRIPEWISE, UNHURRIED_SECONDS, WAIT_SECONDS, Cluster  # noqa: E402
from test_sharing import Worker  # noqa: E402

# Of the etcd: more than these tests need.
QUOTA_BYTES = 16 << 20
# `host_timeout_s` where cluster.toml does not say.
HOST_TIMEOUT_S = 5

# Starts what follows as the process of this number.
WITH_PID = r"""
import os, sys
wanted = int(sys.argv[1])
for _ in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(wanted - 1))
    child = os.fork()
    if child == 0:
        if os.getpid() != wanted:
            os._exit(0)
        os.execvp(sys.argv[2], sys.argv[2:])
    if child == wanted:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.waitpid(child, 0)
sys.exit("the number is taken all the time")
"""

# Asks etcd of this URL at this path what standard input says, and prints the answer.
ETCD = r"""
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], sys.stdin.buffer.read()), timeout=30).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""

# Holds a lock of the whole file while it writes, and says so.
LOCKER = r"""
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(descriptor, fcntl.LOCK_EX)
os.pwrite(descriptor, b"held", 0)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""

# Writes the whole file all the time, so many bytes.
WRITES = r"""
import os, sys
descriptor, data = os.open(sys.argv[1], os.O_RDWR), os.urandom(int(sys.argv[2]))
print(os.getpid(), flush=True)
while True:
    os.pwrite(descriptor, data, 0)
"""


class OnHosts(unittest.TestCase):
    def wait(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not (value := condition()):
            self.assertLess(time.monotonic(), end, f"{what}: not within {WAIT_SECONDS} s")
            time.sleep(0.02)
        return value

    def agent(self, host, environment=None):
        """An agent of the host that stays."""
        process = self.bed.start(host, [STRIPEWISE, "broker"], env=self.cluster.env | (environment or {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # By a signal at which it leaves the cluster: of a host that was killed nobody knows what it has open.
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        # It says before what it put right. One that was killed a moment ago may still be there: then it waits for the end of that.
        waits = any("serving" in line or "waiting to follow" in line for line in process.stdout)
        self.assertTrue(waits, "it ended before it served")
        self.wait("an agent of the host", lambda: self.cluster.agent_of(host))
        return process

    def worker(self, host, name):
        worker = Worker(self.cluster, host, str(self.cluster.directory / name))
        self.addCleanup(worker.process.kill)
        self.assertEqual(worker.ask("open"), "ok")
        return worker

    def refused(self, host, *words, env=None, before=(), within_s=WAIT_SECONDS):
        begun = time.monotonic()
        done = self.bed.run(host, [*before, STRIPEWISE, *words], env=env or self.cluster.env, timeout=WAIT_SECONDS)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertLess(time.monotonic() - begun, within_s, "a refusal that nothing will change is given at once")
        return done.stderr

    def hosts(self, host):
        return {found["name"]: found for found in json.loads(self.cluster.stripewise(host, "host", "list", "--json"))["hosts"]}


class BadInput(OnHosts):
    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            cls.bed.etcd(QUOTA_BYTES)
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def test_a_host_with_another_key_is_refused_and_logged_and_learns_nothing(self):
        self.agent(0)
        path = self.cluster.directory / "secret"
        self.cluster.run(0, "sh", "-c", f"echo secret > {path}")
        common = pathlib.Path(self.bed.common)
        wrong = common / "wrong"
        wrong.mkdir()
        shutil.copy(common / "cluster.toml", wrong)
        other = common / "other"
        (other / "a").mkdir(parents=True)
        key = common / "cluster.key"
        # A key of another cluster.
        made = self.bed.run(0, [STRIPEWISE, "init", "--etcd", self.bed.etcd(), "--server", f"a=hdd:{other / 'a'}", "--state", "/dev/shm/other"], cwd=other)
        self.assertEqual(made.returncode, 0, made.stderr)
        shutil.copy(other / "cluster.key", wrong)
        said = self.refused(3, "run", "--", "cat", str(path), env=self.cluster.env | {"STRIPEWISE_CLUSTER": str(wrong / "cluster.toml")}, within_s=40)
        self.assertIn("copy the key file of the cluster to every host", said)
        self.assertNotIn("secret", said)
        self.assertIn("a connection was refused", self.cluster.log_of(0))
        self.assertIn(self.bed.addresses[3], self.cluster.log_of(0))
        shutil.copy(key, wrong)
        read = self.bed.run(3, [STRIPEWISE, "run", "--", "cat", str(path)], env=self.cluster.env)
        self.assertEqual(read.stdout, "secret\n", read.stderr)

    def test_a_name_that_two_hosts_have_is_refused_with_both(self):
        self.agent(0)
        self.agent(1)
        named = ["unshare", "--uts", "sh", "-c", 'hostname h1 && exec "$@"', "sh"]
        said = self.refused(2, "ls", before=named, within_s=40)
        self.assertIn("two machines have the host name h1", said)
        self.assertIn("give each host a name of its own", said)
        # The first goes on.
        self.assertTrue(self.hosts(1)["h1"]["answers"])

    def etcd(self, path, **request):
        done = self.bed.run(None, [sys.executable, "-c", ETCD, f"{self.bed.etcd()}/v3/{path}"], input=json.dumps(request))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_an_etcd_without_space_is_named_with_the_remedy_and_nothing_is_lost(self):
        agents = [self.agent(0), self.agent(1)]
        first, second = self.worker(0, "short-of-space"), self.worker(1, "short-of-space")
        self.assertEqual(first.ask("write", 0, 50_000, 1), "ok")
        self.assertEqual(first.ask("sync"), "ok")
        # Another user of the etcd fills it.
        key = lambda number: base64.b64encode(f"filler{number}".encode()).decode()  # noqa: E731
        value = base64.b64encode(os.urandom(1 << 20)).decode()
        for number in range(2 * QUOTA_BYTES >> 20):
            said = self.etcd("kv/put", key=key(number), value=value)
            if "error" in said:
                break
        self.assertIn("space exceeded", said["error"])
        self.addCleanup(self.end_of_shortage, key)
        for host in (0, 1):
            done = self.bed.run(host, [STRIPEWISE, "run", "--", "sh", "-c", f"echo new > {self.cluster.directory}/unmade{host}"], env=self.cluster.env)
            self.assertIn("No space left on device", done.stderr, f"host {host}")
            said = self.refused(host, "restripe", str(self.cluster.directory / "short-of-space"), "--layout", "c 256KiB")
            for part in (self.bed.etcd(), "NOSPACE", "etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm"):
                self.assertIn(part, said, f"host {host}")
        # What is placed is written and read all the same.
        self.assertEqual(second.ask("write", 20_000, 50_000, 2), "ok")
        self.end_of_shortage(key)
        model = random.Random(1).randbytes(50_000)[:20_000] + random.Random(2).randbytes(50_000)
        self.cluster.stripewise(1, "restripe", str(self.cluster.directory / "short-of-space"), "--layout", "c 256KiB")
        self.assertEqual(second.ask("write", 2 * REGION, 1000, 3), "ok")
        for worker in (first, second):
            self.assertEqual(worker.ask("read", 0, len(model)), f"{len(model)} {hashlib.sha256(model).hexdigest()}")
            self.assertEqual(worker.ask("size"), str(2 * REGION + 1000))
            self.assertEqual(worker.end(), 0)
        self.assertNotIn("unmade", self.cluster.stripewise(0, "ls"))
        self.assertEqual(self.cluster.stripewise(1, "check"), "")
        self.assertTrue(all(agent.poll() is None for agent in agents))

    def end_of_shortage(self, key):
        """As the error says: what is not needed is removed, and etcd compacted, defragmented and disarmed."""
        end = base64.b64encode(b"filles").decode()
        revision = self.etcd("kv/deleterange", key=base64.b64encode(b"filler").decode(), range_end=end)["header"]["revision"]
        self.etcd("kv/compaction", revision=revision, physical=True)
        self.etcd("maintenance/defragment")
        for alarm in self.etcd("maintenance/alarm", action="GET").get("alarms", []):
            self.etcd("maintenance/alarm", action="DEACTIVATE", **alarm)

    def test_a_master_that_was_stopped_finds_that_it_is_none_and_follows_the_next(self):
        agents = [self.agent(host) for host in (0, 1)]
        self.assertTrue(self.hosts(1)["h0"]["is_master"])
        worker, path = self.worker(0, "deposed"), str(self.cluster.directory / "made-by-a-deposed-master")
        self.assertEqual(worker.ask("write", 0, 50_000, 1), "ok")
        pid = self.cluster.agent_of(0)
        self.bed.run(0, ["kill", "-STOP", pid])
        self.addCleanup(self.bed.run, 0, ["kill", "-CONT", pid])
        # What it is asked while it stands still is what it does first, before it knows anything.
        made = self.bed.start(0, [STRIPEWISE, "run", "--", "sh", "-c", f"echo made > {path}"], env=self.cluster.env)
        self.addCleanup(made.kill)
        self.wait("another master", lambda: self.hosts(1)["h1"]["is_master"])
        self.bed.run(0, ["kill", "-CONT", pid])
        self.assertEqual(made.wait(WAIT_SECONDS), 0)
        self.wait("it follows", lambda: self.hosts(1)["h0"]["answers"])
        # Of the same process: its role ended, and it took another.
        self.assertEqual(self.cluster.agent_of(0), pid)
        self.assertIn("the role of this host is over", self.cluster.log_of(0))
        follows = "this host follows the master master=h1"
        self.wait("it says so", lambda: follows in self.cluster.log_of(0).split("the role of this host is over")[-1])
        for host in (0, 1):
            self.assertEqual([name for name, found in self.hosts(host).items() if found["is_master"]], ["h1"])
            self.assertEqual(self.cluster.run(host, "cat", path), "made\n")
        self.assertEqual(self.cluster.stripewise(1, "ls").count("made-by-a-deposed-master"), 1)
        self.assertEqual(worker.ask("write", 3 * REGION, 1000, 2), "ok")
        self.assertEqual(worker.ask("size"), str(3 * REGION + 1000))
        self.assertEqual(worker.end(), 0)
        self.assertTrue(all(agent.poll() is None for agent in agents))
        self.assertEqual(self.cluster.stripewise(0, "check"), "")

    def test_a_program_that_was_stopped_inside_a_write_holds_up_no_other_host(self):
        """Whether it runs on the master's host or on another: the truncation that would wait for it is refused instead."""
        agents = [self.agent(host) for host in (0, 1)]
        master = next(name for name, found in self.hosts(0).items() if found["is_master"])
        stopped_hosts = sorted((0, 1), key=lambda host: self.bed.names[host] != master)
        whole = 8 * REGION
        for host in stopped_hosts:
            name = f"stopped-on-{host}"
            writer, truncating = self.worker(2, name), self.worker(3, name)
            self.assertEqual(writer.ask("write", 0, whole, 1), "ok")
            words = [STRIPEWISE, "run", "--", sys.executable, "-c", WRITES, str(self.cluster.directory / name), str(whole)]
            program = self.bed.start(host, words, env=self.cluster.env, stdout=subprocess.PIPE, text=True)
            self.addCleanup(program.kill)
            pid = program.stdout.readline().strip()
            for attempt in range(50):
                self.wait("the file is whole", lambda: truncating.ask("size") == str(whole))
                self.bed.run(host, ["kill", "-STOP", pid], check=True)
                truncating.say("truncate", 3 * REGION)
                took = 0.0
                hearing = threading.Thread(target=lambda: setattr(truncating, "heard", truncating.hear()))
                hearing.start()
                while hearing.is_alive():
                    begun = time.monotonic()
                    self.assertEqual(writer.ask("write", 0, 1000, attempt), "ok")
                    took = max(took, time.monotonic() - begun)
                if truncating.heard != "ok":
                    break
                # It stood between two writes.
                self.bed.run(host, ["kill", "-CONT", pid], check=True)
            self.assertEqual(truncating.heard, f"error {errno.EBUSY}")
            print(f"stopped on host {host}: others waited for {took:.3f} s at most", file=sys.stderr)
            self.assertLess(took, HOST_TIMEOUT_S, f"host {host}: a write into a placed region waits for a program that was stopped")
            self.bed.run(host, ["kill", "-CONT", pid], check=True)
            self.assertEqual(truncating.ask("truncate", 3 * REGION), "ok")
            self.bed.run(host, ["kill", "-KILL", pid], check=True)
            program.wait(WAIT_SECONDS)
            for worker in (writer, truncating):
                self.assertEqual(worker.end(), 0)
        self.assertTrue(all(agent.poll() is None for agent in agents))
        self.assertEqual(self.cluster.stripewise(0, "check"), "")

    def test_a_master_that_no_host_reaches_gives_the_role_to_one_that_others_reach(self):
        agents = [self.agent(host) for host in (0, 1, 2)]
        self.assertTrue(self.hosts(1)["h0"]["is_master"])
        cut_off, worker = self.worker(0, "cut-off"), self.worker(1, "cut-off")
        self.assertEqual(cut_off.ask("write", 0, 50_000, 1), "ok")
        # It reaches the etcd and would stay master for ever.
        self.bed.part(0)
        try:
            self.wait("another master", lambda: any(found["is_master"] for name, found in self.hosts(1).items() if name != "h0"))
            self.assertEqual(worker.ask("write", 2 * REGION, 1000, 2), "ok")
            self.assertEqual(cut_off.ask("write", 10_000, 1000, 3), "ok")
            self.assertIn("no other host is heard any more", self.cluster.log_of(0))
        finally:
            self.bed.rejoin(0)
        self.wait("it follows", lambda: self.hosts(1)["h0"]["answers"])
        data = bytearray(random.Random(1).randbytes(50_000))
        data[10_000:11_000] = random.Random(3).randbytes(1000)
        for reader in (cut_off, worker):
            self.assertEqual(reader.ask("size"), str(2 * REGION + 1000))
            self.assertEqual(reader.ask("read", 0, len(data)), f"{len(data)} {hashlib.sha256(data).hexdigest()}")
            self.assertEqual(reader.end(), 0)
        self.assertTrue(all(agent.poll() is None for agent in agents))
        self.assertEqual(self.cluster.stripewise(0, "check"), "")

    def test_processes_of_one_number_on_all_hosts_are_not_taken_for_each_other(self):
        path = str(self.cluster.directory / "same-numbers")
        self.cluster.run(0, "truncate", "-s", str(3 * REGION), path)
        wanted, workers = "23456", []
        for host in range(4):
            worker = Worker(self.cluster, host, path, before=[sys.executable, "-c", WITH_PID, wanted])
            self.addCleanup(worker.process.kill)
            workers.append(worker)
            self.assertEqual(worker.ask("open"), "ok")
        for turn in range(3):
            for host, worker in enumerate(workers):
                self.assertEqual(worker.ask("write", (turn * 4 + host) * 50_000, 50_000, turn * 4 + host), "ok")
        # The death of one is not that of the others, whatever it had open.
        killed = self.bed.run(1, ["kill", "-KILL", wanted])
        self.assertEqual(killed.returncode, 0, killed.stderr)
        self.cluster.stripewise(0, "restripe", path, "--layout", "c 256KiB")
        expected = b"".join(random.Random(number).randbytes(50_000) for number in range(12))
        for host in (0, 2, 3):
            self.assertEqual(workers[host].ask("read", 0, len(expected)), f"{len(expected)} {hashlib.sha256(expected).hexdigest()}")
            self.assertEqual(self.bed.run(host, ["kill", "-0", wanted]).returncode, 0)
        # Nor is a lock of one another's.
        locker = self.bed.start(
            1, [STRIPEWISE, "run", "--", sys.executable, "-c", WITH_PID, wanted, sys.executable, "-c", LOCKER, path], env=self.cluster.env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.addCleanup(locker.kill)
        self.assertEqual(locker.stdout.readline().strip(), wanted)
        tried = "import fcntl, os, sys; fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        done = self.bed.run(2, [STRIPEWISE, "run", "--", sys.executable, "-c", tried, path], env=self.cluster.env)
        self.assertIn("BlockingIOError", done.stderr)
        locker.communicate("\n")

    def job(self, hosts, name):
        """A program on each of these hosts that writes all the time, in a session of its own as a scheduler starts it."""
        path = str(self.cluster.directory / name)
        script = (
            "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644); gone = os.open(sys.argv[1] + sys.argv[2], os.O_RDWR | os.O_CREAT);"
            "os.pwrite(gone, bytes(100_000), 0); os.unlink(sys.argv[1] + sys.argv[2]); os.pwrite(fd, b'x' * 4096, int(sys.argv[2]) << 20);"
            "os.pwrite(fd, b'x' * 4096, (int(sys.argv[2]) << 20) + 4096); print(os.getpid(), flush=True)\n"
            "while True: os.pwrite(fd, b'x' * 4096, (int(sys.argv[2]) << 20) + 4096)"
        )
        job = []
        for host in hosts:
            argv = [STRIPEWISE, "run", "--", sys.executable, "-c", script, path, str(host)]
            process = self.bed.start(host, argv, env=self.cluster.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
            self.addCleanup(process.stdout.close)
            job.append(process)
        return path, job, [process.stdout.readline().strip() for process in job]

    def all_gone(self, path, hosts, before):
        """Nothing that a job wrote is lost, and nothing of it is in the way of the next, which begins on the same hosts. `before`: what objects held before it."""
        # Each host's agent says what its programs made of the size.
        for host in hosts:
            if not self.cluster.agent_of(host):
                self.agent(host)
        for host in hosts:
            size = self.cluster.run(host, "stat", "-c", "%s", path)
            self.assertEqual(int(size), (max(hosts) << 20) + 8192, f"host {host}")
        self.cluster.stripewise(hosts[0], "restripe", path, "--layout", "c 256KiB")
        self.cluster.run(hosts[-1], "truncate", "-s", "5000", path)
        self.assertEqual(self.cluster.run(hosts[0], "head", "-c", "5000", path), "\0" * 5000)
        self.cluster.run(hosts[0], "rm", path)
        # With what had no name any more.
        self.wait("what the job wrote is freed", lambda: self.cluster.object_bytes() == before)
        # Nor does any host count as one that has something open.
        self.wait("all hosts have closed all", lambda: not any(found["files"] for found in self.hosts(hosts[0]).values()))
        for host in hosts:
            self.assertTrue(self.hosts(hosts[0])[self.bed.names[host]]["answers"])

    def test_a_job_that_the_scheduler_killed_leaves_nothing(self):
        hosts, before = (1, 2, 3), self.cluster.object_bytes()
        path, job, programs = self.job(hosts, "killed")
        for host, process, program in zip(hosts, job, programs):
            process.kill()
            killed = self.bed.run(host, ["kill", "-KILL", program])
            self.assertEqual(killed.returncode, 0, killed.stderr)
            process.wait()
        self.all_gone(path, hosts, before)

    def test_a_job_that_the_scheduler_ended_leaves_its_hosts_at_once(self):
        hosts, before = (1, 2, 3), self.cluster.object_bytes()
        self.agent(0)
        path, job, _ = self.job(hosts, "ended")
        self.assertEqual(set(self.hosts(0)), {"h0", "h1", "h2", "h3"})
        for process in job:
            process.send_signal(signal.SIGTERM)
        for process in job:
            process.wait(WAIT_SECONDS)
        self.wait("the hosts leave", lambda: set(self.hosts(0)) == {"h0"})
        self.all_gone(path, (0, *hosts), before)


class Clocks(OnHosts):
    """Two hosts whose clocks are an hour off, one ahead and one behind, on a Ceph with keys."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            ceph = cls.enterClassContext(cls.bed.ceph("--osds", "4", "--auth"))
            cls.cluster = Cluster(cls.bed, "--rados", ceph["pools"][3], "--conf", ceph["conf"], ceph=ceph, host_timeout_s=UNHURRIED_SECONDS)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        cls.shim = pathlib.Path(cls.bed.common) / "clock.so"
        subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", cls.shim, HERE / "clock.c"], check=True)

    def off(self, host):
        """What the environment of such a host has besides."""
        seconds = {1: 3600, 2: -3600}.get(host)
        return {} if seconds is None else {"LD_PRELOAD": str(self.shim), "CLOCK_OFF_SECONDS": str(seconds)}

    def test_hosts_whose_clocks_are_an_hour_apart_share_a_file_and_follow_each_other(self):
        times = [int(self.bed.run(host, ["date", "+%s"], env=os.environ | self.off(host)).stdout) for host in (0, 1, 2)]
        self.assertAlmostEqual(times[1] - times[0], 3600, delta=60)
        self.assertAlmostEqual(times[0] - times[2], 3600, delta=60)
        agents = [self.agent(host, self.off(host)) for host in (1, 2, 0)]
        path, workers = str(self.cluster.directory / "clocks"), []
        for host in (1, 2, 0):
            worker = Worker(self.cluster, host, path, self.off(host))
            self.addCleanup(worker.process.kill)
            self.assertEqual(worker.ask("open"), "ok")
            workers.append(worker)
        number, model = 0, bytearray(3 * REGION)
        # Each is master once: the one whose clock is ahead, the one whose is behind, and the right one.
        for turn in range(3):
            for layout in ("c 256KiB", "a..c 64KiB"):
                for worker in workers[turn:]:
                    number += 1
                    at = number * 40_000
                    self.assertEqual(worker.ask("write", at, 50_000, number), "ok")
                    model[at : at + 50_000] = random.Random(number).randbytes(50_000)
                self.cluster.stripewise(3, "restripe", path, "--layout", layout)
            self.assertEqual(workers[turn].ask("sync"), "ok")
            del model[at + 50_000 :]
            for worker in workers[turn:]:
                whole = f"{len(model)} {hashlib.sha256(model).hexdigest()}"
                self.assertEqual(worker.ask("read", 0, len(model) + 1), whole)
            model.extend(bytes(3 * REGION))
            self.assertEqual(workers[turn].end(), 0)
            # It is lost, and followed when its time is over, which is not an hour.
            begun = time.monotonic()
            self.bed.kill_host((1, 2, 0)[turn])
            agents[turn].wait()
            if turn < 2:
                other = (2, 0)[turn]
                self.assertIn(self.bed.names[other], self.hosts(other))
                self.assertLess(time.monotonic() - begun, 300)


class OsdAndMaster(OnHosts):
    """An OSD is down when the master's host is lost. BlueStore keeps what it acknowledged when it is killed."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=3))
            cls.ceph = cls.enterClassContext(cls.bed.ceph("--osds", "4", "--store", "bluestore"))
            cls.cluster = Cluster(cls.bed, "--rados", cls.ceph["pools"][3], "--conf", cls.ceph["conf"], ceph=cls.ceph, host_timeout_s=UNHURRIED_SECONDS)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def on(self, server, host):
        """A program on the host with a file of one region on this server."""
        worker = self.worker(host, f"{server}-{host}")
        self.assertEqual(worker.ask("write", 0, 300_000, 1), "ok")
        self.cluster.stripewise(0, "restripe", str(self.cluster.directory / f"{server}-{host}"), "--layout", f"{server} 1MiB")
        # It knows the new place.
        self.assertEqual(worker.ask("write", 0, 300_000, 1), "ok")
        return worker

    def test_hosts_that_wait_for_an_osd_take_part_under_the_next_master(self):
        """Every host that is left has a write under way on the OSD."""
        agents = [self.agent(host) for host in (0, 1, 2)]
        self.assertTrue(self.hosts(1)["h0"]["is_master"])
        waiting, others = ({host: self.on(server, host) for host in (1, 2)} for server in "ac")
        dying = self.on("a", 0)
        self.ceph.order("kill 0")
        for worker in (dying, *waiting.values()):
            worker.say("write", 100_000, 100_000, 2)
        for host, worker in others.items():
            for _ in range(10):
                self.assertEqual(worker.ask("write", 0, 300_000, 3), "ok")
        self.bed.kill_host(0)
        agents[0].wait()
        begun, longest = time.monotonic(), 0.0
        listing = self.bed.start(1, [STRIPEWISE, "host", "list", "--json"], env=self.cluster.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(listing.stdout.close)
        self.addCleanup(listing.kill)
        # What is placed elsewhere is read and written all the time, also when a master is there that takes all hosts.
        while listing.poll() is None or time.monotonic() - begun < 2 * UNHURRIED_SECONDS:
            for host, worker in others.items():
                since = time.monotonic()
                self.assertEqual(worker.ask("write", 1000, 200_000, 4), "ok", f"host {host}: a write of what another server has")
                self.assertNotIn("error", worker.ask("read", 0, 300_000))
                longest = max(longest, time.monotonic() - since)
            self.assertLess(time.monotonic() - begun, WAIT_SECONDS, "there is no master")
        listed = {found["name"]: found for found in json.load(listing.stdout)["hosts"]}
        print(f"others waited for {longest:.3f} s at most", file=sys.stderr)
        self.assertLess(longest, UNHURRIED_SECONDS)
        self.assertTrue(any(listed[name]["is_master"] for name in ("h1", "h2")), listed)
        self.wait("both take part", lambda: all(found["is_master"] or found["answers"] for name, found in self.hosts(1).items() if name != "h0"))
        # What needs the master goes on, too.
        self.assertEqual(others[1].ask("write", REGION, 1000, 5), "ok")
        self.assertEqual(others[1].ask("size"), str(REGION + 1000))
        self.assertEqual(self.cluster.run(2, "sh", "-c", f"echo made > {self.cluster.directory}/made && cat {self.cluster.directory}/made"), "made\n")
        # A region that somebody is inside of is neither truncated nor moved.
        truncated = self.bed.run(2, [STRIPEWISE, "run", "--", "truncate", "-s", "10", str(self.cluster.directory / "a-1")], env=self.cluster.env, timeout=WAIT_SECONDS)
        self.assertNotEqual(truncated.returncode, 0)
        self.ceph.order("start 0")
        # It was placed without the server that was down.
        self.cluster.stripewise(1, "restripe", str(self.cluster.directory / "made"), "--layout", "c 1MiB")
        data = bytearray(random.Random(1).randbytes(300_000))
        data[100_000:200_000] = random.Random(2).randbytes(100_000)
        for host, worker in waiting.items():
            self.assertEqual(worker.hear(), "ok", f"host {host}: the write that waited for the OSD")
            self.assertEqual(worker.ask("read", 0, len(data)), f"{len(data)} {hashlib.sha256(data).hexdigest()}")
            found = self.cluster.run(3 - host, "sha256sum", str(self.cluster.directory / f"a-{host}"))
            self.assertEqual(found.split()[0], hashlib.sha256(data).hexdigest())
            self.assertEqual(worker.ask("write", 0, 1000, 6), "ok")
            self.cluster.stripewise(host, "restripe", str(self.cluster.directory / f"a-{host}"), "--layout", "c 256KiB")
        for worker in (*waiting.values(), *others.values()):
            self.assertEqual(worker.end(), 0)
        self.assertTrue(all(agent.poll() is None for agent in agents[1:]))
        self.assertEqual(self.cluster.stripewise(1, "check"), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
