#!/usr/bin/env python3
"""A cluster whose servers are four pools of a real Ceph: what a user does with it, from init to release, with every byte compared.

    STRIPEWISE=target/debug/stripewise tests/engines/test_on_ceph.py

Skipped, with the reason, where no Ceph can be had. It runs under the interpreter that Ceph's modules belong to.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ceph  # noqa: E402
from programs import PROGRAM, READ  # noqa: E402

STRIPEWISE = os.path.abspath(os.environ.get("STRIPEWISE", "target/debug/stripewise"))
MIB = 1 << 20


class OnCeph(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.ceph = cls.enterClassContext(ceph.Ceph(osds=4))
        except ceph.Unavailable as reason:
            raise unittest.SkipTest(f"no Ceph for tests: {reason}")
        cls.root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stripewise-on-ceph-")))

    def run_in(self, directory, *command, fails=False):
        result = subprocess.run(list(map(str, command)), cwd=directory, capture_output=True, text=True, timeout=300)
        if (result.returncode != 0) != fails:
            self.fail(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stderr if fails else result.stdout

    def servers(self):
        for number, pool in enumerate(self.ceph.pools):
            yield "--server"
            yield f"s{number}={'hdd' if number < 2 else 'ssd'}:rados://{pool}?conf={self.ceph.conf}"

    def test_a_file_lives_on_pools_from_its_first_byte_to_its_release(self):
        place = self.root / "cluster"
        data = place / "data"
        data.mkdir(parents=True)

        def stripewise(*words, fails=False):
            return self.run_in(place, STRIPEWISE, *words, fails=fails)

        stripewise("init", "--region", "8MiB", *self.servers())
        stripewise("manage", data)

        seed, size = random.randrange(1 << 30), 37 * MIB + 12345
        print(f"seed {seed}", file=sys.stderr)
        written = data / "written"
        expected = stripewise("run", "--", sys.executable, "-c", PROGRAM, written, seed, size).strip()
        self.assertEqual(stripewise("run", "--", sys.executable, "-c", READ, written).strip(), expected)
        self.assertLess(written.stat().st_size, 4096, "what lies in the directory is a stub")
        used = [self.used_bytes(pool) for pool in self.ceph.pools]
        self.assertGreaterEqual(sum(used), size, used)

        # Another file is copied in, moved to other pools and back, and released as it was.
        ordinary, copied = place / "ordinary", data / "copied"
        content = random.Random(seed + 1).randbytes(20 * MIB + 7)
        ordinary.write_bytes(content)
        stripewise("run", "--", "cp", ordinary, copied)
        for layout in ("s2 1MiB, s3 512KiB", "s0..s1 64KiB"):
            stripewise("restripe", copied, "--layout", layout)
            stripewise("run", "--", "cmp", ordinary, copied)
        stripewise("check")
        stripewise("release", copied)
        self.assertEqual(copied.read_bytes(), content)
        self.assertEqual(stripewise("run", "--", sys.executable, "-c", READ, written).strip(), expected)
        stripewise("release", written)
        self.assertEqual(self.run_in(place, sys.executable, "-c", READ, written).strip(), expected)
        stripewise("check")

    def test_a_file_is_traced_planned_applied_and_evacuated_on_pools(self):
        place = self.root / "planned"
        place.mkdir()
        data = place / "data"

        def stripewise(*words, fails=False):
            return self.run_in(place, STRIPEWISE, *words, fails=fails)

        stripewise("init", "--region", "8MiB", *self.servers())
        before = {pool: self.objects(pool) for pool in self.ceph.pools}
        stripewise("calibrate", "--quick", "--seconds", "4", "--file-size", "16MiB")
        for pool, objects in before.items():
            self.assertEqual(self.objects(pool), objects, "calibration leaves nothing behind")
        profile = json.loads((place / "profile.json").read_text())
        self.assertEqual([server["name"] for server in profile["servers"]], ["s0", "s1", "s2", "s3"])
        for server in profile["servers"]:
            for line in ("read_sequential", "read_random", "write_sequential", "write_random"):
                self.assertGreater(server[line]["alpha_s"] + server[line]["beta_s_per_byte"], 0, (server["name"], line))

        seed, size = random.randrange(1 << 30), 37 * MIB + 12345
        print(f"seed {seed}", file=sys.stderr)
        self.run_in(place, STRIPEWISE, "trace", "-o", "run.trace", "--", sys.executable, "-c", PROGRAM, data, seed, size)
        content = data.read_bytes()
        stripewise("plan", "run.trace", "--file", data, "--policy", "padp", "-o", "plan.json")
        stripewise("explain", "plan.json")
        # On a busy machine the servers may not do what the plan predicts, which is the finding of status 1.
        verified = subprocess.run(
            [STRIPEWISE, "calibrate", "--verify", "plan.json", "--quick", "--seconds", "1", "--file-size", "16MiB"],
            cwd=place, capture_output=True, text=True, timeout=300,
        )
        self.assertIn(verified.returncode, (0, 1), verified.stderr)
        for pool, objects in before.items():
            self.assertEqual(self.objects(pool), objects, "verification leaves nothing behind")
        # Four pools in memory on one machine differ by little; a person who wants the layout all the same says so.
        stripewise("apply", "--force", "plan.json")
        self.assertLess(data.stat().st_size, 4096, "what lies in the directory is a stub")
        compared = place / "compared"
        compared.write_bytes(content)
        stripewise("run", "--", "cmp", compared, data)
        expected = stripewise("run", "--", sys.executable, "-c", PROGRAM, data, seed + 1, size).strip()
        self.assertIn("s2", stripewise("stat", data))
        stripewise("report", "run.trace", "plan.json", "-o", "report.html")
        stripewise("evacuate", "s2")
        emptied = [name for name in self.objects(self.ceph.pools[2]) - before[self.ceph.pools[2]] if "/" in name[1]]
        self.assertEqual(emptied, [], "an evacuated pool holds no data")
        self.assertEqual(stripewise("run", "--", sys.executable, "-c", READ, data).strip(), expected)
        stripewise("check")
        stripewise("release", data)
        self.assertEqual(self.run_in(place, sys.executable, "-c", READ, data).strip(), expected)

    def test_a_throttled_pool_is_as_slow_as_its_url_says_and_named_so(self):
        place = self.root / "throttled"
        (place / "data").mkdir(parents=True)
        startup_s, rate, piece, pieces = 0.02, 8 * MIB, 256 << 10, 16
        servers = list(self.servers())
        servers[1] += f"&throttle=20ms+{rate}B/s"
        self.run_in(place, STRIPEWISE, "init", "--region", "1MiB", *servers)
        self.run_in(place, STRIPEWISE, "manage", "data")
        self.run_in(place, STRIPEWISE, "run", "--", "truncate", "-s", piece * pieces, "data/file")
        # Each request waits for the one before it, so their times add up.
        program = (
            "import os, sys, time; fd = os.open('data/file', os.O_RDWR); piece, pieces = map(int, sys.argv[1:]); data = os.urandom(piece); begun = time.monotonic()\n"
            "for number in range(pieces): assert os.pwrite(fd, data, number * piece) == piece\n"
            "written = time.monotonic()\n"
            "for number in range(pieces): assert os.pread(fd, piece, number * piece) == data\n"
            "print(written - begun, time.monotonic() - written)"
        )
        for server, is_throttled in (("s0", True), ("s1", False)):
            self.run_in(place, STRIPEWISE, "restripe", "data/file", "--layout", f"{server} 1MiB")
            took = self.run_in(place, STRIPEWISE, "run", "--", sys.executable, "-c", program, piece, pieces)
            print(f"{server}: writing and reading took {took.strip()} s", file=sys.stderr)
            for seconds in map(float, took.split()):
                if is_throttled:
                    self.assertGreaterEqual(seconds, pieces * (startup_s + piece / rate) * 0.95)
        self.run_in(place, STRIPEWISE, "calibrate", "--quick", "--seconds", "1", "--file-size", "16MiB")
        written = json.loads((place / "profile.json").read_text())
        profile = {server["name"]: server for server in written["servers"]}
        for line in ("read_random", "write_random"):
            self.assertGreaterEqual(profile["s0"][line]["alpha_s"] + MIB * profile["s0"][line]["beta_s_per_byte"], (startup_s + MIB / rate) * 0.8, line)
        named = [caveat for caveat in written["caveats"] if "throttled" in json.dumps(caveat)]
        self.assertEqual([("s0" in json.dumps(caveat), "s1" in json.dumps(caveat)) for caveat in named], [(True, False)], named)

    def test_an_interrupted_calibration_leaves_no_objects(self):
        place = self.root / "interrupted"
        place.mkdir()
        self.run_in(place, STRIPEWISE, "init", *self.servers())
        before = {pool: self.objects(pool) for pool in self.ceph.pools}
        pool = self.ceph.pools[0]
        running = subprocess.Popen([STRIPEWISE, "calibrate"], cwd=place, stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.kill)
        while self.objects(pool) == before[pool]:
            self.assertIsNone(running.poll(), "it ended before it measured anything")
        running.send_signal(signal.SIGINT)
        error = running.communicate(timeout=60)[1]
        self.assertEqual(running.returncode, 130, error)
        for pool, objects in before.items():
            self.assertEqual(self.objects(pool), objects)
        self.assertFalse((place / "profile.json").exists())

    def objects(self, pool):
        """Namespace and name of every object in the pool."""
        with self.ceph.handle.open_ioctx(pool) as ioctx:
            ioctx.set_namespace(self.ceph.rados.LIBRADOS_ALL_NSPACES)
            return {(found.nspace, found.key) for found in ioctx.list_objects()}

    def used_bytes(self, pool):
        """Of all objects of all clusters in the pool."""
        with self.ceph.handle.open_ioctx(pool) as ioctx:
            ioctx.set_namespace(self.ceph.rados.LIBRADOS_ALL_NSPACES)
            used = 0
            for found in ioctx.list_objects():
                ioctx.set_namespace(found.nspace)
                used += ioctx.stat(found.key)[0]
                ioctx.set_namespace(self.ceph.rados.LIBRADOS_ALL_NSPACES)
            return used

    def test_what_cannot_be_a_server_is_refused_by_name(self):
        place = self.root / "refused"
        place.mkdir()

        def refused(pool, expected):
            url = f"a=hdd:rados://{pool}?conf={self.ceph.conf}"
            error = self.run_in(place, STRIPEWISE, "init", "--server", url, fails=True)
            self.assertIn(expected, error)
            self.assertFalse((place / "cluster.toml").exists())

        refused("nowhere", "there is no pool nowhere")
        refused("coded", "pool coded is erasure-coded")

    def test_a_pool_that_cannot_have_the_mapping_table_is_refused_by_name(self):
        place = self.root / "tables"
        (place / "a").mkdir(parents=True)

        def refused(expected, *words):
            error = self.run_in(place, STRIPEWISE, "init", "--server", f"a=hdd:{place / 'a'}", *words, fails=True)
            self.assertIn(expected, error)
            self.assertEqual(os.listdir(place), ["a"])
            self.assertEqual(os.listdir(place / "a"), [])

        ceph = ("--conf", self.ceph.conf)
        refused("there is no pool nowhere", "--rados", "nowhere", *ceph)
        refused("pool coded is erasure-coded", "--rados", "coded", *ceph)
        refused("cannot be used with", "--rados", "pool0", "--etcd", "http://localhost:1", *ceph)
        refused("required arguments", *ceph)
        self.run_in(place, STRIPEWISE, "init", "--server", f"a=hdd:{place / 'a'}", "--rados", "pool0", *ceph)
        text = (place / "cluster.toml").read_text()
        self.assertIn('rados = "pool0"', text)
        self.assertIn(f'rados_conf = "{self.ceph.conf}"', text)


class FoundOnCeph(unittest.TestCase):
    """What `init --ceph` finds in a Ceph with keys, and what it says is in the way."""

    def setUp(self):
        try:
            self.ceph = self.enterContext(ceph.Ceph(osds=3, auth=True))
        except ceph.Unavailable as reason:
            self.skipTest(f"no Ceph for tests: {reason}")
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="stripewise-found-on-ceph-")))

    def order(self, prefix, **arguments):
        self.ceph._command(prefix, **arguments)

    def init(self, *words):
        """In a new directory; returns the servers by name, or what went wrong as text."""
        place = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        command = [STRIPEWISE, "--json", "init", "--ceph", "--conf", self.ceph.conf, *words]
        result = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300)
        if result.returncode:
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertFalse((place / "cluster.toml").exists(), "nothing is written")
            self.assertEqual(os.listdir(place), [])
            return result.stderr + result.stdout
        self.assertTrue((place / "cluster.toml").exists())
        return {server["name"]: (server["class"], server["url"]) for server in json.loads(result.stdout)["cluster"]["server"]}

    def url(self, pool, parameters=""):
        return f"rados://{pool}?conf={self.ceph.conf}{parameters}"

    def assert_says(self, said, *parts):
        self.assertIsInstance(said, str, said)
        for part in parts:
            self.assertIn(part, said)

    def test_each_osd_is_a_server_and_missing_pools_are_made_by_the_commands_that_are_named(self):
        self.assertEqual(self.init(), {f"osd{n}": ("hdd", self.url(f"pool{n}")) for n in range(3)})
        # OSD 2 moves to another's host, whose rule then reaches both: each needs a bucket, a rule and a pool.
        self.order("osd crush set", id=2, weight=1.0, args=["root=default", "host=host0"])
        self.order("osd pool set", pool="pool2", var="crush_rule", val="replicated_rule")
        said = self.init()
        prefix = f"ceph --conf {self.ceph.conf} "
        self.assert_says(
            said, "--create-pools", "lost with its OSD",
            prefix + "osd crush add-bucket stripewise-osd2 host", prefix + "osd crush add osd.2 1.00000 host=stripewise-osd2",
            prefix + "osd crush rule create-replicated stripewise-osd2 stripewise-osd2 osd",
            prefix + "osd pool create stripewise-osd2 32 32 replicated stripewise-osd2 --size=1",
        )
        self.assertNotIn("stripewise-osd1", said)
        # What is printed can be run: here up to the rule, the rest by the command itself.
        for line in said.replace("\\n", "\n").splitlines():
            if " osd crush " in line and line.strip().startswith("ceph "):
                subprocess.run(line.split(), check=True, capture_output=True, timeout=60)
        self.assertNotIn("add-bucket", self.init())
        made = self.init("--create-pools")
        self.assertEqual(made["osd2"], ("hdd", self.url("stripewise-osd2")))
        self.assertEqual(self.init(), made)
        mapped = self.ceph._command("osd map", pool="stripewise-osd2", object="x")
        self.assertEqual(mapped["acting"], [2])

    def test_what_is_in_the_way_is_named_with_its_remedy_all_at_once(self):
        self.order("osd crush rm-device-class", ids=["0", "1"])
        self.order("osd crush set-device-class", **{"class": "quick", "ids": ["1"]})
        self.order("osd pool set-quota", pool="pool0", field="max_bytes", val=str(MIB))
        said = self.init()
        self.assert_says(
            said, "osd.0 has no device class", "--osd-class osd.0=hdd", "osd.1 has the device class `quick`", "--osd-class quick=ssd",
        )
        classes = ["--osd-class", "osd.0=hdd", "--osd-class", "quick=ssd"]
        self.assert_says(self.init(*classes), "pool pool0 has a quota of 1 MiB", "set-quota pool0 max_bytes")
        self.assertEqual(
            {name: of for name, (of, _) in self.init("--region", "1MiB", *classes).items()},
            {"osd0": "hdd", "osd1": "ssd", "osd2": "hdd"},
        )
        self.order("osd pool set", pool="pool1", var="size", val="2")
        self.assert_says(self.init(*classes), "keep each byte on 2 OSDs", "osd pool set pool1 size 1")
        self.order("osd pool set", pool="pool1", var="size", val="1", yes_i_really_mean_it=True)
        # The name of the new pool is taken by an erasure-coded one.
        self.order("osd pool set", pool="pool2", var="crush_rule", val="replicated_rule")
        self.order("osd pool create", pool="stripewise-osd2", pg_num=1, pool_type="erasure", erasure_code_profile="two-one")
        self.assert_says(self.init("--create-pools", *classes), "pool stripewise-osd2", "erasure-coded", "osd pool rename")
        self.order("osd out", ids=["1"])
        self.ceph.obey("kill 0")
        self.ceph._wait("osd.0 down", lambda: self.ceph.up_from(0) == 0)
        self.assert_says(self.init(*classes), "osd.0 is down; start it", "osd.1 is out", "ceph osd in 1")

    def test_keys_that_may_too_little_are_refused_with_what_they_need(self):
        def user(name, mon, osd):
            keyring = self.ceph._ask("auth get-or-create", entity=f"client.{name}", caps=["mon", mon, "osd", osd])
            (pathlib.Path(self.ceph.directory) / f"client.{name}.keyring").write_bytes(keyring)

        user("weak", "allow r", "allow rwx")
        said = self.init("--user", "weak")
        self.assert_says(said, "client.weak may not blocklist", "auth caps client.weak", "osd blocklist")
        user("reader", 'allow r, allow command "osd blocklist"', "allow r")
        self.assert_says(self.init("--user", "reader"), "Ceph denies it to user client.reader")
        user("enough", 'allow r, allow command "osd blocklist"', "allow rwx")
        place = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        table = [STRIPEWISE, "init", "--server", f"a=hdd:{place}", "--rados", "pool0", "--conf", self.ceph.conf, "--user", "weak"]
        result = subprocess.run(table, cwd=place, capture_output=True, text=True, timeout=300)
        self.assertEqual((result.returncode, os.listdir(place)), (2, []), result.stderr)
        self.assert_says(result.stderr, "client.weak may not blocklist", f"ceph --conf {self.ceph.conf} auth caps client.weak", "osd blocklist")
        servers = self.init("--user", "enough")
        self.assertEqual(servers["osd0"], ("hdd", self.url("pool0", "&user=enough")))
        self.assert_says(self.init("--user", "nobody"), "no key for client.nobody", "ceph auth get-or-create client.nobody")
        ring = pathlib.Path(self.ceph.directory) / "client.enough.keyring"
        ring.write_text("[client.enough]\n\tkey = AQAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAA==\n")
        self.assert_says(self.init("--user", "enough"), "client.enough")
        # The probe leaves nothing blocklisted.
        self.assertEqual(self.ceph._command("osd dump")["blocklist"], {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
