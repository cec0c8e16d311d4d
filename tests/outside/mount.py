#!/usr/bin/env python3
"""Other people's judges of file systems on a mount, as root, while the regions of their files move.

    tests/outside/mount.py --fsx xfstests/ltp/fsx --pjdfstest pjdfstest/tests [--seeds 1 2 3] [--operations 200000]

Both programs are built by whoever calls this; nothing is fetched here. fsx (xfstests) does all operations that it has, on one file of up to 4 MB for each
seed; it finds out by itself what the mount does not have. pjdfstest is its directory of `.t` files beside the built program, run by `prove`.
What fails is printed with what the judge says of it. Exit status 0: nothing failed; 1: something did; 2: a judge or the mount could not be started.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYOUTS = ("<64KiB,64KiB>", "<0B,128KiB>", "<192KiB,0B>")
FILE_BYTES = 4_000_000
WAIT_SECONDS = 60
# Lines of a judge's output that are shown of a failure: the last ones say what was found.
SHOWN = 40


class Site:
    """A cluster with a managed directory that is mounted, in a directory of its own."""

    def __init__(self, stripewise, directory):
        self.stripewise, self.directory = stripewise, pathlib.Path(directory)
        self.point = self.directory / "data.mount"
        self.env = dict(os.environ, STRIPEWISE_CLUSTER=str(self.directory / "cluster.toml"))

    def command(self, *words):
        return subprocess.run([self.stripewise, *map(str, words)], cwd=self.directory, env=self.env, capture_output=True, text=True)

    def done(self, *words):
        run = self.command(*words)
        if run.returncode != 0:
            sys.exit(f"stripewise {' '.join(map(str, words))}: exit {run.returncode}\n{run.stdout}{run.stderr}")

    @contextlib.contextmanager
    def mounted(self):
        servers = []
        for number, kind in enumerate(("hdd", "hdd", "ssd")):
            (self.directory / f"server{number}").mkdir()
            servers += ["--server", f"s{number}={kind}:server{number}"]
        self.done("init", *servers, "--region", "1MiB")
        (self.directory / "data").mkdir()
        self.done("manage", "data")
        words = [self.stripewise, "mount", "data", "--allow-other"]
        mount = subprocess.Popen(words, cwd=self.directory, env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            if "is mounted at" not in mount.stdout.readline():
                sys.exit(f"there is no mount: exit {mount.wait()}")
            yield self.point
        finally:
            mount.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                mount.communicate(timeout=WAIT_SECONDS)
            subprocess.run(["umount", "--lazy", self.point], stderr=subprocess.DEVNULL)

    @contextlib.contextmanager
    def moving(self, name):
        """The file's regions move from layout to layout; yields a list that has a word for each move that was made."""
        moves, is_over = [], threading.Event()

        def move():
            turn = 0
            while not is_over.is_set():
                if self.command("restripe", f"data/{name}", "--layout", LAYOUTS[turn % len(LAYOUTS)]).returncode == 0:
                    moves.append(LAYOUTS[turn % len(LAYOUTS)])
                turn += 1
                time.sleep(0.01)

        thread = threading.Thread(target=move)
        thread.start()
        try:
            yield moves
        finally:
            is_over.set()
            thread.join()


def failure(judge, run):
    """Says why; the judge's own words are the reason."""
    lines = (run.stdout + run.stderr).splitlines()
    print(f"FAILED: {judge}: exit {run.returncode}", *lines[-SHOWN:], sep="\n    ", flush=True)


def fsx(site, program, seed, operations):
    name = f"fsx-{seed}"
    (site.point / name).touch()
    words = [program, "-S", seed, "-N", operations, "-l", FILE_BYTES, "-P", site.directory, site.point / name]
    start = time.monotonic()
    with site.moving(name) as moves:
        run = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    took = time.monotonic() - start
    if run.returncode != 0:
        failure(f"fsx, seed {seed}", run)
        return False
    # What it leaves out it says at its start.
    without = sorted({line.strip() for line in (run.stdout + run.stderr).splitlines() if "support" in line})
    print(f"fsx, seed {seed}: {operations} operations, {len(moves)} moves, {took:.0f} s", *without, sep="\n    ", flush=True)
    return len(moves) > 0


def pjdfstest(site, tests):
    place = site.point / "pjdfstest"
    place.mkdir()
    run = subprocess.run(["prove", "-rQ", str(tests)], cwd=place, capture_output=True, text=True)
    lines = run.stdout.splitlines()
    if run.returncode != 0:
        failure("pjdfstest", run)
        return False
    print(f"pjdfstest: {' '.join(lines[-2:])}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/debug/stripewise")
    parser.add_argument("--fsx", type=pathlib.Path, help="the program of xfstests, built")
    parser.add_argument("--pjdfstest", type=pathlib.Path, help="its directory of tests, beside the built program")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--work", help="a directory for the cluster [default: one of its own below /dev/shm]")
    words = parser.parse_args()
    if words.fsx is None and words.pjdfstest is None:
        parser.error("name --fsx, --pjdfstest or both")
    for path in filter(None, (words.stripewise, words.fsx, words.pjdfstest)):
        if not path.exists():
            parser.error(f"there is no {path}")
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        parser.error("mounting takes root and /dev/fuse")
    with tempfile.TemporaryDirectory(dir=words.work or "/dev/shm", prefix="stripewise-outside-") as directory:
        os.chmod(directory, 0o755)
        site = Site(words.stripewise.resolve(), directory)
        with site.mounted():
            outcomes = [fsx(site, words.fsx.resolve(), seed, words.operations) for seed in words.seeds] if words.fsx else []
            outcomes += [pjdfstest(site, words.pjdfstest.resolve())] if words.pjdfstest else []
        check = site.command("check")
        if check.returncode != 0:
            failure("stripewise check afterwards", check)
            outcomes.append(False)
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
