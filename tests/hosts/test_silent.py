#!/usr/bin/env python3
"""A host that does not answer. On a real Ceph the others go on without it, and no byte that it writes late lands anywhere. There and on directories no byte is
lost that it was told is written, also beyond the size that others knew.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_silent.py [NAME...]

Environment: SEED. Exit status 0 where hosts or a Ceph cannot be had: the tests skip then, and say why.
"""

import errno
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
from test_sharing import Worker  # noqa: E402

HOSTS, REGIONS, BLOCK = 4, 4, 3001
SIZE = REGIONS * REGION - 777
LAYOUTS = ("c 256KiB", "a..c 64KiB", "b 96KiB, a 32KiB")

# Owns every so-many-th block of a file. Writes some of its bytes and compares what it reads with what it has written, until a file of this name is there or an
# operation fails; a call that moves a part only is gone on with, as by other programs. Then it syncs and closes, and says with which errors all that ended.
# When it is told to, it opens the file again and says what the file has of its blocks; where the failed write was, old and new bytes are right. Bytes from
# `zeros` on must be zeros.
WRITER = r"""
import json, os, random, sys, time
path, stop, rank, ranks, size, block, seed = sys.argv[1:3] + [int(word) for word in sys.argv[3:]]
choose = random.Random(seed * 1000 + rank)
descriptor = os.open(path, os.O_RDWR)
own = {number: bytearray(min(block, size - number * block)) for number in range(rank, -(-size // block), ranks)}
either, numbers, done, errors = {}, list(own), 0, {}
print("ready", flush=True)
sys.stdin.readline()
while not errors and not os.path.exists(stop):
    number = choose.choice(numbers)
    mine, at = own[number], number * block
    start = choose.randrange(len(mine))
    length = choose.randint(1, len(mine) - start)
    data = choose.randbytes(length) if choose.random() < 0.7 else None
    try:
        if data is not None:
            either[number] = start, data
            moved = 0
            while moved < length:
                moved += os.pwrite(descriptor, data[moved:], at + start + moved)
            mine[start:start + length] = data
            del either[number]
        else:
            found = b""
            while len(found) < length and (part := os.pread(descriptor, length - len(found), at + start + len(found))):
                found += part
            if found != mine[start:start + length]:
                wrong = [(at + start + index, byte) for index, byte in enumerate(found) if byte != mine[start + index]]
                told = f"{len(found)} bytes, {len(wrong)} wrong, the first ones {wrong[:4]}, {mine[start:start + length].count(0)} zeros expected"
                sys.exit(f"{path}: rank {rank}, operation {done}: bytes {at + start}+{length} are wrong: {told}")
    except OSError as error:
        errors["io"] = error.errno
    done += 1
for what, call in (("sync", os.fsync), ("close", os.close)):
    try:
        call(descriptor)
    except OSError as error:
        errors[what] = error.errno
print(json.dumps({"done": done, "errors": errors}), flush=True)
zeros = int(sys.stdin.readline())
for attempt in range(600):
    try:
        descriptor = os.open(path, os.O_RDWR)
        os.pread(descriptor, 1, 0)
        break
    except OSError as error:
        time.sleep(0.1)
else:
    sys.exit(f"rank {rank} cannot open the file again")
for number, mine in own.items():
    at = number * block
    found = os.pread(descriptor, len(mine), at)
    start, data = either.get(number, (0, b""))
    for index, byte in enumerate(found):
        if at + index >= zeros:
            allowed = {0}
        else:
            allowed = {mine[index]} | ({data[index - start]} if start <= index < start + len(data) else set())
        if byte not in allowed:
            sys.exit(f"rank {rank} after {done} operations: byte {at + index} is {byte}, not one of {allowed}")
    if len(found) != len(mine):
        sys.exit(f"rank {rank}: {len(found)} bytes at {at}")
# It goes on as any other.
if zeros == size:
    for number, mine in own.items():
        assert os.pwrite(descriptor, mine, number * block) == len(mine)
os.fsync(descriptor)
os.close(descriptor)
print("right", flush=True)
"""


# What others know of a file that a host makes longer, and to where it does.
KNOWN, GROWN = 1000, 2 * REGION + 20_000


class Growing(ToldByLogs):
    """A host writes beyond the size that others know, and nobody can ask it."""

    def worker(self, host, path):
        worker = Worker(self.cluster, host, path)
        self.addCleanup(worker.process.kill)
        self.assertEqual(worker.ask("open"), "ok")
        return worker

    def grow(self, name, writing, reading):
        """A program of one host has written so much of a new file and synced `KNOWN` bytes; one of another has the file open, too. What it holds, its path, and the two."""
        path = str(self.cluster.directory / name)
        writer, reader = self.worker(writing, path), self.worker(reading, path)
        self.assertEqual(writer.ask("write", 0, KNOWN, 1), "ok")
        self.assertEqual(writer.ask("sync"), "ok")
        self.assertEqual(reader.ask("size"), str(KNOWN))
        for seed, (at, length) in enumerate(((KNOWN, 50_000), (REGION - 25_000, 50_000), (GROWN - 45_000, 45_000)), 2):
            self.assertEqual(writer.ask("write", at, length, seed), "ok")
        held = bytearray(GROWN)
        for seed, (at, length) in enumerate(((0, KNOWN), (KNOWN, 50_000), (REGION - 25_000, 50_000), (GROWN - 45_000, 45_000)), 1):
            held[at : at + length] = random.Random(seed).randbytes(length)
        return held, path, writer, reader

    def finds(self, held, worker, message=None):
        length = len(held) + REGION
        self.assertEqual(worker.ask("read", 0, length), f"{len(held)} {hashlib.sha256(held).hexdigest()}", message)
        self.assertEqual(worker.ask("size"), str(len(held)), message)

    def boot(self, host):
        self.bed.boot(host)
        self.agents[host] = self.cluster.start_agent(host, self.addClassCleanup)
        self.until("a host that was lost does not come back", lambda: self.answers(host))

    def answers(self, host):
        hosts = json.loads(self.cluster.stripewise(host, "host", "list", "--json"))["hosts"]
        return any((found["answers"] or found["is_master"]) and found["name"] == self.bed.names[host] for found in hosts)

    def until(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end, what)

    def is_master(self, host):
        hosts = json.loads(self.cluster.stripewise(host, "host", "list", "--json"))
        return any(found["is_master"] and found["name"] == self.bed.names[host] for found in hosts["hosts"])

    def others_than_the_master(self):
        """Earlier tests have changed it."""
        return [host for host in range(len(self.agents)) if not self.is_master(host)]


class Silent(Growing, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=HOSTS))
            ceph = cls.enterClassContext(cls.bed.ceph("--osds", "4"))
            cls.cluster = Cluster(cls.bed, "--rados", ceph["pools"][3], "--conf", ceph["conf"], ceph=ceph)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        # An agent of each host that stays, so that its process is known. The first is master.
        cls.agents = [cls.cluster.start_agent(host, cls.addClassCleanup) for host in range(HOSTS)]

    def setUp(self):
        self.seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
        print(f"SEED={self.seed}", file=sys.stderr)
        self.stop = pathlib.Path(self.bed.common) / f"{self._testMethodName}.stop"

    def signal(self, host, name):
        done = self.bed.run(host, ["kill", f"-{name}", str(self.agents[host])])
        self.assertEqual(done.returncode, 0, done.stderr)

    def begin(self, name, hosts):
        """Starts a writer on each of these hosts on a new file; returns its path and them."""
        path = str(self.cluster.directory / name)
        self.cluster.run(hosts[0], "truncate", "-s", str(SIZE), path)
        writers = []
        for rank, host in enumerate(hosts):
            words = [path, str(self.stop), rank, len(hosts), SIZE, BLOCK, self.seed]
            argv = [STRIPEWISE, "run", "--", sys.executable, "-c", WRITER, *map(str, words)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            writer = self.bed.start(host, argv, env=self.cluster.env, **pipes)
            self.addCleanup(writer.kill)
            writers.append(writer)
        for writer in writers:
            if writer.stdout.readline() != "ready\n":
                raise AssertionError(f"seed {self.seed}: {writer.communicate(timeout=WAIT_SECONDS)}")
        for writer in writers:
            print(file=writer.stdin, flush=True)
        return path, writers

    def outcome(self, writer):
        """What it says when it has ended its operations."""
        line = writer.stdout.readline()
        if not line:
            raise AssertionError(f"seed {self.seed}: {writer.communicate(timeout=WAIT_SECONDS)}")
        return json.loads(line)

    def check(self, writer, was_silent=False, zeros=SIZE):
        """Has it compare the file with what it has written."""
        said, complaints = writer.communicate(f"{zeros}\n", timeout=WAIT_SECONDS)
        self.assertEqual((writer.returncode, said), (0, "right\n"), f"seed {self.seed}: {complaints}")
        if was_silent:
            self.assertIn("was shut out", complaints, "the program's user is told why")
        else:
            self.assertEqual(complaints, "")

    def others_go_on_without(self, silent, silence, end_of_silence):
        """While programs of all hosts write two files, one host falls silent; the others move one of them and truncate the other."""
        there = next(host for host in range(HOSTS) if host != silent)
        name = self._testMethodName
        moved, writers = self.begin(f"{name}-moved", list(range(HOSTS)))
        cut, (cut_writer,) = self.begin(f"{name}-cut", [silent])
        silence()
        try:
            for layout in LAYOUTS:
                self.cluster.stripewise(there, "restripe", moved, "--layout", layout)
            self.cluster.run(there, "truncate", "-s", str(REGION + 5), cut)
            self.cluster.run(there, "truncate", "-s", str(SIZE), cut)
            zeros = SIZE - REGION - 5
            read = f"import sys; data = open({cut!r}, 'rb').read(); sys.exit(data[{REGION + 5}:] != bytes({zeros}))"
            self.cluster.run(there, sys.executable, "-c", read)
        finally:
            end_of_silence()
        # Whoever was silent is told, by its first operation, its sync and its close.
        for writer in (writers[silent], cut_writer):
            outcome = self.outcome(writer)
            self.assertEqual(set(outcome["errors"]), {"io", "sync", "close"}, f"seed {self.seed}: {outcome}")
        self.stop.touch()
        for host, writer in enumerate(writers):
            if host != silent:
                self.assertEqual(self.outcome(writer)["errors"], {}, f"seed {self.seed}, host {host}")
        for host, writer in enumerate(writers):
            self.check(writer, was_silent=host == silent)
        self.check(cut_writer, was_silent=True, zeros=REGION + 5)
        # Late writes would show by now.
        self.cluster.run(there, sys.executable, "-c", read)

    def test_a_host_that_the_others_do_not_reach_is_shut_out(self):
        self.others_go_on_without(2, lambda: self.bed.part(2), lambda: self.bed.rejoin(2))

    def test_a_host_whose_agent_is_stopped_is_shut_out(self):
        self.others_go_on_without(3, lambda: self.signal(3, "STOP"), lambda: self.signal(3, "CONT"))

    def test_a_master_that_is_stopped_is_followed_and_changes_nothing_later(self):
        master = next(host for host in range(HOSTS) if self.is_master(host))
        self.others_go_on_without(master, lambda: self.signal(master, "STOP"), lambda: self.signal(master, "CONT"))

    def test_a_removed_file_does_not_wait_for_a_silent_host_that_has_it_open(self):
        before = self.settled_bytes()
        # Earlier tests have changed the master.
        silent, there, *_ = (host for host in range(HOSTS) if not self.is_master(host))
        path, (writer,) = self.begin("removed", [silent])
        # Else there would be nothing to remove yet, and the host would be back before it is silent.
        self.until("nothing is written", lambda: self.cluster.object_bytes() > before)
        self.bed.part(silent)
        try:
            self.cluster.run(there, "rm", path)
            self.until("its objects are not removed", lambda: self.cluster.object_bytes() <= before)
        finally:
            self.bed.rejoin(silent)
        self.assertEqual(set(self.outcome(writer)["errors"]), {"io", "sync", "close"}, f"seed {self.seed}")
        writer.kill()
        writer.communicate()
        self.assertEqual(self.cluster.object_bytes(), before, "and nothing makes them again")

    def settled_bytes(self):
        """Bytes of all objects, when what earlier tests have removed is gone."""
        held, since = self.cluster.object_bytes(), time.monotonic()
        while time.monotonic() - since < 3:
            now = self.cluster.object_bytes()
            if now != held:
                held, since = now, time.monotonic()
        return held

    def test_what_a_silent_host_wrote_beyond_the_size_is_there_before_and_after_it_is_shut_out(self):
        silent, there, *_ = self.others_than_the_master()
        held, path, writer, reader = self.grow("grown", silent, there)
        self.bed.part(silent)
        try:
            self.finds(held, reader, "while the host is silent")
            held += bytes(10_000)
            self.assertEqual(reader.ask("truncate", len(held)), "ok")
            self.finds(held, reader, "after it was shut out")
        finally:
            self.bed.rejoin(silent)
        # It may read for a while what it knows.
        self.until("it is not told", lambda: writer.ask("sync") == f"error {errno.EIO}")
        self.finds(held, self.worker(silent, path), "when it is back")

    def test_what_nobody_has_asked_for_is_there_after_a_host_was_shut_out(self):
        silent, there, *_ = self.others_than_the_master()
        held, path, _, reader = self.grow("grown-unseen", silent, there)
        self.bed.part(silent)
        try:
            # Behind what others know, and before the end.
            held = held[: GROWN - 20_000]
            self.assertEqual(reader.ask("truncate", len(held)), "ok")
            self.assertEqual(reader.ask("truncate", GROWN), "ok")
            held += bytes(20_000)
            self.finds(held, reader, "what was removed does not come back")
            self.cluster.stripewise(there, "restripe", path, "--layout", LAYOUTS[0])
            self.finds(held, reader, "after a move")
        finally:
            self.bed.rejoin(silent)
        self.finds(held, self.worker(silent, path), "when it is back")

    def test_regions_move_with_what_a_host_wrote_that_is_shut_out(self):
        silent, there, *_ = self.others_than_the_master()
        held, path, _, reader = self.grow("grown-moved", silent, there)
        self.bed.part(silent)
        try:
            for layout in LAYOUTS:
                self.cluster.stripewise(there, "restripe", path, "--layout", layout)
            self.finds(held, reader)
        finally:
            self.bed.rejoin(silent)
        self.finds(held, self.worker(silent, path))

    def test_what_a_lost_master_wrote_beyond_the_size_is_there(self):
        """Whether somebody has the file open when another is master, or it is opened later."""
        there = self.others_than_the_master()[0]
        master = next(host for host in range(HOSTS) if self.is_master(host))
        open_file, _, _, reader = self.grow("grown-open", master, there)
        closed_file, path, _, closed = self.grow("grown-closed", master, there)
        self.assertEqual(closed.ask("close"), "ok")
        self.bed.kill_host(master)
        try:
            self.finds(open_file, reader)
            self.until("nobody forgets the host", lambda: self.forgets(there, master))
            self.finds(closed_file, self.worker(there, path))
            open_file += bytes(10_000)
            self.assertEqual(reader.ask("truncate", len(open_file)), "ok")
            self.finds(open_file, reader)
        finally:
            self.boot(master)
        for name, held in (("grown-open", open_file), ("grown-closed", closed_file)):
            self.finds(held, self.worker(master, str(self.cluster.directory / name)))

    def forgets(self, there, host):
        done = self.bed.run(there, [STRIPEWISE, "host", "forget", self.bed.names[host]], env=self.cluster.env, timeout=WAIT_SECONDS)
        return done.returncode == 0


class SilentOnDirectories(Growing, unittest.TestCase):
    """The same where nobody can be shut out."""

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=3))
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        cls.agents = [cls.cluster.start_agent(host, cls.addClassCleanup) for host in range(3)]

    def test_what_a_silent_host_writes_beyond_the_size_is_read_and_not_cut(self):
        for silent in (self.others_than_the_master()[0], next(host for host in range(3) if self.is_master(host))):
            there = next(host for host in range(3) if host != silent)
            held, path, writer, reader = self.grow(f"grown-{silent}", silent, there)
            self.bed.part(silent)
            try:
                self.finds(held, reader, f"host {silent} is silent")
                # It goes on, where it needs nobody.
                more = random.Random(9).randbytes(5000)
                self.assertEqual(writer.ask("write", len(held), len(more), 9), "ok")
                held += more
                self.finds(held, reader, f"host {silent} goes on")
                self.assertEqual(reader.ask("truncate", 2 * len(held)), f"error {errno.EBUSY}")
                self.finds(held, reader, "a refusal changes nothing")
            finally:
                self.bed.rejoin(silent)
            self.until("the host does not come back", lambda: self.answers(silent))
            self.finds(held, writer, "it is back")
            self.finds(held, self.worker(there, path), "it is back")
            for worker in (writer, reader):
                self.assertEqual(worker.end(), 0)

    def test_what_a_forgotten_host_wrote_beyond_the_size_is_there(self):
        lost, there = self.others_than_the_master()
        held, _, _, reader = self.grow("grown-forgotten", lost, there)
        self.bed.kill_host(lost)
        try:
            self.finds(held, reader)
            self.cluster.stripewise(there, "host", "forget", self.bed.names[lost])
            held += bytes(10_000)
            self.assertEqual(reader.ask("truncate", len(held)), "ok")
            self.finds(held, reader)
        finally:
            self.boot(lost)


if __name__ == "__main__":
    unittest.main(verbosity=2)
