#!/usr/bin/env python3
"""A cluster whose servers are four I/O servers of OrangeFS: what a user does with it, from init to release, with every byte compared.

    STRIPEWISE=target/debug/stripewise tests/engines/test_on_orangefs.py

The servers are the stand-in's, whose library also checks how it is called; or real ones, where ORANGEFS names an installation
(docs/orangefs.md).
"""

import errno
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import orangefs  # noqa: E402
from programs import PROGRAM, READ  # noqa: E402

STRIPEWISE = os.path.abspath(os.environ.get("STRIPEWISE", "target/debug/stripewise"))
MIB = 1 << 20


# Reads a file until that fails, says how, waits for a line and reads on.
UNTIL_IT_FAILS = r"""
import os, sys
descriptor, content = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), bytes(range(256)) * 64
assert os.pwrite(descriptor, content, 0) == len(content)
print("ready", flush=True)
try:
    while True:
        assert os.pread(descriptor, len(content), 0) == content
except OSError as error:
    print(error.errno, flush=True)
sys.stdin.readline()
assert os.pread(descriptor, len(content), 0) == content
os.fsync(descriptor)
print("right", flush=True)
"""


class OnOrangeFS(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.orangefs = cls.enterClassContext(orangefs.start(servers=4))
        except orangefs.Unavailable as reason:
            print(f"SKIPPED: no OrangeFS for tests: {reason}", file=sys.stderr)
            raise unittest.SkipTest(str(reason))
        cls.root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stripewise-on-orangefs-")))

    def tearDown(self):
        self.assertEqual(self.orangefs.violations(), "")

    def run_in(self, directory, *command, fails=False):
        result = subprocess.run(
            list(map(str, command)), cwd=directory, env=self.orangefs.environment(), capture_output=True, text=True, timeout=300
        )
        if (result.returncode != 0) != fails:
            self.fail(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stderr if fails else result.stdout

    def url(self, number):
        return f"orangefs://{self.orangefs.servers[number]}?fs={self.orangefs.fs}"

    def servers(self):
        for number in range(4):
            yield "--server"
            yield f"s{number}={'hdd' if number < 2 else 'ssd'}:{self.url(number)}"

    def test_a_file_lives_on_io_servers_from_its_first_byte_to_its_release(self):
        place = self.root / "cluster"
        data = place / "data"
        data.mkdir(parents=True)

        def stripewise(*words):
            return self.run_in(place, STRIPEWISE, *words)

        stripewise("init", "--region", "8MiB", *self.servers())
        stripewise("manage", data)
        seed, size = random.randrange(1 << 30), 37 * MIB + 12345
        print(f"seed {seed}", file=sys.stderr)
        written = data / "written"
        expected = stripewise("run", "--", sys.executable, "-c", PROGRAM, written, seed, size).strip()
        self.assertEqual(stripewise("run", "--", sys.executable, "-c", READ, written).strip(), expected)
        self.assertLess(written.stat().st_size, 4096, "what lies in the directory is a stub")
        used = [self.orangefs.stored_bytes(number) for number in range(4)]
        self.assertGreaterEqual(sum(used), size, used)

        # Another file is copied in, moved to other servers and back, and released as it was.
        ordinary, copied = place / "ordinary", data / "copied"
        content = random.Random(seed + 1).randbytes(20 * MIB + 7)
        ordinary.write_bytes(content)
        stripewise("run", "--", "cp", ordinary, copied)
        for layout, places in (("s2 1MiB, s3 512KiB", (2, 3)), ("s0..s1 64KiB", (0, 1))):
            before = [self.orangefs.stored_bytes(number) for number in range(4)]
            stripewise("restripe", copied, "--layout", layout)
            stripewise("run", "--", "cmp", ordinary, copied)
            after = [self.orangefs.stored_bytes(number) for number in range(4)]
            gained = sum(after[number] - before[number] for number in places)
            self.assertGreater(gained, 0, (layout, before, after))
        stripewise("check")
        stripewise("release", copied)
        self.assertEqual(copied.read_bytes(), content)
        self.assertEqual(stripewise("run", "--", sys.executable, "-c", READ, written).strip(), expected)
        stripewise("release", written)
        self.assertEqual(self.run_in(place, sys.executable, "-c", READ, written).strip(), expected)
        stripewise("check")

    def test_a_file_is_traced_planned_applied_and_evacuated_on_io_servers(self):
        place = self.root / "planned"
        place.mkdir()
        data = place / "data"

        def stripewise(*words, fails=False):
            return self.run_in(place, STRIPEWISE, *words, fails=fails)

        stripewise("init", "--region", "8MiB", *self.servers())
        before = [self.orangefs.stored_bytes(number) for number in range(4)]
        stripewise("calibrate", "--quick", "--seconds", "1", "--file-size", "16MiB")
        after = [self.orangefs.stored_bytes(number) for number in range(4)]
        self.assertEqual(after, before, "calibration leaves nothing behind")
        profile = json.loads((place / "profile.json").read_text())
        self.assertEqual([server["name"] for server in profile["servers"]], ["s0", "s1", "s2", "s3"])
        for server in profile["servers"]:
            for line in ("read_sequential", "read_random", "write_sequential", "write_random"):
                self.assertGreater(server[line]["alpha_s"] + server[line]["beta_s_per_byte"], 0, (server["name"], line))
            self.assertIn("buffered_write", server, "a write is acknowledged before it is on the disks")

        seed, size = random.randrange(1 << 30), 37 * MIB + 12345
        print(f"seed {seed}", file=sys.stderr)
        stripewise("trace", "-o", "run.trace", "--", sys.executable, "-c", PROGRAM, data, seed, size)
        content = data.read_bytes()
        stripewise("plan", "run.trace", "--file", data, "--policy", "padp", "-o", "plan.json")
        stripewise("explain", "plan.json")
        # Four servers on one machine differ by little; a person who wants the layout all the same says so.
        stripewise("apply", "--force", "plan.json")
        self.assertLess(data.stat().st_size, 4096, "what lies in the directory is a stub")
        compared = place / "compared"
        compared.write_bytes(content)
        stripewise("run", "--", "cmp", compared, data)
        expected = stripewise("run", "--", sys.executable, "-c", PROGRAM, data, seed + 1, size).strip()
        self.assertIn("s2", stripewise("stat", data))
        stripewise("report", "run.trace", "plan.json", "-o", "report.html")
        with_data = self.orangefs.stored_bytes(2)
        self.assertGreater(with_data, before[2] + 4096)
        stripewise("evacuate", "s2")
        self.assertLess(self.orangefs.stored_bytes(2), before[2] + 4096, "an evacuated server holds no data but a description")
        self.assertEqual(stripewise("run", "--", sys.executable, "-c", READ, data).strip(), expected)
        stripewise("check")
        stripewise("release", data)
        self.assertEqual(self.run_in(place, sys.executable, "-c", READ, data).strip(), expected)

        if self.orangefs.describe()["is_real"]:
            return
        self.leave_free(MIB)
        self.assertIn("calibration needs", stripewise("calibrate", "--quick", "--seconds", "1", fails=True))
        again = ("plan", "run.trace", "--file", data, "--policy", "padp", "-o", "again.json")
        self.assertIn("have space for", stripewise(*again, fails=True))
        self.leave_free(100 * MIB)
        stripewise(*again)
        self.leave_free(MIB)
        self.assertRegex(stripewise("apply", "--force", "again.json", fails=True), "server s[0-3]")
        self.assertEqual(self.run_in(place, sys.executable, "-c", READ, data).strip(), expected, "nothing was moved")

    def leave_free(self, free):
        """Has each server store so much more and no further."""
        self.addCleanup(lambda: [self.orangefs.control(number) for number in range(4)])
        for number in range(4):
            self.orangefs.control(number, f"capacity={self.orangefs.stored_bytes(number) + free}")

    def test_an_interrupted_calibration_leaves_no_objects(self):
        if self.orangefs.describe()["is_real"]:
            self.skipTest("the stand-in shows its objects one by one")
        place = self.root / "interrupted"
        place.mkdir()
        self.run_in(place, STRIPEWISE, "init", *self.servers())
        before = [self.orangefs.objects(number) for number in range(4)]
        running = subprocess.Popen(
            [STRIPEWISE, "calibrate"], cwd=place, env=self.orangefs.environment(), stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(running.kill)
        while self.orangefs.objects(0) == before[0]:
            self.assertIsNone(running.poll(), "it ended before it measured anything")
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        error = running.communicate(timeout=60)[1]
        self.assertEqual(running.returncode, 130, error)
        self.assertEqual([self.orangefs.objects(number) for number in range(4)], before)
        self.assertFalse((place / "profile.json").exists())

    def test_programs_see_that_no_credential_is_to_be_had_and_go_on_when_one_is(self):
        if self.orangefs.describe()["is_real"]:
            self.skipTest("the stand-in is ordered to make no credentials")
        place = self.root / "credentials"
        place.mkdir()
        (place / "data").mkdir()
        self.run_in(place, STRIPEWISE, "init", *self.servers())
        self.run_in(place, STRIPEWISE, "manage", place / "data")
        self.addCleanup(self.orangefs.credential, None)
        # Long enough for an operation that began just before it is renewed.
        self.orangefs.credential(8)
        words = [STRIPEWISE, "run", "--", sys.executable, "-c", UNTIL_IT_FAILS, place / "data" / "file"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running = subprocess.Popen(list(map(str, words)), cwd=place, env=self.orangefs.environment(), **pipes)
        self.addCleanup(running.kill)
        self.assertEqual(running.stdout.readline(), "ready\n")
        self.orangefs.credential(0)
        self.assertEqual(running.stdout.readline(), f"{errno.EIO}\n")
        self.orangefs.credential(None)
        said, error = running.communicate("go on\n", timeout=60)
        self.assertEqual(said, "right\n", error)
        self.assertIn("OrangeFS does not take this user's credential", error)
        self.assertEqual(running.returncode, 0)

    def test_what_cannot_be_a_server_is_refused_by_name(self):
        place = self.root / "refused"
        place.mkdir()

        def refused(url, expected):
            error = self.run_in(place, STRIPEWISE, "init", "--server", f"a=hdd:{url}", fails=True)
            self.assertIn(expected, error)
            self.assertFalse((place / "cluster.toml").exists())

        refused(self.url(0).replace(self.orangefs.servers[0] + "?", "10.9.8.7:1?", 1), "has no I/O server 10.9.8.7:1; it has tcp://127.0.0.1")
        refused(f"orangefs://{self.orangefs.servers[0]}?colour=red/", "unknown parameter")
        refused(f"orangefs:///{self.orangefs.servers[0]}?fs={self.orangefs.fs}", "address of one I/O server")


if __name__ == "__main__":
    unittest.main()
