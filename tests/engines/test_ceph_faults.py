#!/usr/bin/env python3
"""Bad input and faults on a real Ceph: what each is called, and that no acknowledged byte is lost by any.

    STRIPEWISE=target/debug/stripewise tests/engines/test_ceph_faults.py

Skipped, with the reason, where no Ceph can be had. It runs under the interpreter that Ceph's modules belong to.
"""

import contextlib
import errno
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ceph  # noqa: E402
from on_pools import KIB, MIB, STRIPEWISE, OnPools  # noqa: E402

# Reads requests from standard input, one a line, and answers each: `write SEED OFFSET LENGTH`, `read OFFSET LENGTH` or `sync`.
WORKER = r"""
import os, random, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
print("ready", flush=True)
for line in sys.stdin:
    verb, *numbers = line.split()
    numbers = [int(number) for number in numbers]
    try:
        if verb == "write":
            seed, offset, length = numbers
            data, done = random.Random(seed).randbytes(length), 0
            while done < length:
                done += os.pwrite(descriptor, data[done:], offset + done)
            answer = "ok"
        elif verb == "read":
            offset, length = numbers
            data = b""
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
            answer = data.hex()
        elif verb == "sync":
            os.fsync(descriptor)
            answer = "ok"
    except OSError as error:
        answer = f"error {error.errno}"
    print(answer, flush=True)
"""


class Worker:
    """A program under `stripewise run`."""

    def __init__(self, place, path):
        command = [STRIPEWISE, "run", "--", sys.executable, "-c", WORKER, path]
        self.process = subprocess.Popen(
            list(map(str, command)), cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )
        self.answer = self._hear()

    def _hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended with {self.process.wait()}: {self.process.stderr.read()}")
        return line.strip()

    def say(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def ask(self, *words):
        self.say(*words)
        return self._hear()

    def read(self, offset, length):
        answer = self.ask("read", offset, length)
        return answer if answer.startswith("error") else bytes.fromhex(answer)

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(timeout=120)
        said = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return status, said

    def kill(self):
        """The program, and the broker that runs in its parent, in the middle of whatever they do."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def bytes_of(seed, length):
    return random.Random(seed).randbytes(length)


class BadInput(OnPools):
    """What is not as the cluster file says, on a Ceph with keys."""

    # BlueStore, because OSDs are killed here and memstore forgets.
    CEPH = {"osds": 3, "auth": True, "store": "bluestore"}

    def cluster(self, name, *options):
        place = self.root / name
        (place / "data").mkdir(parents=True)
        self.run_in(place, STRIPEWISE, "init", "--region", "1MiB", *options, *self.servers())
        self.run_in(place, STRIPEWISE, "manage", place / "data")
        return place

    def rewrite(self, place, *changes):
        """Replaces texts of cluster.toml."""
        path = place / "cluster.toml"
        text = path.read_text()
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path.write_text(text)

    def test_a_pool_of_another_server_or_cluster_is_refused_by_name(self):
        place = self.cluster("mixed-up")
        path = place / "data" / "file"
        self.run_in(place, STRIPEWISE, "run", "--", "sh", "-c", f"head -c 3000000 /dev/zero > {path}")
        self.run_in(place, STRIPEWISE, "check")
        good = (place / "cluster.toml").read_text()
        # Two servers' pools are mixed up: nothing is read from the wrong one.
        self.rewrite(place, ("rados://pool0", "rados://poolX"), ("rados://pool1", "rados://pool0"), ("rados://poolX", "rados://pool1"))
        said = self.run_in(place, STRIPEWISE, "run", "--", "cat", path, fails=True)
        self.assert_says(said, "pool pool1 is server s1 of this cluster", "correct its url in cluster.toml")
        # A pool that is no server of this cluster, though it is one of another.
        self.order("osd pool create", pool="others", pg_num=1, pool_type="replicated", rule="only0")
        other = self.root / "other"
        other.mkdir()
        self.run_in(other, STRIPEWISE, "init", "--server", f"s0=hdd:{self.url('others')}")
        (place / "cluster.toml").write_text(good)
        self.rewrite(place, ("rados://pool0", "rados://others"))
        said = self.run_in(place, STRIPEWISE, "run", "--", "cat", path, fails=True)
        self.assert_says(said, "server s0", "pool others holds nothing of cluster", "another pool was meant")
        # Another Ceph whose pool has the same name.
        with ceph.Ceph(osds=1) as elsewhere:
            (place / "cluster.toml").write_text(good)
            self.rewrite(place, (f"rados://pool0?conf={self.ceph.conf}", f"rados://pool0?conf={elsewhere.conf}"))
            said = self.run_in(place, STRIPEWISE, "run", "--", "cat", path, fails=True)
            self.assert_says(said, "server s0", "pool pool0 holds nothing of cluster")
            self.run_in(place, STRIPEWISE, "check", fails=True)
        (place / "cluster.toml").write_text(good)
        self.run_in(place, STRIPEWISE, "run", "--", "cmp", "-n", "3000000", path, "/dev/zero")
        self.run_in(place, STRIPEWISE, "check")

    def test_two_clusters_in_one_pool_do_not_meet(self):
        one, two = self.cluster("one"), self.cluster("two")
        for place, byte in ((one, "1"), (two, "2")):
            script = f"head -c 2500000 /dev/zero | tr '\\0' {byte} > data/file"
            self.run_in(place, STRIPEWISE, "run", "--", "sh", "-c", script)
        self.run_in(one, STRIPEWISE, "run", "--", "rm", "data/file")
        for place in (one, two):
            self.run_in(place, STRIPEWISE, "check")
        read = self.run_in(two, STRIPEWISE, "run", "--", "sh", "-c", "tr -d 2 < data/file | wc -c; wc -c < data/file")
        self.assertEqual(read.split(), ["0", "2500000"])

    def refused(self, pool, *parts, parameters="", options=()):
        """That no cluster is made over pool0 and this one, and that nothing is left of it."""
        place = self.root / "refused"
        place.mkdir()
        # Of the good one; the other may be one that nobody can list.
        before = self.objects("pool0")
        servers = ["--server", f"good=hdd:{self.url('pool0', parameters)}", "--server", f"bad=hdd:{self.url(pool, parameters)}"]
        said = self.run_in(place, STRIPEWISE, "init", "--region", "1MiB", *options, *servers, fails=True)
        self.assert_says(said, *parts)
        self.assertEqual(self.objects("pool0"), before, "nothing is left in the pool")
        self.assertEqual(os.listdir(place), [], "nor on the host")
        place.rmdir()

    def test_a_user_who_may_not_blocklist_is_refused_before_anything_is_written(self):
        self.ceph.make_user("weak", "allow r", "allow rwx")
        remedy = f"ceph --conf {self.ceph.conf} auth caps client.weak"
        self.refused("pool1", "client.weak may not blocklist clients", remedy, parameters="&user=weak")
        # The probe blocklists nobody.
        self.assertFalse([address for address in self.ceph._command("osd dump")["blocklist"] if address.startswith("0.0.0.0")])

    def test_pools_that_cannot_be_servers_are_refused_by_name(self):
        ceph = f"ceph --conf {self.ceph.conf}"
        self.refused("coded", "server bad", "pool coded is erasure-coded", "use a replicated pool")
        self.refused("nowhere", "server bad", "there is no pool nowhere")
        # Its rule reaches a bucket that holds no OSD, so nothing that it is asked is ever answered.
        self.order("osd crush add-bucket", name="empty", type="host")
        self.order("osd crush rule create-replicated", name="on-nothing", root="empty", type="osd")
        self.order("osd pool create", pool="placeless", pg_num=1, pool_type="replicated", rule="on-nothing")
        self.refused("placeless", "server bad", "the CRUSH rule of pool placeless reaches no OSD", f"{ceph} osd pool set placeless crush_rule")
        self.order("osd pool set-quota", pool="pool1", field="max_bytes", val=str(MIB - 1))
        try:
            self.refused(
                "pool1", "server bad", "pool pool1 can take 1024 KiB more", "less than one region of 1 MiB", "osd pool set-quota pool1 max_bytes",
            )
        finally:
            self.order("osd pool set-quota", pool="pool1", field="max_bytes", val="0")
        self.order("osd out", ids=["1"])
        try:
            self.refused("pool1", "server bad", "pool pool1 is not served: osd.1 is out", "ceph osd in 1")
        finally:
            self.order("osd in", ids=["1"])
        self.ceph.obey("kill 1")
        try:
            self.ceph._wait("osd.1 down", lambda: self.ceph.up_from(1) == 0)
            self.refused("pool1", "server bad", "pool pool1 is not served: osd.1 is down", "systemctl start ceph-osd@1")
        finally:
            self.ceph.obey("start 1")

    def test_a_key_with_nothing_but_what_is_documented_is_enough(self):
        """No right to ask managers, nor OSDs' own commands, nor to change pools."""
        self.ceph.make_user("enough", 'allow r, allow command "osd blocklist"', "allow rwx")
        place = self.root / "caps"
        (place / "data").mkdir(parents=True)
        said = self.run_in(place, STRIPEWISE, "init", "--region", "1MiB", *self.servers("&user=enough"))
        self.run_in(place, STRIPEWISE, "manage", "data")
        script = "head -c 3000000 /dev/zero | tr '\\0' x > data/file && tr -d x < data/file | wc -c"
        self.assertEqual(self.run_in(place, STRIPEWISE, "run", "--", "sh", "-c", script).strip(), "0")
        self.run_in(place, STRIPEWISE, "restripe", "data/file", "--layout", "s2 1MiB")
        self.run_in(place, STRIPEWISE, "check")
        self.run_in(place, STRIPEWISE, "stat", "data/file")
        self.run_in(place, STRIPEWISE, "release", "data/file")
        self.assertEqual((place / "data" / "file").read_bytes(), b"x" * 3_000_000)

    def test_a_key_that_was_replaced_is_named_with_its_user(self):
        ring = pathlib.Path(self.ceph.make_user("user", 'allow r, allow command "osd blocklist"', "allow rwx"))
        place = self.root / "keys"
        (place / "data").mkdir(parents=True)
        self.run_in(place, STRIPEWISE, "init", *self.servers("&user=user"))
        self.run_in(place, STRIPEWISE, "manage", "data")
        self.run_in(place, STRIPEWISE, "run", "--", "sh", "-c", "echo kept > data/file")
        good = ring.read_text()
        ring.write_text("[client.user]\n\tkey = AQAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAA==\n")
        said = self.run_in(place, STRIPEWISE, "run", "--", "cat", "data/file", fails=True)
        self.assert_says(said, "server s0", "client.user", "ceph auth get client.user")
        ring.unlink()
        said = self.run_in(place, STRIPEWISE, "run", "--", "cat", "data/file", fails=True)
        self.assert_says(said, "server s0", "no key for client.user")
        ring.write_text(good)
        self.assertEqual(self.run_in(place, STRIPEWISE, "run", "--", "cat", "data/file"), "kept\n")


class Faults(OnPools):
    """Servers that fail while programs write. BlueStore keeps what it acknowledged when it is killed; each test puts right what it breaks."""

    CEPH = {"osds": 3, "store": "bluestore", "osd_bytes": 1 << 30}

    def setUp(self):
        super().setUp()
        self.seed = random.randrange(1 << 30)
        print(f"seed {self.seed}", file=sys.stderr)
        self.dice = random.Random(self.seed)
        self.place = self.root / self._testMethodName
        (self.place / "data").mkdir(parents=True)
        self.addCleanup(self.start_again)
        self.stripewise("init", "--region", "1MiB", *self.servers())
        self.stripewise("manage", "data")

    def start_again(self):
        """Starts the daemons that a test that failed has left dead: the next one needs them."""
        for name in ("mon", *range(self.ceph.osds)):
            if not self.ceph.runs(name) and not self.ceph.is_broken:
                self.ceph.obey(f"start {name}")

    def worker(self, path):
        """A program that does not outlive the test."""
        worker = Worker(self.place, path)
        self.addCleanup(worker.kill)
        return worker

    def stripewise(self, *words, fails=False):
        return self.run_in(self.place, STRIPEWISE, *words, fails=fails)

    def test_what_was_acknowledged_is_there_after_every_osd_was_killed_under_writes(self):
        """Programs write one file side by side while OSDs are killed and started; every write is answered in the end, and every byte is there."""
        size, writers = 12 * MIB, 3
        model, path = bytearray(size), self.place / "data" / "file"
        workers = [self.worker(path) for _ in range(writers)]
        self.assertEqual(workers[0].ask("write", 0, 0, size), "ok")
        model[:] = bytes_of(0, size)
        faults, stop = [], threading.Event()

        def write(number):
            # Each has pages of its own, so that the order of two writers does not matter.
            dice = random.Random(self.seed + number)
            share = size // writers
            while not stop.is_set():
                length = dice.choice((1, 777, 4 * KIB, 70_000, 600_000))
                offset, seed = number * share + dice.randrange(share - length), dice.randrange(1 << 30)
                answer = workers[number].ask("write", seed, offset, length)
                if answer != "ok":
                    faults.append((number, offset, length, answer, workers[number].end()[1]))
                    return
                model[offset:offset + length] = bytes_of(seed, length)

        # Daemons, because one that waits for an answer would keep a test that has failed from ending.
        threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(writers)]
        for thread in threads:
            thread.start()
        try:
            for osd in range(3):
                self.ceph.obey(f"kill {osd}")
                self.ceph._wait(f"osd.{osd} down", lambda osd=osd: self.ceph.up_from(osd) == 0)
                self.ceph.obey(f"start {osd}")
        finally:
            stop.set()
        for thread in threads:
            thread.join(timeout=120)
            self.assertFalse(thread.is_alive(), "a write was never answered")
        self.assertEqual(faults, [])
        for worker in workers:
            self.assertEqual(worker.end()[0], 0)
        self.compare(path, model)
        self.stripewise("check")

    def test_a_program_and_its_broker_killed_while_an_osd_is_down_lose_nothing_acknowledged(self):
        """Of the write under way each byte is the old or the new one, and everything before is there."""
        size = 8 * MIB
        path, worker = self.place / "data" / "file", None
        model = bytearray(bytes_of(self.seed, size))
        worker = self.worker(path)
        self.assertEqual(worker.ask("write", self.seed, 0, size), "ok")
        for osd in range(3):
            for _ in range(10):
                seed, length = self.dice.randrange(1 << 30), self.dice.randrange(1, 300_000)
                offset = self.dice.randrange(size - length)
                self.assertEqual(worker.ask("write", seed, offset, length), "ok")
                model[offset:offset + length] = bytes_of(seed, length)
            self.ceph.obey(f"kill {osd}")
            # Over all servers, so one part of it waits.
            seed, length = self.dice.randrange(1 << 30), 3 * MIB
            offset = self.dice.randrange(size - length)
            worker.say("write", seed, offset, length)
            worker.kill()
            self.ceph._wait(f"osd.{osd} down", lambda osd=osd: self.ceph.up_from(osd) == 0)
            self.ceph.obey(f"start {osd}")
            worker = self.worker(path)
            found, new = worker.read(0, size), bytes_of(seed, length)
            self.assertEqual(len(found), size)
            for at in range(size):
                old = model[at]
                if found[at] != old and not (offset <= at < offset + length and found[at] == new[at - offset]):
                    self.fail(f"byte {at} is {found[at]}, neither {old} nor of the write under way")
            model = bytearray(found)
        self.assertEqual(worker.end()[0], 0)
        self.compare(path, model)
        self.stripewise("check")

    @contextlib.contextmanager
    def full_osds(self):
        """Their monitor knows that they are full, and at the end that they are not; they know it soon after."""
        for which, ratio in (("nearfull", 0.001), ("backfillfull", 0.002), ("full", 0.003)):
            self.order(f"osd set-{which}-ratio", ratio=ratio)
        try:
            self.ceph._wait("OSDs full", lambda: "full" in self.ceph._command("osd dump")["osds"][0]["state"])
            yield
        finally:
            for which, ratio in (("full", 0.95), ("backfillfull", 0.9), ("nearfull", 0.85)):
                self.order(f"osd set-{which}-ratio", ratio=ratio)
        self.ceph._wait("OSDs not full", lambda: not any("full" in osd["state"] for osd in self.ceph._command("osd dump")["osds"]))

    def test_a_full_osd_under_the_mapping_table_ends_no_election_and_what_is_placed_goes_on(self):
        self.order("osd pool create", pool="table", pg_num=1, pool_type="replicated", rule="only0")
        self.place = self.root / "hosts"
        (self.place / "data").mkdir(parents=True)
        self.stripewise("init", "--rados", "table", "--conf", self.ceph.conf, "--region", "1MiB", *self.servers())
        self.stripewise("manage", "data")
        path, size = self.place / "data" / "file", 3 * MIB
        worker = self.worker(path)
        self.assertEqual(worker.ask("write", self.seed, 0, size), "ok")
        self.assertEqual(worker.ask("sync"), "ok")
        model = bytearray(bytes_of(self.seed, size))
        with self.full_osds():
            at = size
            while (answer := worker.ask("write", self.seed + at, at, 64 * KIB)) == "ok":
                model.extend(bytes_of(self.seed + at, 64 * KIB))
                at += 64 * KIB
                self.assertLess(at, 900 * MIB, "more than the OSDs hold")
            self.assertEqual(answer, f"error {errno.ENOSPC}")
            # For longer than the election lasts that is not renewed.
            end = time.monotonic() + 10
            while time.monotonic() < end:
                seed = self.dice.randrange(1 << 30)
                self.assertEqual(worker.ask("write", seed, 1000, 100_000), "ok", "overwriting goes on")
                model[1000:101_000] = bytes_of(seed, 100_000)
                self.assertEqual(worker.ask("sync"), "ok")
                self.assert_says(self.stripewise("ls"), "data/file")
            self.assertEqual(worker.read(0, len(model)), bytes(model))
        # The monitor knows before the OSDs do.
        while (answer := worker.ask("write", self.seed, at, 1000)) == f"error {errno.ENOSPC}":
            pass
        self.assertEqual(answer, "ok")
        model.extend(bytes_of(self.seed, 1000))
        self.stripewise("restripe", path, "--layout", "s0 1MiB")
        self.assertEqual(worker.end()[0], 0)
        self.compare(path, model)
        self.stripewise("check")

    def test_a_full_osd_refuses_what_grows_and_keeps_what_there_is(self):
        path, size = self.place / "data" / "file", 6 * MIB
        worker = self.worker(path)
        self.assertEqual(worker.ask("write", self.seed, 0, size), "ok")
        model = bytearray(bytes_of(self.seed, size))
        with self.full_osds():
            # Growing fails once the OSDs know that they are full, at the latest then.
            at = size
            while (answer := worker.ask("write", self.seed + at, at, 64 * KIB)) == "ok":
                model.extend(bytes_of(self.seed + at, 64 * KIB))
                at += 64 * KIB
                self.assertLess(at, 900 * MIB, "more than the OSDs hold")
            self.assertEqual(answer, f"error {errno.ENOSPC}")
            self.assertEqual(worker.ask("write", 7, 1000, 100_000), "ok", "overwriting goes on")
            model[1000:101_000] = bytes_of(7, 100_000)
            self.assertEqual(worker.read(0, len(model)), bytes(model))
        end = len(model)
        while (answer := worker.ask("write", 8, end, 10_000)) == f"error {errno.ENOSPC}":
            # The monitor knows before the OSDs do.
            self.assertIsNone(worker.process.poll())
        self.assertEqual(answer, "ok")
        model.extend(bytes_of(8, 10_000))
        self.assertEqual(worker.end()[0], 0)
        self.compare(path, model)

    def test_an_osd_that_is_down_is_named_and_holds_up_no_command(self):
        path, size = self.place / "data" / "file", 3 * MIB
        content = bytes_of(self.seed, size)
        path.with_name("ordinary").write_bytes(content)
        worker = self.worker(path)
        self.assertEqual(worker.ask("write", self.seed, 0, size), "ok")
        self.assertEqual(worker.end()[0], 0)
        self.ceph.obey("kill 1")
        try:
            self.ceph._wait("osd.1 down", lambda: self.ceph.up_from(1) == 0)
            said = self.stripewise("check", fails=True)
            self.assert_says(said, "s1")
            self.stripewise("ls")
            # What copies from the server waits, and says for what.
            release = subprocess.Popen(
                [STRIPEWISE, "release", str(path)], cwd=self.place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            self.addCleanup(release.kill)
            said = release.stderr.readline()
            self.assert_says(said, "s1")
            self.assertIsNone(release.poll())
        finally:
            self.ceph.obey("start 1")
        said = release.communicate(timeout=120)[1]
        self.assertEqual(release.returncode, 0, said)
        self.stripewise("check")
        self.assertEqual(path.read_bytes(), content)

    def test_without_monitors_io_goes_on_and_commands_end(self):
        path, size = self.place / "data" / "file", 3 * MIB
        worker = self.worker(path)
        self.assertEqual(worker.ask("write", self.seed, 0, size), "ok")
        model = bytearray(bytes_of(self.seed, size))
        for how, undo in (("stop", "continue"), ("kill", "start")):
            self.ceph.obey(f"{how} mon")
            try:
                # The broker has its connections to the OSDs.
                self.assertEqual(worker.ask("write", 5, 500_000, 1_000_000), "ok")
                model[500_000:1_500_000] = bytes_of(5, 1_000_000)
                self.assertEqual(worker.read(0, size), bytes(model))
                self.stripewise("ls")
                self.assertEqual(worker.end()[0], 0)
                # Another has none.
                said = self.stripewise("run", "--", "cat", path, fails=True)
                self.assert_says(said, "server s0", "no Ceph monitor answers", self.ceph.conf)
                new = self.place / f"new-{how}"
                new.mkdir()
                said = self.run_in(new, STRIPEWISE, "init", *self.servers(), fails=True)
                self.assert_says(said, "no Ceph monitor answers", self.ceph.conf)
                said = self.run_in(new, STRIPEWISE, "init", "--ceph", "--conf", self.ceph.conf, fails=True)
                self.assert_says(said, "no Ceph monitor answers", self.ceph.conf)
                self.assertEqual(os.listdir(new), [])
            finally:
                self.ceph.obey(f"{undo} mon")
            worker = self.worker(path)
            self.assertEqual(worker.read(0, size), bytes(model))
        self.assertEqual(worker.end()[0], 0)
        self.stripewise("check")

    def compare(self, path, model):
        expected = self.place / "model"
        expected.write_bytes(model)
        self.stripewise("run", "--", "cmp", path, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
