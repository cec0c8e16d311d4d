#!/usr/bin/env python3
"""A real MooseFS on loopback for tests: a master, chunk servers that each have a label of their own, and a mount, in a temporary directory.

    with moosefs.MooseFS(servers=4) as site:
        site.mount, site.labels, site.chunk_bytes("A"), site.environment

MooseFS takes no chunk servers at 127.0.0.1, so that everything runs in a network namespace whose loopback has another address. Raises
`Unavailable` with the reason where there are no packages, no root or no FUSE; tests skip then. Every daemon is ended by its PID.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from daemons import Started, end_all, end_with_parent  # noqa: E402

PROGRAMS = ("mfsmaster", "mfschunkserver", "mfsmount", "mfscli", "mfssetsclass", "ip", "nsenter")
ADDRESS = "10.91.7.1"
MASTER, CHUNK_SERVERS, CLIENTS, LOGGERS = 29420, 29500, 29421, 29419
WAIT_SECONDS = 60
EMPTY = "/var/lib/mfs/metadata.mfs.empty"


def size_of(file):
    """0 of one that is removed meanwhile."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


class Unavailable(Exception):
    """No MooseFS can be had here."""


class MooseFS(Started):
    """A running MooseFS. Use it in a `with` statement: that ends its daemons and removes its directory."""

    def __init__(self, servers=4):
        search = os.environ["PATH"] + ":/usr/sbin:/sbin"
        missing = [program for program in PROGRAMS if shutil.which(program, path=search) is None]
        if missing:
            raise Unavailable(f"{', '.join(missing)} not found: setup/install --engines installs them")
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            raise Unavailable("a mount and a network namespace need root and /dev/fuse")
        self.labels = [chr(ord("A") + number) for number in range(servers)]
        self.environment = {**os.environ, "PATH": search}
        self.processes = []
        self.namespace = f"stripewise-mfs-{os.getpid()}"
        self.root = None

    def __exit__(self, *_):
        if self.root is not None:
            subprocess.run(["umount", "-l", self.mount], capture_output=True)
        end_all(reversed(self.processes))
        subprocess.run(["ip", "netns", "delete", self.namespace], capture_output=True, env=self.environment)
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)

    def within(self, *command):
        """A command as it has to be called to reach the master: in the network namespace alone."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *map(str, command)]

    def _run(self, *command):
        result = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, env=self.environment)
        if result.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: status {result.returncode}: {result.stderr[-2000:]}")
        return result.stdout

    def _daemon(self, *command):
        log = open(self.root / f"{len(self.processes)}.log", "ab")
        with log:
            self.processes.append(subprocess.Popen(
                self.within(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent, env=self.environment,
            ))

    def _conf(self, name, **values):
        path = self.root / name
        path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        return path

    def _start(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="stripewise-mfs-"))
        self.mount = self.root / "mount"
        self.mount.mkdir()
        self._run("ip", "netns", "add", self.namespace)
        self._run(*self.within("ip", "address", "add", f"{ADDRESS}/24", "dev", "lo"))
        self._run(*self.within("ip", "link", "set", "lo", "up"))
        user = {"WORKING_USER": "root", "WORKING_GROUP": "root", "LOCK_MEMORY": 0, "NICE_LEVEL": 0}
        master = self.root / "master"
        master.mkdir()
        shutil.copy(EMPTY, master / "metadata.mfs")
        (self.root / "exports.cfg").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        (self.root / "topology.cfg").write_text("")
        conf = self._conf(
            "master.cfg", DATA_PATH=master, EXPORTS_FILENAME=self.root / "exports.cfg", TOPOLOGY_FILENAME=self.root / "topology.cfg",
            MATOML_LISTEN_PORT=LOGGERS, MATOCS_LISTEN_PORT=MASTER, MATOCL_LISTEN_PORT=CLIENTS,
            # Chunks that lie on other servers than their class says are looked for without delay.
            OPERATIONS_DELAY_INIT=0, OPERATIONS_DELAY_DISCONNECT=0, CHUNKS_LOOP_MIN_TIME=1, REPLICATIONS_DELAY_INIT=0, **user,
        )
        self._daemon("mfsmaster", "-f", "-c", conf, "start")
        for number, label in enumerate(self.labels):
            home = self.root / label
            (home / "chunks").mkdir(parents=True)
            (self.root / f"{label}.hdd").write_text(f"{home / 'chunks'}\n")
            conf = self._conf(
                f"{label}.cfg", DATA_PATH=home, HDD_CONF_FILENAME=self.root / f"{label}.hdd", LABELS=label, MASTER_HOST=ADDRESS,
                MASTER_PORT=MASTER, CSSERV_LISTEN_HOST=ADDRESS, CSSERV_LISTEN_PORT=CHUNK_SERVERS + number,
                MASTER_RECONNECTION_DELAY=1, HDD_LEAVE_SPACE_DEFAULT="1MiB", **user,
            )
            self._daemon("mfschunkserver", "-f", "-c", conf, "start")
        self._wait("all chunk servers", lambda: self.chunk_servers().count(ADDRESS) >= len(self.labels))
        self._daemon("mfsmount", "-f", self.mount, "-H", ADDRESS, "-P", CLIENTS)
        self._wait("the mount", lambda: os.path.ismount(self.mount))

    def chunk_servers(self):
        """What `mfscli -SCS` prints; empty as long as no master answers."""
        command = self.within("mfscli", "-n", "-H", ADDRESS, "-P", CLIENTS, "-SCS")
        result = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, env=self.environment)
        return result.stdout if result.returncode == 0 else ""

    def _wait(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            for number, process in enumerate(self.processes):
                if process.poll() is not None:
                    log = (self.root / f"{number}.log").read_text(errors="replace")
                    raise RuntimeError(f"{process.args[2:]} ended with {process.returncode}: {log[-2000:]}")
            if time.monotonic() > end:
                logs = "".join((self.root / f"{number}.log").read_text(errors="replace")[-700:] for number in range(len(self.processes)))
                raise RuntimeError(f"{what}: not within {WAIT_SECONDS} s\n{logs}")
            time.sleep(0.05)

    def wait(self, what, condition):
        """Until `condition` holds; an error where a daemon ends or it takes too long."""
        self._wait(what, condition)

    def chunks(self, label):
        """Chunks that the server of that label holds."""
        return len(list((self.root / label / "chunks").glob("**/chunk_*.mfs")))

    def chunk_bytes(self, label):
        """Bytes of data that the server of that label holds, as its files say: each has a head of 8 KiB, with checksums of its blocks."""
        chunks = (self.root / label / "chunks").glob("**/chunk_*.mfs")
        return sum(max(0, size_of(chunk) - 8192) for chunk in chunks)
