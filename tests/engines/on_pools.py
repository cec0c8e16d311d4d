"""What tests of clusters on a real Ceph share."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ceph  # noqa: E402

STRIPEWISE = os.path.abspath(os.environ.get("STRIPEWISE", "target/debug/stripewise"))
KIB, MIB = 1 << 10, 1 << 20
READ = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"


class OnPools(unittest.TestCase):
    """One Ceph for the tests of a class, started with `CEPH`; skipped, with the reason, where none can be had."""

    CEPH = {"osds": 4}

    @classmethod
    def setUpClass(cls):
        try:
            cls.ceph = cls.enterClassContext(ceph.Ceph(**cls.CEPH))
        except ceph.Unavailable as reason:
            raise unittest.SkipTest(f"no Ceph for tests: {reason}")
        cls.root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stripewise-on-ceph-")))

    def setUp(self):
        if self.ceph.is_broken:
            type(self).ceph = self.enterClassContext(ceph.Ceph(**self.CEPH))

    def run_in(self, directory, *command, fails=False):
        """Standard output, or all that a command said that has to fail."""
        result = subprocess.run(list(map(str, command)), cwd=directory, capture_output=True, text=True, timeout=300)
        if (result.returncode != 0) != fails:
            self.fail(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stderr + result.stdout if fails else result.stdout

    def url(self, pool, parameters=""):
        return f"rados://{pool}?conf={self.ceph.conf}{parameters}"

    def servers(self, parameters=""):
        """Options of `init`: server sN is the pool of OSD N."""
        for number, pool in enumerate(self.ceph.pools):
            yield "--server"
            yield f"s{number}={'hdd' if number < 2 else 'ssd'}:{self.url(pool, parameters)}"

    def order(self, prefix, **arguments):
        """Has the monitor carry out a command."""
        self.ceph._command(prefix, **arguments)

    def assert_says(self, said, *parts):
        self.assertIsInstance(said, str, said)
        for part in parts:
            self.assertIn(part, said)

    def objects(self, pool):
        """Namespace and name of every object in the pool."""
        with self.ceph.handle.open_ioctx(pool) as ioctx:
            ioctx.set_namespace(self.ceph.rados.LIBRADOS_ALL_NSPACES)
            return {(found.nspace, found.key) for found in ioctx.list_objects()}
