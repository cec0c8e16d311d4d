#!/usr/bin/env python3
"""Other people's judges of file systems on a mount, as root, while the regions of their files move.

    tests/outside/mount.py --fsx xfstests/ltp/fsx --pjdfstest pjdfstest/tests [--seeds 1 2 3] [--operations 200000]
    tests/outside/mount.py --nfs 20

The first two are built by whoever calls this; nothing is fetched here. fsx (xfstests) does all operations that it has, on one file of up to 4 MB for each
seed; it finds out by itself what the mount does not have. pjdfstest is its directory of `.t` files beside the built program, run by `prove`.
For so many rounds NFS-Ganesha exports the mount on loopback, and what libnfs reads and writes there is compared with what redirected programs do. Debian has
them as nfs-ganesha, nfs-ganesha-vfs, libnfs-utils and rpcbind.
What fails is printed with what the judge says of it. Exit status 0: nothing failed; 1: something did; 2: a judge or the mount could not be started.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
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


class Ganesha:
    """An NFS server in the user's space that exports a mount, and a client of it by NFS 3."""

    PORT, MOUNT_PORT = 12049, 12050
    CONFIGURATION = """NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Bind_addr = 127.0.0.1; Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }}
EXPORT {{ Export_Id = 7; Path = {point}; Pseudo = /data; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; FSAL {{ Name = VFS; }} }}
"""

    def __init__(self, site):
        self.site, self.log = site, site.directory / "ganesha.log"
        self.configuration = site.directory / "ganesha.conf"
        self.configuration.write_text(self.CONFIGURATION.format(port=self.PORT, mount_port=self.MOUNT_PORT, point=site.point))

    @contextlib.contextmanager
    def serving(self):
        # Ganesha says there where it listens, though its client here knows.
        mapper = subprocess.Popen(["rpcbind", "-f", "-w"], stderr=subprocess.DEVNULL)
        words = ["ganesha.nfsd", "-F", "-f", self.configuration, "-L", self.log, "-p", self.site.directory / "ganesha.pid"]
        try:
            self.log.write_text("")
            server = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                end = time.monotonic() + WAIT_SECONDS
                while "NFS SERVER INITIALIZED" not in self.log.read_text():
                    if server.poll() is not None or time.monotonic() > end:
                        sys.exit(f"there is no NFS server: exit {server.poll()}\n{self.log.read_text()}")
                    time.sleep(0.1)
                yield
            finally:
                server.terminate()
                server.wait(timeout=WAIT_SECONDS)
        finally:
            mapper.terminate()
            mapper.wait(timeout=WAIT_SECONDS)

    def url(self, name):
        return f"nfs://127.0.0.1{self.site.point}/{name}?version=3&nfsport={self.PORT}&mountport={self.MOUNT_PORT}&uid=0&gid=0"

    def read(self, name):
        return subprocess.run(["nfs-cat", self.url(name)], capture_output=True, timeout=WAIT_SECONDS).stdout

    def write(self, source, name):
        subprocess.run(["nfs-cp", source, self.url(name)], capture_output=True, timeout=WAIT_SECONDS, check=True)


def nfs(site, rounds, seed):
    """Each round both sides write a file that the other reads, and one is changed and renamed beneath, while regions move; then the server starts anew."""
    choose, server, wrong = random.Random(seed), Ganesha(site), []
    source = site.directory / "source"

    def same(what, found, expected):
        if found != expected:
            wrong.append(what)
            print(f"FAILED: nfs, seed {seed}: {what}: {len(found)} bytes are not the {len(expected)} expected", flush=True)

    moves = 0
    for number in range(rounds):
        ours, theirs = (choose.randbytes(choose.randrange(1, FILE_BYTES)) for _ in range(2))
        with server.serving():
            source.write_bytes(ours)
            site.done("run", "--", "cp", source, f"data/ours-{number}")
            source.write_bytes(theirs)
            with site.moving(f"ours-{number}") as moved:
                same(f"round {number}, what a redirected program wrote", server.read(f"ours-{number}"), ours)
                server.write(source, f"theirs-{number}")
                site.done("run", "--", "cp", f"data/theirs-{number}", source)
                same(f"round {number}, what was written by NFS", source.read_bytes(), theirs)
                at, patch = choose.randrange(len(ours)), choose.randbytes(1000)
                source.write_bytes(patch)
                site.done("run", "--", "dd", f"if={source}", f"of=data/ours-{number}", "bs=64K", f"seek={at}", "oflag=seek_bytes", "conv=notrunc")
                ours = ours[:at] + patch + ours[at + len(patch) :]
                same(f"round {number}, what was changed beneath", server.read(f"ours-{number}"), ours)
            moves += len(moved)
            site.done("run", "--", "mv", f"data/ours-{number}", f"data/renamed-{number}")
            same(f"round {number}, what was renamed beneath", server.read(f"renamed-{number}"), ours)
        earlier = f"theirs-{number}"
        with server.serving():
            same(f"round {number}, after a new start of the server", server.read(earlier), theirs)
    print(f"nfs, seed {seed}: {rounds} rounds, {moves} moves", flush=True)
    return not wrong and moves > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/debug/stripewise")
    parser.add_argument("--fsx", type=pathlib.Path, help="the program of xfstests, built")
    parser.add_argument("--pjdfstest", type=pathlib.Path, help="its directory of tests, beside the built program")
    parser.add_argument("--nfs", type=int, metavar="ROUNDS", help="export the mount by NFS-Ganesha so often")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--work", help="a directory for the cluster [default: one of its own below /dev/shm]")
    words = parser.parse_args()
    if words.fsx is None and words.pjdfstest is None and not words.nfs:
        parser.error("name one at least of --fsx, --pjdfstest and --nfs")
    for program in ("ganesha.nfsd", "nfs-cat", "nfs-cp", "rpcbind") if words.nfs else ():
        if shutil.which(program) is None:
            parser.error(f"there is no {program}: apt-get install nfs-ganesha nfs-ganesha-vfs libnfs-utils rpcbind")
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
            outcomes += [nfs(site, words.nfs, words.seeds[0])] if words.nfs else []
        check = site.command("check")
        if check.returncode != 0:
            failure("stripewise check afterwards", check)
            outcomes.append(False)
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
