#!/usr/bin/env python3
"""The mapping table that hosts share, damaged and lost: found, not served, and made again, in a real etcd and in a pool of a real Ceph.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_table.py [NAME...]

Exit status 0 where hosts, an etcd or a Ceph cannot be had: the tests skip then, and say why.
"""

import hashlib
import json
import pathlib
import random
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402
from clusters import UNHURRIED_SECONDS  # noqa: E402
from test_sharing import REGION, STRIPEWISE, WAIT_SECONDS, Cluster  # noqa: E402

# Of a table in etcd: endpoint, cluster, then what is to be done. Keys are asked for and given in hexadecimal digits.
IN_ETCD = r"""
import base64, json, sys, urllib.request
endpoint, cluster, verb, *keys = sys.argv[1:]
prefix = f"stripewise/{cluster}/".encode()
def ask(path, **message):
    encode = lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else value
    body = json.dumps({name: encode(value) for name, value in message.items()}).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(f"{endpoint}/v3/{path}", body)))
def behind(start):
    return start[:-1] + bytes([start[-1] + 1])
table = lambda key: prefix + b"t/" + bytes.fromhex(key)
if verb == "keys":
    found = ask("kv/range", key=prefix + b"t/", range_end=behind(prefix + b"t/")).get("kvs", [])
    print(*(base64.b64decode(entry["key"])[len(prefix) + 2 :].hex() for entry in found))
elif verb == "remove":
    for key in keys:
        ask("kv/deleterange", key=table(key))
elif verb == "damage":
    for key in keys:
        ask("kv/put", key=table(key), value=b"nonsense")
elif verb == "remove-all":
    ask("kv/deleterange", key=prefix, range_end=behind(prefix))
elif verb == "forget":
    now = ask("kv/range", key=prefix)["header"]["revision"]
    ask("kv/compaction", revision=now, physical=True)
"""

# The same of a table in a pool: configuration, pool, cluster.
IN_POOL = r"""
import rados, sys
conf, pool, cluster, verb, *keys = sys.argv[1:]
with rados.Rados(conffile=conf, rados_id="admin") as ceph, ceph.open_ioctx(pool) as ioctx:
    ioctx.set_namespace(f"stripewise-{cluster}-table")
    def all_keys(prefix):
        with rados.ReadOpCtx() as operation:
            found, _ = ioctx.get_omap_vals(operation, "", prefix, 100000)
            ioctx.operate_read_op(operation, "table")
            return [key for key, _ in found]
    def change(act):
        with rados.WriteOpCtx() as operation:
            act(operation)
            ioctx.operate_write_op(operation, "table")
    names = tuple("t/" + key for key in keys)
    if verb == "keys":
        print(*(key[2:] for key in all_keys("t/")))
    elif verb == "remove":
        change(lambda operation: ioctx.remove_omap_keys(operation, names))
    elif verb == "damage":
        change(lambda operation: ioctx.set_omap(operation, names, (b"=nonsense",) * len(names)))
    elif verb == "remove-all":
        ioctx.remove_object("table")
    elif verb == "forget":
        recent = tuple(all_keys("w/"))
        change(lambda operation: ioctx.remove_omap_keys(operation, recent))
"""


class InEtcd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=3))
            cls.cluster = Cluster(cls.bed)
            cls.table = [sys.executable, "-c", IN_ETCD, cls.bed.etcd()]
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        cls.write_files()

    @classmethod
    def write_files(cls):
        """Files of all kinds, by all hosts: what they hold, by path."""
        text = pathlib.Path(cls.cluster.env["STRIPEWISE_CLUSTER"]).read_text()
        cls.id = re.search(r'^id = "(.*)"', text, re.MULTILINE)[1]
        choose, directory = random.Random(7), cls.cluster.directory
        source, cls.files = pathlib.Path(cls.bed.common) / "source", {}
        script = "mkdir -p $2/below && cp $1 $2/long && cp $1 $2/moved && cp $1 $2/below/cut && cp $1 $2/old && : > $2/empty && sync $2/*"
        data = choose.randbytes(3 * REGION + 777)
        source.write_bytes(data)
        cls.cluster.run(1, "sh", "-c", script, "sh", str(source), str(directory))
        cls.cluster.run(2, "sh", "-c", "truncate -s 1500000 $1/below/cut && mv $1/old $1/new", "sh", str(directory))
        cls.cluster.stripewise(2, "restripe", str(directory / "moved"), "--layout", "c 256KiB")
        cls.files = {"long": data, "moved": data, "below/cut": data[:1_500_000], "new": data, "empty": b""}

    def ask_table(self, verb, *keys):
        words = [*self.table, self.id, verb, *keys]
        done = self.bed.run(self.outside, words, timeout=WAIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    outside = 0

    def keys_of(self, kind):
        return [key for key in self.ask_table("keys") if bytes.fromhex(key)[:1] == kind]

    def command(self, host, *words):
        return self.bed.run(host, [STRIPEWISE, *words], env=self.cluster.env, timeout=WAIT_SECONDS)

    def found_and_refused(self, what):
        """`check` says it on any host, and no host serves from the table."""
        found = self.command(1, "check", "--json")
        self.assertEqual(found.returncode, 1, found.stdout + found.stderr)
        findings = json.loads(found.stdout)["findings"]
        self.assertTrue(any(what in finding["what"] for finding in findings), findings)
        refused = self.command(2, "run", "--", "cat", str(self.cluster.directory / "long"))
        self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
        self.assertIn("check --repair", refused.stderr)

    def repaired(self, said):
        """`check --repair` says so, and afterwards every byte is there on every host."""
        done = self.command(1, "check", "--repair", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        findings = json.loads(done.stdout)["findings"]
        self.assertTrue(any(said in finding["what"] for finding in findings), findings)
        expected = [hashlib.sha256(data).hexdigest() for data in self.files.values()]
        for host in range(3):
            found = self.cluster.run(host, "sha256sum", *(str(self.cluster.directory / name) for name in self.files))
            self.assertEqual([line.split()[0] for line in found.splitlines()], expected, f"{list(self.files)} on host {host}")
        self.assertEqual(self.command(0, "check").returncode, 0)

    def test_what_was_damaged_or_removed_is_put_back_from_the_history(self):
        regions, files = self.keys_of(b"r"), self.keys_of(b"f")
        self.ask_table("damage", regions[0])
        self.ask_table("remove", regions[1], files[0])
        self.found_and_refused("checksum")
        self.repaired("put back as its last master left it")

    def test_without_history_the_table_is_made_from_what_servers_are_told(self):
        regions, files = self.keys_of(b"r"), self.keys_of(b"f")
        self.ask_table("damage", *regions[::2])
        self.ask_table("remove", regions[1], *files[::2])
        self.ask_table("forget")
        self.found_and_refused("checksum")
        self.repaired("was rebuilt")

    def test_a_lost_table_is_made_from_what_servers_are_told(self):
        self.ask_table("remove-all")
        if not self.forgets_by_itself:
            self.ask_table("forget")
        self.found_and_refused("empty")
        self.repaired("was rebuilt")
        # Managed directories are named in the table alone.
        self.cluster.stripewise(0, "manage", str(self.cluster.directory))
        self.cluster.run(2, "cp", str(pathlib.Path(self.bed.common) / "source"), str(self.cluster.directory / "later"))
        self.assertIn("later", self.cluster.stripewise(1, "ls"))

    def test_a_table_that_was_removed_is_put_back_from_the_history(self):
        if self.forgets_by_itself:
            self.skipTest("the history goes with the table")
        self.ask_table("remove-all")
        self.found_and_refused("empty")
        self.repaired("put back as its last master left it")

    forgets_by_itself = False


class InAPool(InEtcd):
    """The same with the table in a pool, and servers that are pools."""

    outside, forgets_by_itself = None, True

    @classmethod
    def setUpClass(cls):
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=3))
            ceph = cls.enterClassContext(cls.bed.ceph("--osds", "4"))
            pool = ceph["pools"][3]
            cls.cluster = Cluster(cls.bed, "--rados", pool, "--conf", ceph["conf"], ceph=ceph, host_timeout_s=UNHURRIED_SECONDS)
            cls.table = ["/usr/bin/python3", "-c", IN_POOL, ceph["conf"], pool]
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        cls.write_files()


if __name__ == "__main__":
    unittest.main(verbosity=2)
