#!/usr/bin/env python3
"""Several hosts on one machine for tests: namespaces, a network between them, and a directory that they share.

    tests/hosts/bed.py [--hosts N] [--without FEATURE]...

A host has namespaces of network, host name, process numbers, IPC and mounts. Of its own it has /proc, /dev/shm, /tmp, /run,
/etc/machine-id, a boot id and a directory for its state; the rest of the file system is this machine's. Hosts are named h0,
h1, ...; /etc/hosts has their addresses. All of them mount one directory, each by a FUSE server of its own
(mount.c): data, attributes and locks are coherent, inode numbers agree and device numbers differ, as on NFS.

FEATURE is what hosts shall not have: `exchange` and `noreplace` (flags of renameat2), `birth-time`, `leases` (of any
mount), `coherence` (names, attributes and data are cached for an hour).

As a program it prints one line of JSON once all hosts are up:

    {"directory": PATH, "shared": PATH, "common": PATH, "store": PATH, "outside": "10.77.0.254",
     "enter_network": [WORD, ...], "remote_shell": PATH,
     "hosts": [{"name": "h0", "address": "10.77.0.1", "local": PATH, "pid": PID, "enter": [WORD, ...]}, ...]}

`enter` is what stands before a program and its arguments to run it on the host; the program ends with it. `enter_network`
does the same for a place on the network that is no host. `shared` is the shared directory on every host, and `store` the
same directory as this machine sees it. `common` is one directory, of one device, for programs and configuration that
hosts and machine have at the same path. `local` is a host's directory for its state: a disk, so it outlasts a reboot,
where /tmp, /run and /dev/shm do not.

Commands are read from standard input, one a line, each answered by one line (`ok`, or what is wrong):

    cut N [inbound|outbound]   drops all packets to host N, from it, or both, without a word to anybody
    restore N                  ends that
    dropped N                  answers `ok INBOUND OUTBOUND`: IPv4 packets dropped since the directions were cut
    kill N                     ends all processes of host N at once, as a power failure does
    boot N                     starts it again, with another boot id; answers `ok PID`
    freeze N | thaw N          the shared directory does not answer on host N; it goes on
    etcd                       starts an etcd beside the hosts; answers `ok URL`

The bed lives as long as standard input is open, so it ends with the test that started it, also after a panic or a kill:
every process is ended and the directory is removed.

Exit status 3, with the reason on standard error, where that cannot be had; tests skip then.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
MISSING = 3
WAIT_SECONDS = 60
# For a whole Ceph, whose parts wait for each other.
CEPH_SECONDS = 180
NETWORK, OUTSIDE = "10.77.0", "10.77.0.254"
MAX_HOSTS = 64
# What a host can go without: options of its mount, and of what starts programs on it.
MOUNT_OPTIONS = {"exchange": "no-exchange", "noreplace": "no-noreplace", "birth-time": "no-birth-time", "coherence": "caching"}
FEATURES = (*MOUNT_OPTIONS, "leases")
DIRECTIONS = ("inbound", "outbound")


class Unavailable(Exception):
    """No hosts can be had here."""


def end_with_parent():
    """In a child before exec: it gets SIGKILL when its parent ends, and no terminal's signals."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Host:
    """The processes and names of one host; `pid` is None while it is down."""

    def __init__(self, number, directory):
        self.number = number
        self.name = f"h{number}"
        self.address = f"{NETWORK}.{number + 1}"
        self.local = directory / self.name
        self.identity = directory / "identities" / self.name
        self.pid = None
        self.processes = {}


class Machine:
    """What the program keeps: all processes of a bed."""

    def __init__(self, hosts, without):
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"{hosts} hosts: a bed has 1 to {MAX_HOSTS}")
        if os.geteuid() != 0:
            raise Unavailable("namespaces and their network need root")
        programs = ("cc", "pkg-config", "ip", "nft")
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            raise Unavailable(f"{', '.join(missing)} not found: setup/install and setup/install --engines install them")
        missing = [path for path in ("/dev/fuse", "/etc/machine-id") if not os.path.exists(path)]
        if missing:
            raise Unavailable(f"there is no {', '.join(missing)}")
        self.without = without
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="stripewise-bed-"))
        self.store, self.shared, self.common = (self.directory / name for name in ("store", "shared", "common"))
        self.program, self.mount_program = self.directory / "host", self.directory / "shared_mount"
        self.hosts = [Host(number, self.directory) for number in range(hosts)]
        self.network = None
        self.etcd = None
        self.etcd_url = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        processes = [process for host in self.hosts for process in host.processes.values()]
        processes += [process for process in (self.etcd, self.network) if process is not None]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self):
        self._build()
        for path in (self.store, self.shared, self.common, self.directory / "identities"):
            path.mkdir()
        # As a parallel file system's root has it: whoever may use the machine may make files.
        self.store.chmod(0o1777)
        for host in self.hosts:
            host.local.mkdir(mode=0o700)
            host.identity.mkdir()
            (host.identity / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        (self.common / "hosts").write_text(f"127.0.0.1 localhost\n{OUTSIDE} outside\n{names}")
        shell = self.common / "rsh"
        shell.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S -E '{HERE / 'remote_shell.py'}' run \"$@\"\n")
        shell.chmod(0o755)
        try:
            self.network = self._spawn(self.program, "network")
            self._network_pid = int(self._first_line(self.network, "the network"))
            # An address of its own: one of its ports' would change when that host is killed, and others remember it.
            self._ip(self._network_pid, "link add bridge0 address 02:00:0a:4d:00:fe type bridge", f"addr add {OUTSIDE}/24 dev bridge0",
                     "link set bridge0 up", "link set lo up")
            self._nft(self._network_pid, "add table netdev bed")
        except RuntimeError as error:
            raise Unavailable(error) from error
        self._boot(self.hosts)

    def _build(self):
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True)
        if flags.returncode:
            raise Unavailable("there is no libfuse to build with: setup/install installs libfuse3-dev")
        common = ["cc", "-O1", "-Wall", "-Wextra", "-Werror"]
        builds = [
            [*common, "-o", self.program, HERE / "host.c"],
            [*common, "-o", self.mount_program, *sorted(HERE.glob("mount*.c")), *flags.stdout.split(), "-pthread"],
        ]
        running = [subprocess.Popen(build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for build in builds]
        for build, process in zip(builds, running):
            output, _ = process.communicate(timeout=WAIT_SECONDS)
            if process.returncode:
                raise RuntimeError(f"{' '.join(map(str, build))}: status {process.returncode}: {output}")

    def _spawn(self, *command, log=None, environment=None):
        return subprocess.Popen(
            [*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if log is None else log, stderr=log,
            env=environment, preexec_fn=end_with_parent,
        )

    def _first_line(self, process, what):
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{what} did not start: status {process.wait(WAIT_SECONDS)}; it says why above")
        return line

    def _batch(self, command, lines):
        result = subprocess.run(command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {'; '.join(lines)}: {result.stderr.strip()}")
        return result.stdout

    def _ip(self, pid, *lines):
        self._batch([self.program, "enter", "--network", str(pid), "ip", "-batch", "-"], lines)

    def _nft(self, pid, *lines):
        self._batch([self.program, "enter", "--network", str(pid), "nft", "-f", "-"], lines)

    def _enter(self, host):
        return [str(self.program), "enter", *(["--no-leases"] if "leases" in self.without else []), str(host.pid)]

    def _boot(self, hosts):
        """Each step is under way on all of them at once."""
        for host in hosts:
            (host.identity / "boot_id").write_text(f"{uuid.uuid4()}\n")
            mounts = ["tmpfs", "/dev/shm", "tmpfs", "/run", "tmpfs", "/tmp"]
            # Other hosts' directories are out of sight, wherever the bed's lies.
            mounts += ["tmpfs", self.directory, "folder", self.shared]
            mounts += [word for path in (self.common, host.local) for word in ("bind", path, path)]
            mounts += ["bind", self.common / "hosts", "/etc/hosts"]
            mounts += ["bind", host.identity / "machine-id", "/etc/machine-id"]
            mounts += ["bind", host.identity / "boot_id", "/proc/sys/kernel/random/boot_id"]
            host.processes["first"] = self._spawn(self.program, "boot", host.name, *mounts)
        for host in hosts:
            host.pid = int(self._first_line(host.processes["first"], host.name))
            options = [MOUNT_OPTIONS[feature] for feature in self.without if feature in MOUNT_OPTIONS]
            host.processes["mount"] = self._spawn(self.mount_program, self.store, self.shared, host.pid, *options)
            # A host keeps its hardware address when it boots again: others remember it for a while.
            hardware = "02:00:" + ":".join(f"{int(part):02x}" for part in host.address.split("."))
            self._ip(self._network_pid,
                     f"link add {host.name} type veth peer name eth0 address {hardware} netns {host.pid}",
                     f"link set {host.name} master bridge0", f"link set {host.name} up")
            self._ip(host.pid, f"addr add {host.address}/24 dev eth0", "link set eth0 up", "link set lo up",
                     f"route add default via {OUTSIDE}")
            self._nft(host.pid, "add table netdev bed")
        for host in hosts:
            self._first_line(host.processes["mount"], f"the shared directory of {host.name}")
            shell = [sys.executable, "-S", "-E", HERE / "remote_shell.py", "serve", host.address]
            host.processes["shell"] = self._spawn(*self._enter(host), *shell)
        for host in hosts:
            self._first_line(host.processes["shell"], f"the remote shell of {host.name}")

    def describe(self):
        return {
            "directory": str(self.directory),
            "shared": str(self.shared),
            "common": str(self.common),
            "store": str(self.store),
            "outside": OUTSIDE,
            "enter_network": [str(self.program), "enter", "--network", str(self._network_pid)],
            "remote_shell": str(self.common / "rsh"),
            "hosts": [
                {"name": host.name, "address": host.address, "local": str(host.local), "pid": host.pid, "enter": self._enter(host)}
                for host in self.hosts
            ],
        }

    def _up(self, word):
        host = self._host(word)
        if host.pid is None:
            raise ValueError(f"{host.name} is down: boot it first")
        return host

    def _host(self, word):
        if not word.isdigit() or int(word) >= len(self.hosts):
            raise ValueError(f"there is no host {word}: the hosts are 0 to {len(self.hosts) - 1}")
        return self.hosts[int(word)]

    def _place(self, host, direction):
        """Where packets of that direction come in: a process of the namespace, and the device there."""
        return (host.pid, "eth0") if direction == "inbound" else (self._network_pid, host.name)

    def _cut(self, word, *directions):
        host = self._up(word)
        unknown = [direction for direction in directions if direction not in DIRECTIONS]
        if unknown:
            raise ValueError(f"unknown direction {unknown[0]} (known: {', '.join(DIRECTIONS)})")
        for direction in directions or DIRECTIONS:
            pid, device = self._place(host, direction)
            hook = f"{{ type filter hook ingress device \"{device}\" priority 0; policy drop; }}"
            self._nft(pid, f"add chain netdev bed {device} {hook}", f"flush chain netdev bed {device}",
                      f"add rule netdev bed {device} meta protocol ip counter")

    def _dropped(self, word):
        host = self._up(word)
        counts = []
        for direction in DIRECTIONS:
            pid, device = self._place(host, direction)
            listed = self._batch([self.program, "enter", "--network", str(pid), "nft", "list", "table", "netdev", "bed"], [])
            found = re.search(rf"chain {device} .*?packets (\d+)", listed, re.DOTALL)
            counts.append(found[1] if found else "0")
        return " ".join(counts)

    def _restore(self, word):
        host = self._up(word)
        for direction in DIRECTIONS:
            pid, device = self._place(host, direction)
            # Added first, so that there is one to be deleted.
            self._nft(pid, f"add chain netdev bed {device}", f"delete chain netdev bed {device}")

    def _kill(self, word):
        host = self._up(word)
        if host.processes["first"].poll() is None:
            os.kill(host.pid, signal.SIGKILL)
        host.pid = None
        # Its parent ends when it is gone, the mount's server with the mount.
        self._thaw_if_any(host)
        for process in host.processes.values():
            process.wait(WAIT_SECONDS)
            if process.stdout:
                process.stdout.close()
        host.processes = {}
        # The kernel takes a dead namespace's devices away in its own time, and the name is wanted again.
        try:
            self._ip(self._network_pid, f"link del {host.name}")
        except RuntimeError as error:
            if "Cannot find device" not in str(error):
                raise
        # A rule for what the host sends outlasts its device.
        self._nft(self._network_pid, f"add chain netdev bed {host.name}", f"delete chain netdev bed {host.name}")

    def _thaw_if_any(self, host):
        host.processes["mount"].send_signal(signal.SIGCONT)

    def _boot_again(self, word):
        host = self._host(word)
        if host.pid is not None:
            raise ValueError(f"{host.name} is up: kill it first")
        self._boot([host])
        return str(host.pid)

    def _start_etcd(self):
        if self.etcd is not None:
            return self.etcd_url
        if shutil.which("etcd") is None:
            raise RuntimeError("there is no etcd: setup/install --engines installs it")
        client, peer = f"http://{OUTSIDE}:2379", f"http://{OUTSIDE}:2380"
        log_path = self.directory / "etcd.log"
        command = [
            "etcd", "--data-dir", self.directory / "etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--logger", "zap", "--log-outputs", "stderr",
        ]
        with open(log_path, "wb") as log:
            self.etcd = self._spawn(*self.describe()["enter_network"], *command, log=log)
        end = time.monotonic() + WAIT_SECONDS
        while not any(said in log_path.read_text() for said in ("serving client traffic", "serving insecure client requests")):
            if self.etcd.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"etcd does not serve: {log_path.read_text()[-2000:]}")
            time.sleep(0.02)
        self.etcd_url = client
        return client

    def obey(self, line):
        """What is answered behind `ok`, if anything."""
        verb, *words = line.split()
        if verb == "etcd" and not words:
            return self._start_etcd()
        if not words:
            raise ValueError(f"{verb}: of which host?")
        if verb == "cut":
            return self._cut(*words)
        verbs = {
            "restore": self._restore,
            "dropped": self._dropped,
            "kill": self._kill,
            "boot": self._boot_again,
            "freeze": lambda word: self._up(word).processes["mount"].send_signal(signal.SIGSTOP),
            "thaw": lambda word: self._thaw_if_any(self._up(word)),
        }
        if verb not in verbs or len(words) != 1:
            raise ValueError(f"unknown command {line.strip()!r}")
        return verbs[verb](words[0])


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
            command = [sys.executable, HERE / "bed.py", *self._options]
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

    def etcd(self):
        """The URL of an etcd that all hosts reach."""
        return self.order("etcd")

    @contextlib.contextmanager
    def ceph(self, *options):
        """A Ceph that all hosts reach, by tests/engines/ceph.py with these options: what it says of itself."""
        program = ["/usr/bin/python3", HERE.parent / "engines" / "ceph.py", "--address", self.outside, *options]
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
                yield json.loads(line)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--without", action="append", choices=FEATURES, default=[])
    options = parser.parse_args()
    # A terminal's signals reach who started this too, and standard input ends with that.
    if os.getpgrp() != os.getpid():
        os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with Machine(options.hosts, options.without) as machine:
            print(json.dumps(machine.describe()), flush=True)
            for line in sys.stdin:
                try:
                    answer = machine.obey(line)
                    print(f"ok {answer}" if answer else "ok", flush=True)
                except (ValueError, RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
    except Unavailable as reason:
        print(f"no hosts for tests: {reason}", file=sys.stderr)
        sys.exit(MISSING)


if __name__ == "__main__":
    main()
