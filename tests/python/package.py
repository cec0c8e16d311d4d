"""The Python package beside its sources, as a wheel installs it: the module that `cargo build --workspace` made, and a cluster for its tests.

Needs pandas, zarr and their like in .venv for some of the tests, where `setup/python` puts them; these are skipped otherwise. Importing it goes on with the
interpreter of .venv.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "crates" / "python" / "python" / "stripewise"
PYTHON = ROOT / ".venv" / "bin" / "python"
HAS_OTHERS = (ROOT / ".venv" / "python-requirements.txt").exists() and PYTHON.exists()
STRIPEWISE = pathlib.Path(os.environ.get("STRIPEWISE", ROOT / "target/debug/stripewise")).resolve()
MODULE = STRIPEWISE.parent / "lib_stripewise.so"
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
MIB = 1 << 20

if HAS_OTHERS and pathlib.Path(sys.prefix) != ROOT / ".venv":
    os.execv(PYTHON, [str(PYTHON), *sys.orig_argv[1:]])


def lay_out(place):
    """The package as a wheel has it, by links."""
    package = place / "stripewise"
    package.mkdir(parents=True)
    for source in PACKAGE.iterdir():
        if source.name not in ("bin", "__pycache__"):
            (package / source.name).symlink_to(source)
    (package / "_stripewise.abi3.so").symlink_to(MODULE)
    (package / "bin").mkdir()
    for name in ("stripewise", "libstripewise_preload.so"):
        (package / "bin" / name).symlink_to(STRIPEWISE.parent / name)
    # What a wheel's installation registers.
    metadata = place / "stripewise-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stripewise\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[fsspec.specs]\nstripewise = stripewise.fsspec.StripewiseFileSystem\n")


WORK = pathlib.Path(tempfile.mkdtemp(prefix="stripewise-python-"))
lay_out(WORK / "site")
sys.path.insert(0, str(WORK / "site"))
os.environ["PYTHONPATH"] = str(WORK / "site")
for name in ("STRIPEWISE_COMMAND", "STRIPEWISE_CLUSTER", "STRIPEWISE_STATE"):
    os.environ.pop(name, None)

import stripewise  # noqa: E402


def needs_others(test):
    return unittest.skipUnless(HAS_OTHERS, "no pandas and others in .venv; setup/python installs them")(test)


def run(*words, cluster=None, **options):
    command = [stripewise.command(), *(("-C", cluster) if cluster else ()), *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, **options)
    if done.returncode not in (0, 1):
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Cluster:
    """Three servers and a managed directory, served by a broker as long as the tests run."""

    def __init__(self, place):
        place.mkdir()
        self.file = place / "cluster.toml"
        servers = []
        for name, kind in (("h0", "hdd"), ("h1", "hdd"), ("s0", "ssd")):
            (place / name).mkdir()
            servers += ["--server", f"{name}={kind}:{place / name}"]
        run("init", "--region", "1MiB", *servers, cluster=self.file)
        self.data = place / "data"
        self.data.mkdir()
        run("manage", self.data, "--stripe", "64KiB", cluster=self.file)

    def check(self):
        """Nothing is lost, and nothing is left of what was removed."""
        command = [stripewise.command(), "-C", self.file, "check"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"


class OnCluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(WORK / cls.__name__.lower())
        os.environ["STRIPEWISE_CLUSTER"] = str(cls.cluster.file)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.check()
        os.environ.pop("STRIPEWISE_CLUSTER")


def main():
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
