#!/usr/bin/env python3
"""CephFS on a real Ceph on loopback for tests: an MDS and a mount by ceph-fuse beside what ceph.py starts, the pools of single OSDs being data pools.

    with cephfs.CephFS(osds=4) as site:
        site.mount, site.pools, site.pool_bytes(NAME)

Raises `ceph.Unavailable` with the reason where it cannot be had; tests skip then.
"""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ceph  # noqa: E402
from daemons import end_with_parent  # noqa: E402

PROGRAMS = ("ceph-mds", "ceph-fuse")
FIRST = "files_metadata", "files_data"


class CephFS(ceph.Ceph):
    """A running CephFS with the mount `mount`. Use it in a `with` statement."""

    def __init__(self, **options):
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise ceph.Unavailable(f"{', '.join(missing)} not found: setup/install --engines installs them")
        if not os.path.exists("/dev/fuse"):
            raise ceph.Unavailable("a mount needs /dev/fuse")
        super().__init__(**options)
        self.mount = pathlib.Path(self.directory) / "mount"

    def _start(self):
        super()._start()
        self.mount.mkdir()
        for pool in FIRST:
            self._ask("osd pool create", pool=pool, pg_num=8)
        self._ask("fs new", fs_name="files", metadata=FIRST[0], data=FIRST[1])
        for pool in self.pools:
            self._ask("osd pool application enable", pool=pool, app="cephfs", yes_i_really_mean_it=True)
            self._ask("fs add_data_pool", fs_name="files", pool=pool)
        data = os.path.join(self.directory, "mds")
        os.mkdir(data)
        with open(self.conf, "a") as conf:
            conf.write(f"[mds]\nmds data = {data}\nmds beacon interval = 0.2\n[client]\nclient mount timeout = 60\n")
        self._daemon("mds.a", "ceph-mds", "a")
        self._wait("the MDS", lambda: "up:active" in str(self._command("mds stat")))
        with open(os.path.join(self.directory, "fuse.err"), "ab") as log:
            self.processes["fuse"] = subprocess.Popen(
                ["ceph-fuse", "-f", "-c", self.conf, "-n", "client.admin", str(self.mount)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent,
            )
        self._wait("the mount", lambda: os.path.ismount(self.mount))

    def __exit__(self, *arguments):
        subprocess.run(["umount", "-l", self.mount], capture_output=True)
        super().__exit__(*arguments)

    def add_pool(self, pool, osds):
        """A data pool over these OSDs alone."""
        self._ask("osd crush add-bucket", name=pool, type="root")
        for osd in osds:
            self._ask("osd crush link", name=f"host{osd}", args=[f"root={pool}"])
        self._ask("osd crush rule create-replicated", name=pool, root=pool, type="osd")
        self._ask("osd pool create", pool=pool, pg_num=8, pool_type="replicated", rule=pool)
        self._ask("osd pool application enable", pool=pool, app="cephfs", yes_i_really_mean_it=True)
        self._ask("fs add_data_pool", fs_name="files", pool=pool)

    def bytes_by_osd(self, pool):
        """By OSD the bytes of the pool's objects, and how many there are of each file."""
        sums, counts = {}, {}
        with self.handle.open_ioctx(pool) as objects:
            for object in objects.list_objects():
                (osd,) = self._command("osd map", pool=pool, object=object.key)["acting"]
                sums[osd] = sums.get(osd, 0) + objects.stat(object.key)[0]
                file = object.key.partition(".")[0]
                counts[file] = counts.get(file, 0) + 1
        return sums, counts

    def pool_bytes(self, pool):
        """Bytes of the objects of a pool, object by object."""
        with self.handle.open_ioctx(pool) as objects:
            return sum(objects.stat(object.key)[0] for object in objects.list_objects())
