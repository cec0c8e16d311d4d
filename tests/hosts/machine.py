#!/usr/bin/env python3
"""Several hosts on one machine for tests: namespaces, a network between them, and a directory that they share.

    tests/hosts/machine.py [--hosts N] [--without FEATURE]...

A host has namespaces of network, host name, process numbers, IPC and mounts. Of its own it has /proc, /dev/shm, /tmp, /run,
/etc/machine-id, a boot id and a directory for its state; the rest of the file system is this machine's. Hosts are named h0,
h1, ...; /etc/hosts has their addresses. All of them mount one directory, each by a FUSE server of its own
(mount.c): data, attributes and locks are coherent, inode numbers agree and device numbers differ, as on NFS.

FEATURE is what hosts shall not have: `exchange` and `noreplace` (flags of renameat2), `birth-time`, `leases` (of any
mount), `locks` (between hosts; each has its own), `coherence` (names, attributes and data are cached for an hour).

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
    etcd [BYTES]               starts an etcd beside the hosts, with so much space; answers `ok URL`

The bed lives as long as standard input is open, so it ends with the test that started it, also after a panic or a kill:
every process is ended and the directory is removed.

Exit status 3, with the reason on standard error, where that cannot be had; tests skip then.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))
from daemons import Started, end_all, end_with_parent  # noqa: E402

MISSING = 3
WAIT_SECONDS = 60
NETWORK, OUTSIDE = "10.77.0", "10.77.0.254"
MAX_HOSTS = 64
# What a host can go without: options of its mount, and of what starts programs on it.
MOUNT_OPTIONS = {
    "exchange": "no-exchange", "noreplace": "no-noreplace", "birth-time": "no-birth-time", "locks": "no-locks", "coherence": "caching",
}
FEATURES = (*MOUNT_OPTIONS, "leases")
DIRECTIONS = ("inbound", "outbound")


class Unavailable(Exception):
    """No hosts can be had here."""


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


class Machine(Started):
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

    def __exit__(self, *_):
        processes = [process for host in self.hosts for process in host.processes.values()]
        processes += [process for process in (self.etcd, self.network) if process is not None]
        end_all(processes)
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
            # The second: it went while it was being looked up and deleted.
            if not any(gone in str(error) for gone in ("Cannot find device", "No such device")):
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

    def _start_etcd(self, quota_bytes=None):
        if self.etcd is not None:
            return self.etcd_url
        if shutil.which("etcd") is None:
            raise RuntimeError("there is no etcd: setup/install --engines installs it")
        client, peer = f"http://{OUTSIDE}:2379", f"http://{OUTSIDE}:2380"
        log_path = self.directory / "etcd.log"
        command = [
            "etcd", "--data-dir", self.directory / "etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            # The machine's disk may be busy for seconds, and nobody takes its power away.
            "--unsafe-no-fsync", "--logger", "zap", "--log-outputs", "stderr", *([] if quota_bytes is None else ["--quota-backend-bytes", quota_bytes]),
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
        if verb == "etcd" and len(words) < 2:
            return self._start_etcd(*words)
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
