#!/usr/bin/env python3
"""MPI jobs over several hosts on managed files: the programs of tests/programs/mpi with a rank on each of four hosts.

    STRIPEWISE=target/debug/stripewise tests/hosts/test_mpi.py [NAME...]

Every rank verifies its own data. Then every file that a job leaves is read on each host and compared with what the same program leaves
in an ordinary directory of this machine. Some run a second time with the launcher under one `stripewise run`, which starts nothing on the other hosts. The programs write independently, collectively, through strided views with and without data
sieving, in atomic mode and by shared file pointers; under MPICH's ROMIO, Open MPI's OMPIO and Open MPI's ROMIO. Ranks that wait poll, so four
of them on two cores take long: STRIPEWISE_MPI_ALL=1 runs every program under every layer.

Exit status 0 where hosts, an etcd or an MPI cannot be had: the tests skip then, and say why.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "programs" / "mpi"
SETUP = HERE.parents[1] / "setup"
sys.path[:0] = [str(HERE), str(PROGRAMS.parent)]
import bed as beds  # noqa: E402
import cases  # noqa: E402
from test_sharing import STRIPEWISE, Cluster  # noqa: E402

RANKS = 4
JOB_SECONDS = 300
END = "all ranks have ended"
# What a launcher has to hand on to programs of other hosts when it is started under `stripewise run`.
FORWARDED = ("LD_PRELOAD", "STRIPEWISE_STATE", "STRIPEWISE_AGENT", "STRIPEWISE_CLUSTER")
# What runs so.
LAUNCHED = {"mpich": ("collective",), "openmpi-ompio": ("collective",)}
# What runs unless all are asked for: every way of writing, and every layer.
USUAL = {
    "mpich": ("collective", "views", "shared_pointer", "atomic", "nonblocking"),
    "openmpi-ompio": ("collective", "shared_pointer"),
    "openmpi-romio": ("contiguous", "shared_pointer", "atomic"),
}


class Mpi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [f"mpicc.{family}" for family in ("mpich", "openmpi") if shutil.which(f"mpicc.{family}") is None]
        if missing:
            raise unittest.SkipTest(f"{', '.join(missing)} not found: setup/install installs both MPIs")
        try:
            cls.bed = cls.enterClassContext(beds.Bed(hosts=RANKS))
            cls.cluster = Cluster(cls.bed)
        except beds.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None

    def build(self, name, family):
        program = self.bed.common / f"{name}.{family}"
        flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", f'-DEND="{END}"']
        subprocess.run([f"mpicc.{family}", *flags, "-o", program, PROGRAMS / f"{name}.c"], check=True)
        return program

    def job(self, name, label, family, environment, *arguments, runs_launcher=False):
        """Runs the program on all hosts in a managed directory, and in an ordinary one of this machine; both leave the same. Every rank runs under
        `stripewise run`, or the launcher does, which hands the environment on."""
        program = self.build(name, family)
        managed = self.cluster.directory / f"{name}-{label}{'-launched' if runs_launcher else ''}"
        self.bed.run(0, ["mkdir", managed], check=True)
        words, settings = self.bed.mpi(family)
        settings = {**settings, **environment, "STRIPEWISE_CLUSTER": self.cluster.env["STRIPEWISE_CLUSTER"]}
        if family == "openmpi":
            handed_on = (*FORWARDED, *environment) if runs_launcher else ("STRIPEWISE_CLUSTER", *environment)
            words += [word for variable in handed_on for word in ("-x", variable)]
        run = [STRIPEWISE, "run", "--"]
        words += ["-wdir", str(managed), *([] if runs_launcher else run), program, *arguments]
        words = [*run, *words] if runs_launcher else words
        found = self.transcript(self.bed.start(
            0, ["timeout", "-k", "5", str(JOB_SECONDS), *words], env={**os.environ, **settings},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        ))
        self.assertIn(END, found, "the job did not come to its end")
        wrong = [line for line in found if "WRONG" in line]
        self.assertEqual(wrong, [])
        with tempfile.TemporaryDirectory() as plain:
            done = subprocess.run(
                [SETUP / "mpirun", family, str(RANKS), program, *arguments], cwd=plain, env={**os.environ, **environment},
                capture_output=True, text=True, timeout=JOB_SECONDS,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(found, done.stdout.splitlines())
            expected = {path.name: digest(path.read_bytes()) for path in pathlib.Path(plain).iterdir()}
        self.assertTrue(expected)
        for host in range(RANKS):
            listed = self.cluster.run(host, "sh", "-c", f"cd {managed} && sha256sum *")
            self.assertEqual({line.split()[1]: line.split()[0] for line in listed.splitlines()}, expected, f"on host {host}")

    def launched(self, name, label, family, environment, *arguments):
        """On the other hosts nothing runs but the ranks: the first look at a managed file there starts an agent, which ends when it has nothing to do."""
        self.until_no_agent()
        self.job(name, label, family, environment, *arguments, runs_launcher=True)
        self.until_no_agent()

    def until_no_agent(self):
        look = ["sh", "-c", "for exe in /proc/[0-9]*/exe; do readlink $exe; done | grep -c /stripewise$"]
        end = time.monotonic() + 120
        while time.monotonic() < end:
            found = {host: self.bed.run(host, look).stdout.strip() for host in range(RANKS)}
            if set(found.values()) == {"0"}:
                return
            time.sleep(0.02)
        self.fail(f"agents do not end: {found}")

    def transcript(self, launcher):
        """What rank 0 prints until the end of the program. What comes after is not waited for: see Bed.mpi."""
        lines = []
        try:
            for line in launcher.stdout:
                lines.append(line.rstrip("\n"))
                if lines[-1] == END:
                    break
        finally:
            launcher.terminate()
            launcher.wait(60)
            launcher.stdout.close()
        return lines


def digest(data):
    return hashlib.sha256(data).hexdigest()


def add(name, label, family, environment, *arguments):
    def test(self):
        self.job(name, label, family, environment, *arguments)

    def test_launched(self):
        self.launched(name, label, family, environment, *arguments)

    setattr(Mpi, f"test_{name}_{label.replace('-', '_')}", test)
    if name in LAUNCHED.get(label, ()):
        setattr(Mpi, f"test_{name}_{label.replace('-', '_')}_launched_by_one_run", test_launched)


for label, family, environment in cases.mpi_layers():
    names = list(cases.MPI) if os.environ.get("STRIPEWISE_MPI_ALL") == "1" else USUAL[label]
    for name in names:
        if (name, label) not in cases.UNFIT_BARE:
            add(name, label, family, dict(environment), *cases.ARGUMENTS.get((name, label), ()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
