#!/usr/bin/env python3
"""`stripewise export` on a real CephFS and a real MooseFS: the script runs as it is printed, the bytes end on the targets that it names, and files stay as they were.

    STRIPEWISE=target/debug/stripewise tests/engines/test_export.py

Skipped, with the reason, where one of them cannot be had. It runs under the interpreter that Ceph's modules belong to.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ceph  # noqa: E402
import cephfs  # noqa: E402
import moosefs  # noqa: E402

STRIPEWISE = os.path.abspath(os.environ.get("STRIPEWISE", "target/debug/stripewise"))
MIB = 1 << 20
# Names that a shell would take apart.
NAMES = "plain", "two words", "it's \"quoted\" $HOME", "a\nline"
HEAD = "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns\n"


def line(alpha_s):
    return {"alpha_s": alpha_s, "beta_s_per_byte": 8e-9, "r2": 1.0, "spread": 0.05, "samples": 9}


class Exports(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="stripewise-export-")))

    def run_in(self, *command, **options):
        result = subprocess.run(list(map(str, command)), cwd=self.place, capture_output=True, text=True, timeout=120, **options)
        if result.returncode:
            self.fail(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stdout

    def plan(self, targets, files, region):
        """Plans random reads of small size of the files for a cluster of servers that are named as the targets are: the last two are SSDs."""
        classes = {name: "ssd" if number >= len(targets) - 2 else "hdd" for number, name in enumerate(targets)}
        servers = "".join(f'[[server]]\nname = "{name}"\nclass = "{classes[name]}"\nurl = "file:///nowhere/{name}"\ncapacity = "1GiB"\n' for name in targets)
        (self.place / "cluster.toml").write_text(f'version = 1\nid = "export"\nstate = "state"\nregion = "{region}MiB"\n{servers}')
        of = {"hdd": line(8e-3), "ssd": line(1e-4)}
        kinds = ("read_sequential", "read_random", "write_sequential", "write_random")
        (self.place / "profile.json").write_text(json.dumps({
            "version": 3, "cluster": "export", "emulated": False, "measured_at": "",
            "servers": [{"name": name, "class": classes[name], **{kind: of[classes[name]] for kind in kinds}} for name in targets],
            "network": {"e_s": 0.0, "t_s_per_byte": 0.0, "source": "local"},
        }))
        rng, rows = random.Random(7), [HEAD]
        size = files[0].stat().st_size
        for number in range(600):
            path = str(files[number % len(files)])
            quoted = '"' + path.replace('"', '""') + '"'
            # A plan knows the size of a file by its farthest request.
            offset = size - 65536 if number < len(files) else rng.randrange(0, size - 65536) & ~4095
            start = number * 1_000_000
            rows.append(f"n,{7 + number % 4},{number % 4},4,posix,read,pread,,{quoted},,{offset},65536,,{start},{start + 800_000}\n")
        (self.place / "trace.csv").write_text("".join(rows))
        prefixes = [word for file in files for word in ("--file", str(file))]
        self.run_in(STRIPEWISE, "plan", "trace.csv", "--policy", "opt", "-o", "plan.json", *prefixes)
        return classes

    def export(self, kind, mount, default, classes, pools):
        """Files and script for a site whose targets have these classes and pools."""
        groups = "".join(
            f'[[targets]]\nclass = "{classes[name]}"\nnames = ["{name}"]\npool = "{pool}"\ncapacity = "1GiB"\n'
            f'bandwidth = "125MB/s"\nlatency_ms = {8.0 if classes[name] == "hdd" else 0.1}\n'
            for name, pool in pools.items()
        )
        head = f'version = 1\nfs = "{kind}"\nmount = "{mount}"\n[default]\npool = "{default}"\n'
        (self.place / "site.toml").write_text(head + groups)
        printed = json.loads(self.run_in(STRIPEWISE, "--json", "export", "plan.json", "--site", "site.toml", "-o", "layouts"))
        self.assertEqual(printed["export"]["refused"], [])
        predicted = printed["export"]["predicted"]
        self.assertGreater(predicted["ideal"]["time_s"], 0)
        self.assertGreater(predicted["gain"]["expected"], 0, "small random reads gain by leaving the disks")
        return printed["export"]["files"], printed["output"]

    def expected(self, files, targets, in_all):
        """Bytes that the export says of each target."""
        sums = dict.fromkeys(targets, 0)
        for file in files:
            for target in file["targets"]:
                sums[target["name"]] += target["bytes"]
        self.assertEqual(sum(sums.values()), in_all)
        return sums

    def written(self, directory, size):
        seed = random.randrange(1 << 30)
        print(f"seed {seed}", file=sys.stderr)
        contents = {directory / name: random.Random(f"{seed} {name}").randbytes(size) for name in NAMES}
        for path, content in contents.items():
            path.write_bytes(content)
        return contents

    def test_cephfs_has_the_bytes_on_the_osds_that_the_plan_names(self):
        try:
            site = self.enterContext(cephfs.CephFS(osds=4))
        except ceph.Unavailable as reason:
            self.skipTest(f"no CephFS for tests: {reason}")
        size = 2 * MIB + 4321
        contents = self.written(site.mount, size)
        os.sync()
        targets = [f"osd.{number}" for number in range(4)]
        classes = self.plan(targets, list(contents), 1)
        pools = dict(zip(targets, site.pools))
        files, script = self.export("cephfs", site.mount, "pool0", classes, pools)
        self.run_in("/bin/sh", script)
        expected = self.expected(files, targets, len(contents) * size)
        # What the mount holds back.
        os.sync()
        self.assertEqual({name: site.pool_bytes(pool) for name, pool in pools.items()}, expected)
        for path, content in contents.items():
            self.assertEqual(path.read_bytes(), content)
        self.assertEqual(sorted(site.mount.iterdir()), sorted(contents), "nothing else is left in the directory")

        # Stripes over a pool of the two SSDs: each file's units go to two objects in turn, which Ceph puts on the pool's OSDs.
        site.add_pool("pair", (2, 3))
        both = pools | {"osd.2": "pair", "osd.3": "pair"}
        files, script = self.export("cephfs", site.mount, "pool0", classes, both)
        self.run_in("/bin/sh", script)
        os.sync()
        expected = self.expected(files, targets, len(contents) * size)
        held, objects = site.bytes_by_osd("pair")
        self.assertEqual((expected["osd.0"], expected["osd.1"]), (0, 0), "random reads are all sent to the SSDs")
        self.assertEqual(sum(held.values()), len(contents) * size)
        self.assertLessEqual(set(held), {2, 3})
        self.assertEqual(list(objects.values()), [2] * len(contents))
        for path, content in contents.items():
            self.assertEqual(path.read_bytes(), content)
            layout = os.getxattr(path, "ceph.file.layout").decode()
            self.assertIn("stripe_count=2", layout)

        # A copy would lose what somebody noted at a file: that one stays, and the others are laid out.
        noted, *_ = contents
        os.setxattr(noted, "user.note", b"kept")
        before = {path: path.stat().st_ino for path in contents}
        result = subprocess.run(["/bin/sh", script], cwd=self.place, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(f"{noted} has extended attributes (user.*), which a copy would lose: left as it was", result.stderr)
        self.assertIn("1 of the files do not have their layout", result.stderr)
        self.assertEqual([path for path in contents if path.stat().st_ino == before[path]], [noted])
        self.assertEqual(os.getxattr(noted, "user.note"), b"kept")
        self.assertEqual({path: path.read_bytes() for path in contents}, contents)
        self.assertEqual(sorted(site.mount.iterdir()), sorted(contents))

    def test_moosefs_has_the_chunks_on_the_servers_that_the_plan_names(self):
        try:
            site = self.enterContext(moosefs.MooseFS(servers=4))
        except moosefs.Unavailable as reason:
            self.skipTest(f"no MooseFS for tests: {reason}")
        size = 2 * MIB
        contents = self.written(site.mount, size)
        targets = [f"cs-{label}" for label in site.labels]
        classes = self.plan(targets, list(contents), 64)
        pools = dict(zip(targets, site.labels))
        files, script = self.export("moosefs", site.mount, "A", classes, pools)

        # MooseFS keeps two copies by default, of which a class of one label would leave one: also where the second is not made yet.
        refused = subprocess.run(site.within("/bin/sh", script), cwd=self.place, capture_output=True, text=True, timeout=120, env=site.environment)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        for path in contents:
            self.assertRegex(refused.stderr, re.escape(str(path)) + " (has 2 copies or more|is to have 2 copies), and the class stripewise_")
            self.assertEqual(self.run_in(*site.within("mfsgetsclass", path), env=site.environment), f"{path}: 2\n")
        self.run_in(*site.within("mfssetsclass", "-r", "1", site.mount), env=site.environment)
        site.wait("one copy of each", lambda: sum(map(site.chunks, site.labels)) == len(contents))

        # A second copy that was ordered before may come up once more, and the script rightly leaves such a file.
        again = ["/bin/sh", script]
        site.wait("the layouts", lambda: subprocess.run(site.within(*again), cwd=self.place, capture_output=True, env=site.environment).returncode == 0)
        expected = self.expected(files, targets, len(contents) * size)

        def held():
            return {name: site.chunk_bytes(label) for name, label in pools.items()}

        site.wait(f"chunks as {expected}, not {held()}", lambda: held() == expected)
        for path, content in contents.items():
            self.assertEqual(path.read_bytes(), content)
        # The same script again changes nothing.
        self.run_in(*site.within("/bin/sh", script), env=site.environment)
        self.assertEqual(held(), expected)

        # A file of four chunks, of which little is written, goes to servers of two labels.
        large, data = site.mount / "large", random.Random(3).randbytes(65536)
        with open(large, "wb") as file:
            for chunk in range(4):
                file.seek(chunk * 64 * MIB)
                file.write(data)
        classes = self.plan(targets, [large], 64)
        names = dict(zip(site.labels, targets))
        (laid,), script = self.export("moosefs", site.mount, "A", classes, pools | {names[label]: "C+D" for label in "CD"})
        self.assertEqual({target["name"] for target in laid["targets"]}, {names["C"], names["D"]})
        self.run_in(*site.within("/bin/sh", script), env=site.environment)

        # The small files have one chunk each.
        small = {label: sum(target["name"] == names[label] for file in files for target in file["targets"]) for label in site.labels}

        def counted():
            chunks = {label: site.chunks(label) for label in site.labels}
            return chunks["A"], chunks["B"], chunks["C"] + chunks["D"]

        wanted = small["A"], small["B"], small["C"] + small["D"] + 4
        site.wait(f"chunks as {wanted}, not {counted()}", lambda: counted() == wanted)
        with open(large, "rb") as file:
            for chunk in range(4):
                file.seek(chunk * 64 * MIB)
                self.assertEqual(file.read(65536), data)


if __name__ == "__main__":
    unittest.main(verbosity=2)
