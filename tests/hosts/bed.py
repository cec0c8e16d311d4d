"""Several hosts on one machine for tests: what a test does with them. machine.py makes them, and says what they have."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from machine import DIRECTIONS, MISSING, WAIT_SECONDS, Unavailable  # noqa: E402

# For a whole Ceph, whose parts wait for each other.
CEPH_SECONDS = 180
# For how long an OSD may be still on a machine that is overloaded. One that was killed is known at once.
GRACE_SECONDS = 20


class Engine(dict):
    """What a program of tests/engines says of the engine that it runs. It takes orders."""

    def __init__(self, description, process):
        super().__init__(description)
        self._process = process

    def order(self, command):
        print(command, file=self._process.stdin, flush=True)
        verdict = self._process.stdout.readline().strip()
        if verdict.startswith("Broken: "):
            raise unittest.SkipTest(verdict)
        if verdict != "ok":
            raise RuntimeError(f"{command}: {verdict or 'the engine has ended'}")


class Bed:
    """A bed of a program of its own, so that it goes when this process does, however that ends. Use it in a `with` statement.

    A host is named by its number; None is a place on the network that is no host. Programs that a test starts lie outside
    of /tmp and /run, which hosts have of their own: put them into `common`.
    """

    def __init__(self, hosts=4, without=()):
        self._options = ["--hosts", str(hosts), *(word for feature in without for word in ("--without", feature))]
        self._program = None

    def __enter__(self):
        with tempfile.TemporaryFile("w+") as errors:
            command = [sys.executable, HERE / "machine.py", *self._options]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self._program = subprocess.Popen(command, text=True, **pipes)
            line = self._program.stdout.readline()
            if not line:
                self._program.communicate(timeout=WAIT_SECONDS)
                errors.seek(0)
                raise (Unavailable if self._program.returncode == MISSING else RuntimeError)(errors.read().strip())
        self.description = json.loads(line)
        self.shared, self.common, self.store = (pathlib.Path(self.description[name]) for name in ("shared", "common", "store"))
        self.outside = self.description["outside"]
        self.names = [host["name"] for host in self.description["hosts"]]
        self.addresses = [host["address"] for host in self.description["hosts"]]
        return self

    def __exit__(self, *_):
        self._program.communicate(timeout=WAIT_SECONDS)

    def local(self, host):
        """The directory of the host's state; no other host has it."""
        return pathlib.Path(self.description["hosts"][host]["local"])

    def enter(self, host):
        """The words before a program and its arguments that start it there."""
        return list(self.description["enter_network"] if host is None else self.description["hosts"][host]["enter"])

    def start(self, host, arguments, **options):
        """A Popen of the program there. Its signals and its status are the program's; its process number is not."""
        return subprocess.Popen([*self.enter(host), *map(str, arguments)], **options)

    def run(self, host, arguments, timeout=WAIT_SECONDS, **options):
        """The completed program, with what it printed as text. Raises TimeoutExpired, after which the program is gone."""
        given = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL} | options
        if "input" in options:
            del given["stdin"]
        return subprocess.run([*self.enter(host), *map(str, arguments)], timeout=timeout, **given)

    def order(self, command):
        """Any of the program's commands; returns what it answers behind `ok`."""
        print(command, file=self._program.stdin, flush=True)
        verdict, _, rest = self._program.stdout.readline().strip().partition(" ")
        if verdict != "ok":
            raise RuntimeError(f"{command}: {verdict} {rest}")
        return rest

    def cut(self, host, inbound=True, outbound=True):
        directions = [name for name, is_wanted in zip(DIRECTIONS, (inbound, outbound)) if is_wanted]
        self.order(f"cut {host} {' '.join(directions)}")

    def restore(self, host):
        self.order(f"restore {host}")

    def part(self, host):
        """From here on the host and the others do not reach each other, but all of them reach what is outside, until `rejoin`."""
        self._route(host, "add")

    def rejoin(self, host):
        self._route(host, "del")

    def _route(self, host, verb):
        routes = ""
        for other, address in enumerate(self.addresses):
            if other != host:
                routes += f"route {verb} blackhole {address}/32\n"
        # All at once.
        self.run(host, ["ip", "-batch", "-"], input=routes, check=True)

    def dropped(self, host):
        """How many IPv4 packets were dropped since the directions were cut: (inbound, outbound)."""
        return tuple(map(int, self.order(f"dropped {host}").split()))

    def kill_host(self, host):
        self.order(f"kill {host}")

    def boot(self, host):
        """Starts a killed host again, with another boot id."""
        pid = self.order(f"boot {host}")
        description = self.description["hosts"][host]
        description["pid"] = int(pid)
        description["enter"][-1] = pid

    def freeze(self, host):
        """The shared directory stops answering on the host until `thaw`."""
        self.order(f"freeze {host}")

    def thaw(self, host):
        self.order(f"thaw {host}")

    def etcd(self, quota_bytes=None):
        """The URL of an etcd that all hosts reach. It is started the first time, with so much space."""
        if shutil.which("etcd") is None:
            raise Unavailable("there is no etcd: setup/install --engines installs it")
        return self.order("etcd" if quota_bytes is None else f"etcd {quota_bytes}")

    @contextlib.contextmanager
    def ceph(self, *options):
        """A Ceph that all hosts reach, by tests/engines/ceph.py with these options: what it says of itself."""
        program = ["/usr/bin/python3", HERE.parent / "engines" / "ceph.py", "--address", self.outside, "--grace", str(GRACE_SECONDS), *options]
        environment = {**os.environ, "TMPDIR": str(self.common)}
        with self.start(None, program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
            # Whatever it waits for, a monitor that died above all: its daemons end with it.
            watch = threading.Timer(CEPH_SECONDS, process.kill)
            watch.start()
            try:
                line = process.stdout.readline()
                watch.cancel()
                if not line and process.wait(WAIT_SECONDS) == MISSING:
                    raise Unavailable("there is no Ceph; it says why above")
                if not line:
                    raise RuntimeError(f"tests/engines/ceph.py: status {process.returncode}, or not ready within {CEPH_SECONDS} s")
                yield Engine(json.loads(line), process)
            finally:
                watch.cancel()
                process.stdin.close()
                try:
                    process.wait(WAIT_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()

    def mpi(self, family, ranks=None):
        """The words, and what the environment has besides, that start an MPI program from one host on all, one rank on each
        before any has two.

        MPICH 4.0.2 over UCX, as Debian 12 has it, often waits forever in MPI_Finalize when its ranks are on several hosts: a rank
        that has closed its own connections waits in the launcher's barrier, where it no longer reads what another rank's closing
        asks of it. Other transports and protocols of UCX do not change that; MPICH's pull request 6596 (2023) removes the barrier. What counts is what
        a program has said before; collective calls between all ranks at its end make this rarer."""
        ranks = len(self.names) if ranks is None else ranks
        shell = self.description["remote_shell"]
        if family == "mpich":
            return ["mpiexec.mpich", "-launcher", "rsh", "-launcher-exec", shell, "-hosts", ",".join(self.names), "-n", str(ranks)], {}
        if family != "openmpi":
            raise ValueError(f"unknown MPI {family} (known: mpich, openmpi)")
        slots = -(-ranks // len(self.names))
        settings = {
            "plm_rsh_agent": shell, "btl": "self,tcp", "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0",
            "hwloc_base_binding_policy": "none", "mpi_yield_when_idle": "1", "rmaps_base_mapping_policy": "node:oversubscribe",
        }
        hosts = ",".join(f"{name}:{slots}" for name in self.names)
        words = [word for name, value in settings.items() for word in ("--mca", name, value)]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return ["mpiexec.openmpi", *words, "--host", hosts, "-n", str(ranks)], allowed
