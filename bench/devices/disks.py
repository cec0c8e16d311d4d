"""Slow disks for the benchmark: ext4 on loop devices (direct I/O) over files of slow_device.c, which takes a disk's time.

Everything ends with the process that made it, whatever ends that: the mounts are in a mount namespace of its own, the loop devices
are detached with their last user, and the servers of the files end with their parent.
"""
import contextlib
import dataclasses
import fcntl
import itertools
import json
import mmap
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# What slow_device.c takes at once. The loop device would ask for 1,280 KiB, which FUSE splits into 1 MiB and the rest.
MAX_REQUEST_BYTES = 1 * MIB
LOCK = pathlib.Path("/run/lock/stripewise-bench-devices")
# Where a run has its files, in a directory of this prefix.
MEMORY, PREFIX = pathlib.Path("/dev/shm"), "stripewise-slow-"


class Skipped(Exception):
    """What is missing on this machine."""


class Failed(Exception):
    """What ended the benchmark."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A request that does not begin where the one before it ended takes `seek_s`, and every request its bytes at the rate."""

    kind: str
    seek_s: float
    bytes_per_s: float
    disk_bytes: int

    def service_s(self, request_bytes, sequential):
        return (0 if sequential else self.seek_s) + request_bytes / self.bytes_per_s


SLOW = Model("hdd", 6.5e-3, 120e6, 3 * GIB)
FAST = Model("ssd", 0.25e-3, 250e6, 3 * GIB)
MODELS = [SLOW] * 6 + [FAST] * 2


def slowed(model, factor):
    return dataclasses.replace(model, seek_s=model.seek_s * factor, bytes_per_s=model.bytes_per_s / factor)


def run(*words, **options):
    """Its output; a failure ends the benchmark with the command's own message."""
    words = list(map(str, words))
    result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": PATH}, **options)
    if result.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Disk:
    """One slow disk: its server, its loop device and, once made, its file system."""

    def __init__(self, name, model, base):
        self.name, self.model = name, model
        self.file, self.mount, self.device = base / f"{name}.disk", base / name, None
        self.server = None

    def attach(self, program):
        self.file.touch()
        self.mount.mkdir()
        words = [program, self.file, self.model.disk_bytes, self.model.seek_s, self.model.bytes_per_s]
        self.server = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.server.stdout.readline() != "mounted\n":
            raise Skipped(f"no FUSE mount to be had: {program.name} ended with {self.server.wait()}")
        try:
            self.device = run("losetup", "--find", "--show", "--direct-io=on", self.file).strip()
        except Failed as failure:
            raise Skipped(f"no loop device with direct I/O to be had: {failure}") from None
        self.set_queue("max_sectors_kb", MAX_REQUEST_BYTES // KIB)
        self.set_queue("rotational", int(self.model.kind == "hdd"))

    def set_queue(self, name, value):
        (pathlib.Path("/sys/block") / pathlib.Path(self.device).name / "queue" / name).write_text(str(value))

    def make_file_system(self):
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "assume_storage_prezeroed=1", "-N", "65536", self.device)
        # What is removed gives its memory back.
        run("mount", "-t", "ext4", "-o", "noatime,discard", self.device, self.mount)
        # From now on the loop device ends with its mount.
        run("losetup", "--detach", self.device)

    def counts(self):
        """Since the start: requests, seeks, read_bytes, written_bytes, flushes, busy_s and late_s."""
        self.server.send_signal(signal.SIGUSR1)
        return json.loads(self.server.stdout.readline())

    def detach(self):
        """Whatever of it there is; in the order in which it was made, backwards."""
        if os.path.ismount(self.mount):
            quiet("umount", self.mount) or quiet("umount", "--lazy", self.mount)
        if self.device and str(self.file) in quiet("losetup", "--noheadings", "--output", "BACK-FILE", self.device, output=True):
            quiet("losetup", "--detach", self.device)
        if self.server:
            self.server.terminate()
            try:
                self.server.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.communicate()


def quiet(*words, output=False):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, env={**os.environ, "PATH": PATH})
    return result.stdout if output else result.returncode == 0


def compile_program(name, target, libraries):
    source = HERE / f"{name}.c"
    run("cc", "-O2", "-Wall", "-Wextra", "-o", target / name, source, *libraries)
    return target / name


def check_machine():
    """Raises what is missing."""
    if os.geteuid() != 0:
        raise Skipped("only root may mount file systems on loop devices")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            raise Skipped(f"no {device} here")
    if not os.access(MEMORY, os.W_OK):
        raise Skipped(f"no {MEMORY} here")
    for tool in ("unshare", "losetup", "mkfs.ext4", "mount", "umount", "cc", "pkg-config"):
        if not shutil.which(tool, path=PATH):
            raise Skipped(f"no {tool} here; setup/install installs it")
    if not quiet("pkg-config", "fuse3"):
        raise Skipped("no libfuse3-dev here; setup/install installs it")


def enter_namespace():
    """Executes this program once more where its mounts are its own."""
    # `unshare` executes it in the same process.
    if os.environ.get("STRIPEWISE_BENCH_NAMESPACE") == str(os.getpid()):
        return
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
    os.execvpe("unshare", words, {**os.environ, "PATH": PATH, "STRIPEWISE_BENCH_NAMESPACE": str(os.getpid())})


@contextlib.contextmanager
def only_run():
    """Two at once would measure each other. What a killed run left is named, and removed where nobody can use it any more."""
    with open(LOCK, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise Failed(f"another run is under way (process {lock.read().strip() or 'unknown'}); wait for it or end it") from None
        left = [line for line in quiet("losetup", "--noheadings", "--output", "NAME,BACK-FILE", output=True).splitlines()
                if PREFIX in line]
        if left:
            raise Failed("an earlier run left loop devices; detach them (losetup --detach DEVICE):\n" + "\n".join(left))
        for directory in MEMORY.glob(f"{PREFIX}*"):
            print(f"removing {directory}, which an earlier run left", flush=True)
            shutil.rmtree(directory)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextlib.contextmanager
def slow_disks(base, factor):
    """All disks, attached and without file systems, their times multiplied by `factor`; `base` is in memory."""
    program = compile_program("slow_device", base, run("pkg-config", "--cflags", "--libs", "fuse3").split())
    totals = {}
    disks = []
    for model in MODELS:
        number = totals[model.kind] = totals.get(model.kind, 0) + 1
        disks.append(Disk(f"{model.kind}{number - 1}", slowed(model, factor), base))
    try:
        for disk in disks:
            disk.attach(program)
        yield disks
    finally:
        for disk in reversed(disks):
            disk.detach()


def raw_request_s(disk, request_bytes, count, sequential, writing):
    """Seconds of one direct request on the bare loop device, median of `count` that follow each other."""
    device = os.open(disk.device, (os.O_RDWR if writing else os.O_RDONLY) | os.O_DIRECT)
    buffer = mmap.mmap(-1, request_bytes)
    # Far apart and never one after the other. The first request, which is not counted, takes the head away.
    step = request_bytes if sequential else 37 * request_bytes
    span = disk.model.disk_bytes // request_bytes * request_bytes
    call = os.pwritev if writing else os.preadv
    try:
        call(device, [buffer], 0 if sequential else span // 2)
        times = [time.monotonic()]
        for number in range(1, count + 1):
            call(device, [buffer], number * step % span)
            times.append(time.monotonic())
        return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))
    finally:
        os.close(device)
