#!/usr/bin/env python3
"""Managed files that several hosts use at once, on the hosts of bed.py with the mapping table in a real etcd.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_sharing.py [NAME...]

Exit status 0 where hosts or an etcd cannot be had: the tests skip then, and say why.
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
import bed as beds  # noqa: E402
from clusters import REGION, STRIPEWISE, WAIT_SECONDS, Cluster, ToldByLogs  # noqa: E402

# Reads commands from standard input and answers each by one line.
WORKER = r"""
import hashlib, mmap, os, random, subprocess, sys
path, descriptor, mapped = sys.argv[1], None, None
for line in sys.stdin:
    word, *numbers = line.split()
    numbers = [int(number) for number in numbers]
    try:
        if word == "open":
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            answer = "ok"
        elif word == "close":
            os.close(descriptor)
            answer = "ok"
        elif word == "write":
            offset, length, seed = numbers
            data, done = random.Random(seed).randbytes(length), 0
            while done < length:
                done += os.pwrite(descriptor, data[done:], offset + done)
            answer = "ok"
        elif word == "read":
            offset, length = numbers
            data = b""
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
            answer = f"{len(data)} {hashlib.sha256(data).hexdigest()}"
        elif word == "size":
            answer = str(os.fstat(descriptor).st_size)
        elif word == "truncate":
            os.ftruncate(descriptor, numbers[0])
            answer = "ok"
        elif word == "sync":
            os.fsync(descriptor)
            answer = "ok"
        elif word == "map":
            mapped = mmap.mmap(descriptor, numbers[0])
            answer = "ok"
        elif word == "child":
            os.lseek(descriptor, 0, os.SEEK_SET)
            answer = subprocess.run(["wc", "-c"], stdin=descriptor, stdout=subprocess.PIPE, text=True).stdout.strip()
        elif word == "mapped":
            answer = hashlib.sha256(mapped[:]).hexdigest()
    except OSError as error:
        answer = f"error {error.errno}"
    print(answer, flush=True)
"""


class Worker:
    """A program on one host, under `stripewise run`."""

    def __init__(self, cluster, host, path, environment=None, before=(), redirected=True):
        """`before`: the words that start the program there, behind `stripewise run` if it is `redirected`."""
        argv = [*((STRIPEWISE, "run", "--") if redirected else ()), *before, sys.executable, "-c", WORKER, path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.host, self.process = host, cluster.bed.start(host, argv, env=cluster.env | (environment or {}), **pipes)

    def say(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the program on host {self.host} has ended ({self.process.wait()})")
        return line.strip()

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=WAIT_SECONDS)


class OnHosts(ToldByLogs, unittest.TestCase):
    """Four hosts with a cluster."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=4))
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def worker(self, host, name):
        worker = Worker(self.cluster, host, str(self.cluster.directory / name))
        self.addCleanup(worker.process.kill)
        self.assertEqual(worker.ask("open"), "ok")
        return worker

    def master(self, host):
        """An agent on the host, which is master. Those that tests before have left end by themselves first."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            agent = self.bed.start(host, [STRIPEWISE, "broker"], env=self.cluster.env, stderr=subprocess.DEVNULL)
            self.addCleanup(agent.wait, WAIT_SECONDS)
            self.addCleanup(agent.kill)
            hosts = json.loads(self.cluster.stripewise(host, "stat", "--cluster", "--json"))["hosts"]
            if any(known["name"] == f"h{host}" and known["is_master"] for known in hosts):
                return agent
            self.assertLess(time.monotonic(), end, f"host {host} does not become master: {hosts}")
            agent.terminate()
            agent.wait(WAIT_SECONDS)

    def mounted(self, host):
        """The path by which programs on the host see the directory as it is; no other host has that mount."""
        words = [STRIPEWISE, "mount", str(self.cluster.directory), "--at", "/tmp/mounted"]
        mount = self.bed.start(host, words, env=self.cluster.env, stdout=subprocess.PIPE, text=True)

        def end():
            mount.terminate()
            mount.communicate(timeout=WAIT_SECONDS)

        self.addCleanup(end)
        self.assertIn("is mounted at", mount.stdout.readline())
        return "/tmp/mounted"

    def is_master(self, host):
        """Whether the log of the host's agent says so last."""
        lines = [line for line in self.cluster.log_of(host).splitlines() if "broker started" in line or "broker stopped" in line]
        return bool(lines) and "started" in lines[-1]


class Sharing(OnHosts):
    def test_a_file_goes_from_host_to_host(self):
        path = str(self.cluster.directory / "handed")
        data = random.Random(1).randbytes(3 * REGION + 123)
        source = pathlib.Path(self.bed.common) / "source"
        source.write_bytes(data)
        self.cluster.run(1, "cp", str(source), path)
        self.assertGreaterEqual(self.cluster.object_bytes(), len(data), "it is on the servers")
        expected = hashlib.sha256(data).hexdigest()
        for host in (2, 0, 3, 1):
            self.assertEqual(self.cluster.run(host, "sha256sum", path).split()[0], expected, f"host {host}")
        self.assertIn(path, self.cluster.stripewise(3, "ls"))
        self.cluster.run(2, "mv", path, path + "-moved")
        self.cluster.run(3, "truncate", "-s", "1000", path + "-moved")
        self.assertEqual(
            self.cluster.run(0, "sha256sum", path + "-moved").split()[0], hashlib.sha256(data[:1000]).hexdigest()
        )
        self.cluster.run(1, "rm", path + "-moved")
        # The end of a removal is told without waiting, and this is another host.
        end = time.monotonic() + WAIT_SECONDS
        while "handed" in self.cluster.stripewise(2, "ls"):
            self.assertLess(time.monotonic(), end, "a removed file is listed")
        self.assertEqual(self.cluster.stripewise(0, "check"), "")

    def test_four_hosts_that_take_turns_are_a_vector_of_bytes(self):
        seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
        print(f"SEED={seed}", file=sys.stderr)
        choose, model = random.Random(seed), bytearray()
        workers = [self.worker(host, "model") for host in range(4)]
        for step in range(int(os.environ.get("STEPS", "400"))):
            worker = choose.choice(workers)
            what = choose.choices(("write", "read", "size", "truncate", "sync", "reopen"), (8, 8, 2, 1, 1, 1))[0]
            offset = choose.randrange(6 * REGION)
            length = choose.choice((1, 100, 4096, 70_000, REGION, 2 * REGION + 17))
            told = f"seed {seed}, step {step}: {what} {offset} {length} on host {worker.host}"
            if what == "write":
                number = choose.randrange(1 << 30)
                self.assertEqual(worker.ask("write", offset, length, number), "ok", told)
                model.extend(bytes(max(0, offset + length - len(model))))
                model[offset : offset + length] = random.Random(number).randbytes(length)
            elif what == "read":
                expected = bytes(model[offset : offset + length])
                found = worker.ask("read", offset, length)
                self.assertEqual(found, f"{len(expected)} {hashlib.sha256(expected).hexdigest()}", told)
            elif what == "size":
                self.assertEqual(worker.ask("size"), str(len(model)), told)
            elif what == "truncate":
                self.assertEqual(worker.ask("truncate", offset), "ok", told)
                del model[offset:]
                model.extend(bytes(offset - len(model)))
            elif what == "sync":
                self.assertEqual(worker.ask("sync"), "ok", told)
            else:
                self.assertEqual((worker.ask("close"), worker.ask("open")), ("ok", "ok"), told)
        for worker in workers:
            whole = f"{len(model)} {hashlib.sha256(model).hexdigest()}"
            self.assertEqual(worker.ask("read", 0, len(model) + 1), whole, f"seed {seed}, host {worker.host}")
            self.assertEqual(worker.end(), 0)

    def test_hosts_write_side_by_side_and_all_see_it(self):
        workers, block, blocks = [self.worker(host, "stripes") for host in range(4)], 10_007, 200
        for number in range(blocks):
            for rank, worker in enumerate(workers):
                worker.say("write", (number * 4 + rank) * block, block, number * 4 + rank)
            for worker in workers:
                self.assertEqual(worker.hear(), "ok")
        expected = b"".join(random.Random(number).randbytes(block) for number in range(4 * blocks))
        for worker in workers:
            self.assertEqual(worker.ask("sync"), "ok")
        for worker in workers:
            found = worker.ask("read", 0, len(expected) + 1)
            self.assertEqual(found, f"{len(expected)} {hashlib.sha256(expected).hexdigest()}", f"host {worker.host}")
            self.assertEqual(worker.end(), 0)

    def test_programs_on_the_mounts_of_two_hosts_see_what_the_other_host_writes(self):
        workers = [Worker(self.cluster, host, self.mounted(host) + "/mounts", redirected=False) for host in range(2)]
        for worker in workers:
            self.addCleanup(worker.process.kill)
        # The first makes it.
        self.assertEqual([worker.ask("open") for worker in workers], ["ok", "ok"])
        length = 70_001
        for number in range(20):
            writer, reader = workers[number % 2], workers[1 - number % 2]
            # Over the end, and then below it, where no message goes from host to host.
            for seed in (number, 100 + number):
                self.assertEqual(writer.ask("write", number * length, length, seed), "ok")
                written = hashlib.sha256(random.Random(seed).randbytes(length)).hexdigest()
                self.assertEqual(reader.ask("read", number * length, length), f"{length} {written}", f"write {number}")
            self.assertEqual(reader.ask("size"), str((number + 1) * length))
        self.assertEqual(workers[0].ask("write", 20 * length, 5, 1), "ok")
        self.assertEqual(workers[0].ask("close"), "ok")
        self.assertEqual(self.cluster.run(2, "stat", "-c", "%s", str(self.cluster.directory / "mounts")).strip(), str(20 * length + 5))
        # Mapped pages, of which no host hears, are read again within a second or so.
        self.assertEqual((workers[0].ask("open"), workers[1].ask("map", 8192)), ("ok", "ok"))
        before, written = workers[1].ask("mapped"), hashlib.sha256(random.Random(7).randbytes(8192)).hexdigest()
        self.assertNotEqual(before, written)
        self.assertEqual(workers[0].ask("write", 0, 8192, 7), "ok")
        end = time.monotonic() + WAIT_SECONDS
        while workers[1].ask("mapped") != written:
            self.assertLess(time.monotonic(), end, "mapped pages stay as they were")
        for worker in workers:
            self.assertEqual(worker.end(), 0)

    def test_another_host_becomes_master_and_nothing_is_lost(self):
        workers = [self.worker(host, "inherited") for host in range(3)]
        data = {}
        for number, worker in enumerate(workers):
            self.assertEqual(worker.ask("write", number * 50_000, 50_000, number), "ok")
        # Whoever was master is gone at once, with what it had not told anybody.
        master = next(host for host in range(4) if self.is_master(host))
        self.addCleanup(self.bed.boot, master)
        self.bed.kill_host(master)
        others = [worker for worker in workers if worker.host != master]
        for worker in others:
            # What is placed is read and written without a master.
            self.assertEqual(worker.ask("write", worker.host * 50_000, 50_000, 10 + worker.host), "ok")
            data[worker.host] = random.Random(10 + worker.host).randbytes(50_000)
        for worker in others:
            for host, expected in data.items():
                self.assertEqual(
                    worker.ask("read", host * 50_000, 50_000),
                    f"50000 {hashlib.sha256(expected).hexdigest()}",
                    f"host {worker.host} reads what host {host} wrote",
                )
            # Only the next master can place this.
            offset = (4 + worker.host) * REGION
            self.assertEqual(worker.ask("write", offset, 1000, 7), "ok")
        for worker in others:
            self.assertEqual(worker.ask("size"), str((4 + max(data)) * REGION + 1000))
            self.assertEqual(worker.end(), 0)


class Leaving(OnHosts):
    """Hosts whose agents end, where the tests say which is master."""

    def test_a_master_that_has_ended_does_not_bring_back_what_was_truncated_since(self):
        agent = self.master(0)
        writer = self.worker(1, "cut")
        self.assertEqual(writer.ask("write", 0, 50_000, 1), "ok")
        self.assertEqual(writer.ask("sync"), "ok")
        agent.terminate()
        self.assertEqual(agent.wait(WAIT_SECONDS), 0)
        self.assertEqual(writer.ask("truncate", 100), "ok")
        # It takes part again, with whatever it has kept.
        path = str(self.cluster.directory / "cut")
        self.assertEqual(self.cluster.run(0, "stat", "-c", "%s", path).strip(), "100")
        self.assertEqual(writer.ask("size"), "100")
        self.assertEqual(writer.end(), 0)
        self.assertEqual(self.cluster.run(0, "stat", "-c", "%s", path).strip(), "100")

    def test_what_a_killed_agent_left_of_a_file_goes_with_the_agent_after_it(self):
        path = str(self.cluster.directory / "left")
        killed = self.master(0)
        self.cluster.run(1, "sh", "-c", f"head -c 50000 /dev/zero > {path}")
        killed.kill()
        killed.wait(WAIT_SECONDS)
        # Nobody asks this one for the file.
        agent = self.master(0)
        agent.terminate()
        self.assertEqual(agent.wait(WAIT_SECONDS), 0)
        self.cluster.run(1, "truncate", "-s", "100", path)
        self.assertEqual(self.cluster.run(0, "stat", "-c", "%s", path).strip(), "100")

    def test_a_size_that_a_close_told_outlives_the_host_of_the_master(self):
        self.master(0)
        reader, writer = self.worker(1, "told"), self.worker(2, "told")
        self.assertEqual(writer.ask("write", 0, 50_000, 1), "ok")
        self.assertEqual(writer.ask("close"), "ok")
        self.assertEqual(writer.end(), 0)
        self.addCleanup(self.bed.boot, 0)
        self.bed.kill_host(0)
        expected = hashlib.sha256(random.Random(1).randbytes(50_000)).hexdigest()
        self.assertEqual(reader.ask("read", 0, 50_000), f"50000 {expected}")
        self.assertEqual(reader.ask("size"), "50000")
        self.assertEqual(reader.end(), 0)
        self.assertEqual(self.cluster.run(3, "stat", "-c", "%s", str(self.cluster.directory / "told")).strip(), "50000")


class Elsewhere(OnHosts):
    """Programs of one host have files open, and another host changes their names or looks at them."""

    def made(self, name):
        path = str(self.cluster.directory / name)
        self.cluster.run(2, "sh", "-c", f"head -c 50000 /dev/zero > {path}")
        return path

    def test_a_child_uses_the_descriptor_that_it_inherited_whatever_became_of_the_name(self):
        self.master(0)
        changes = ["mv {0} {0}-moved", "rm {0}", "mkdir {0}-below && mv {0} {0}-below", "echo other > {0}-other && mv {0}-other {0}"]
        for host in range(2):
            for number, change in enumerate(changes):
                path = self.made(f"inherited-{host}-{number}")
                worker = self.worker(host, path)
                self.cluster.run(2, "sh", "-c", change.format(path))
                self.assertEqual(worker.ask("child"), "50000", f"host {host}: {change}")
                self.assertEqual(worker.end(), 0)

    def test_what_is_open_outlives_the_agents_whatever_became_of_the_name(self):
        zeros = f"50000 {hashlib.sha256(bytes(50_000)).hexdigest()}"
        for number, (change, ended) in enumerate([("rm {0}", 0), ("rm {0}", 1), ("mv {0} {0}-moved", 0), ("mv {0} {0}-moved", 1)]):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            agents = [self.master(0), self.bed.start(1, [STRIPEWISE, "broker"], env=self.cluster.env, **pipes)]
            agents[1].stdout.readline()
            path = self.made(f"open-{number}")
            worker = self.worker(1, path)
            self.cluster.run(2, "sh", "-c", change.format(path))
            agents[ended].terminate()
            agents[ended].wait(WAIT_SECONDS)
            self.assertEqual(worker.ask("read", 0, 60_000), zeros, f"{change}, then the agent of host {ended} ends")
            self.assertEqual(worker.ask("write", 3 * REGION, 1000, 1), "ok")
            self.assertEqual(worker.ask("size"), str(3 * REGION + 1000))
            self.assertEqual(worker.end(), 0)
            agents[1 - ended].terminate()
            agents[1 - ended].wait(WAIT_SECONDS)
            agents[1].stdout.close()

    def test_the_size_at_a_name_is_that_which_any_host_has_written(self):
        self.master(0)
        for writing in range(2):
            worker = self.worker(writing, f"growing-{writing}")
            for number in range(1, 3):
                self.assertEqual(worker.ask("write", number * 50_000, 100, 1), "ok")
                for host in range(3):
                    size = self.cluster.run(host, "stat", "-c", "%s", str(self.cluster.directory / f"growing-{writing}"))
                    self.assertEqual(size.strip(), str(number * 50_000 + 100), f"host {host}")
            self.assertEqual(worker.end(), 0)

    def test_a_mount_finds_a_file_under_the_name_that_another_host_gave_it(self):
        self.master(0)
        mounted = self.mounted(1)
        path = self.made("seen")
        self.assertEqual(self.bed.run(1, ["wc", "-c", f"{mounted}/seen"]).stdout.split()[0], "50000")
        self.cluster.run(2, "mv", path, f"{path}-moved")
        moved = f"{mounted}/seen-moved"
        self.assertEqual(self.bed.run(1, ["stat", "-c", "%s", moved]).stdout.strip(), "50000")
        self.assertEqual(self.bed.run(1, ["sh", "-c", f"truncate -s 5 {moved} && wc -c < {moved} && rm {moved}"]).stdout.strip(), "5")


if __name__ == "__main__":
    unittest.main(verbosity=2)
