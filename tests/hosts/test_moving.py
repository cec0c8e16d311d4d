#!/usr/bin/env python3
"""Regions that move while programs of several hosts use them, on the hosts of bed.py with the mapping table in a real etcd.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_moving.py [NAME...]

Environment: SEED, and ROUNDS, for how often every region moves (10). Exit status 0 where hosts or an etcd cannot be had: the tests skip
then, and say why.
"""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
from clusters import REGION, STRIPEWISE, WAIT_SECONDS, Cluster  # noqa: E402

HOSTS, PER_HOST, REGIONS = 4, 4, 4
BLOCK = 3001
# What regions move between: servers a and b are disks, c is an SSD.
LAYOUTS = ("a..c 64KiB", "c 256KiB", "a 96KiB, b 32KiB", "b 1MiB", "a 20KiB, c 20KiB")
SERVERS = ("abc", "c", "ab", "b", "ac")

# Owns every so-many-th block of the file. Writes some of its bytes, reads its own and anybody's, and compares its own with what it has written, until a
# file of this name is there. Then it writes what it knows of the whole file.
CHURN = r"""
import os, random, sys, time
path, stop, result, rank, ranks, size, block, seed = sys.argv[1:4] + [int(word) for word in sys.argv[4:]]
choose = random.Random(seed * 1000 + rank)
descriptor = os.open(path, os.O_RDWR)
own = {number: bytearray(min(block, size - number * block)) for number in range(rank, -(-size // block), ranks)}
numbers, done = list(own), 0
print("ready", flush=True)
sys.stdin.readline()
while not os.path.exists(stop) or done < 200:
    number = choose.choice(numbers)
    mine, at = own[number], number * block
    start = choose.randrange(len(mine))
    length = choose.randint(1, len(mine) - start)
    what = choose.random()
    if what < 0.6:
        data = choose.randbytes(length)
        assert os.pwrite(descriptor, data, at + start) == length
        mine[start:start + length] = data
    elif what < 0.95:
        found = os.pread(descriptor, length, at + start)
        if found != mine[start:start + length]:
            sys.exit(f"rank {rank}, operation {done}: bytes {at + start}+{length} of block {number} are wrong")
    elif what < 0.99:
        far = choose.randrange(size)
        os.pread(descriptor, 70_000, far)
    else:
        os.fsync(descriptor)
    done += 1
    # Sixteen of them leave room for what moves the regions.
    time.sleep(0.001)
with open(result, "wb") as out:
    for mine in own.values():
        out.write(mine)
print("done", done, flush=True)
"""

# Opens the file, writes its block, reads it back and closes the file, until a file of this name is there.
OPENER = r"""
import os, random, sys
path, stop, at, seed = sys.argv[1:3] + [int(word) for word in sys.argv[3:]]
choose, done = random.Random(seed), 0
while not os.path.exists(stop):
    descriptor, data = os.open(path, os.O_RDWR), choose.randbytes(3001)
    assert os.pwrite(descriptor, data, at) == 3001 and os.pread(descriptor, 3001, at) == data
    os.close(descriptor)
    done += 1
    if done == 1:
        print("ready", flush=True)
print(data.hex(), done, flush=True)
"""


class Moving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=HOSTS))
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def setUp(self):
        self.seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
        print(f"SEED={self.seed}", file=sys.stderr)
        self.common = pathlib.Path(self.bed.common)
        self.stop = self.common / f"{self._testMethodName}.stop"

    def begin(self, name, size):
        """Starts the programs of all hosts on a new file of so many bytes; returns its path and them."""
        path = str(self.cluster.directory / name)
        self.cluster.run(0, "truncate", "-s", str(size), path)
        programs, ranks = [], HOSTS * PER_HOST
        for rank in range(ranks):
            words = [path, str(self.stop), str(self.result(rank)), rank, ranks, size, BLOCK, self.seed]
            argv = [STRIPEWISE, "run", "--", sys.executable, "-c", CHURN, *map(str, words)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            program = self.bed.start(rank % HOSTS, argv, env=self.cluster.env, **pipes)
            self.addCleanup(program.kill)
            programs.append(program)
        for program in programs:
            if program.stdout.readline() != "ready\n":
                raise AssertionError(f"seed {self.seed}: {program.communicate(timeout=WAIT_SECONDS)}")
        for program in programs:
            print(file=program.stdin, flush=True)
        return path, programs

    def result(self, rank):
        return self.common / f"{self._testMethodName}.{rank}"

    def end(self, path, programs, size):
        """Ends the programs, and compares the file with what they have written."""
        self.stop.touch()
        for program in programs:
            said, complaints = program.communicate(timeout=WAIT_SECONDS)
            self.assertEqual((program.returncode, complaints), (0, ""), f"seed {self.seed}")
            self.assertIn("done", said)
        model = bytearray(size)
        for rank in range(len(programs)):
            written, at = self.result(rank).read_bytes(), 0
            for number in range(rank, -(-size // BLOCK), len(programs)):
                length = min(BLOCK, size - number * BLOCK)
                model[number * BLOCK : number * BLOCK + length] = written[at : at + length]
                at += length
        for host in range(HOSTS):
            found = self.cluster.run(host, "sha256sum", path).split()[0]
            self.assertEqual(found, hashlib.sha256(model).hexdigest(), f"seed {self.seed}, host {host}")

    def test_every_region_moves_while_all_hosts_write(self):
        size = REGIONS * REGION - 777
        path, programs = self.begin("churned", size)
        for number in range(int(os.environ.get("ROUNDS", 10))):
            layout, servers = LAYOUTS[number % len(LAYOUTS)], SERVERS[number % len(LAYOUTS)]
            self.cluster.stripewise(number % HOSTS, "restripe", path, "--layout", layout)
            # No region lies where it lay before.
            self.assertEqual(self.servers(path), set(servers), f"seed {self.seed}")
        self.end(path, programs, size)

    def test_regions_move_while_hosts_open_and_close_the_file_all_the_time(self):
        path, size = str(self.cluster.directory / "opened"), 2 * REGION
        self.cluster.run(0, "truncate", "-s", str(size), path)
        places = {host: (host * 40_000, REGION + host * 50_000) for host in range(HOSTS)}
        programs = {}
        for host, ats in places.items():
            for at in ats:
                words = [path, str(self.stop), str(at), str(self.seed + at)]
                argv = [STRIPEWISE, "run", "--", sys.executable, "-c", OPENER, *words]
                pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
                programs[at] = self.bed.start(host, argv, env=self.cluster.env, **pipes)
                self.addCleanup(programs[at].kill)
        for program in programs.values():
            if program.stdout.readline() != "ready\n":
                raise AssertionError(f"seed {self.seed}: {program.communicate(timeout=WAIT_SECONDS)}")
        for number in range(4):
            self.cluster.stripewise(number % HOSTS, "restripe", path, "--layout", LAYOUTS[number])
            self.assertEqual(self.servers(path), set(SERVERS[number]), f"seed {self.seed}")
        self.stop.touch()
        model = bytearray(size)
        for at, program in programs.items():
            said, complaints = program.communicate(timeout=WAIT_SECONDS)
            self.assertEqual((program.returncode, complaints), (0, ""), f"seed {self.seed}")
            model[at : at + BLOCK] = bytes.fromhex(said.split()[0])
        for host in range(HOSTS):
            found = self.cluster.run(host, "sha256sum", path).split()[0]
            self.assertEqual(found, hashlib.sha256(model).hexdigest(), f"seed {self.seed}, host {host}")

    def servers(self, path):
        """On which the file lies."""
        stat = json.loads(self.cluster.stripewise(2, "stat", "--json", path))
        return {server["name"] for server in stat["files"][0]["servers"] if server["bytes"]}


if __name__ == "__main__":
    unittest.main(verbosity=2)
