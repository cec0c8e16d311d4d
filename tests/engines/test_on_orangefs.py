#!/usr/bin/env python3
"""A cluster whose servers are four I/O servers of a real OrangeFS: what a user does with it, from init to release, with every byte compared.

    ORANGEFS=/opt/orangefs STRIPEWISE=target/debug/stripewise tests/engines/test_on_orangefs.py

Skipped, with the reason, where no OrangeFS can be had (docs/orangefs.md).
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import orangefs  # noqa: E402
from programs import PROGRAM, READ  # noqa: E402

STRIPEWISE = os.path.abspath(os.environ.get("STRIPEWISE", "target/debug/stripewise"))
MIB = 1 << 20


class OnOrangeFS(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.orangefs = cls.enterClassContext(orangefs.OrangeFS(servers=4))
        except orangefs.Unavailable as reason:
            print(f"SKIPPED: no OrangeFS for tests: {reason}", file=sys.stderr)
            raise unittest.SkipTest(str(reason))
        cls.root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stripewise-on-orangefs-")))

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
