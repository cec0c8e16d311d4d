#!/usr/bin/env python3
"""Runs real programs on ordinary files and again redirected by Stripewise, and compares all that can be seen.

Each case of cases.py runs twice, each time in a fresh directory: bare, and under `stripewise run` in a managed one.
Equal must be the output (every call's result and errno), the exit status, and afterwards every file's name, type,
mode, links, size and bytes. A redirected run must also have left stubs, or nothing was redirected at all, and
`stripewise cat` must give the same bytes as the redirected program's reads.

    STRIPEWISE=target/release/stripewise tests/programs/run.py [--only WORD]... [--mpi mpich|openmpi] [--list]
    tests/programs/run.py --bare-twice      # both runs bare: the programs themselves are deterministic
    tests/programs/run.py --on ext4,xfs     # files, stubs and servers on these file systems, in small loop-mounted images

Exit status: 0 all passed, 1 something failed, 2 nothing could be run.
"""

import argparse
import concurrent.futures
import difflib
import hashlib
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

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True
from cases import DISK_CASES, DOCUMENTED, Case, all_cases  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MPIRUN = ROOT / "setup" / "mpirun"
COMPILERS = {
    (".c", None): "cc", (".cc", None): "c++", (".c", "mpich"): "mpicc.mpich", (".c", "openmpi"): "mpicc.openmpi",
    (".f90", "mpich"): "mpifort.mpich", (".f90", "openmpi"): "mpifort.openmpi",
}
DIFF_LINES_SHOWN = 40
# How each file system is made on an image, and how large the image is: XFS wants 300 MB at least.
FILE_SYSTEMS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q")}
IMAGE_BYTES = 512 << 20
# Names of files that stay ordinary below a managed directory: shared objects, and the memory that SQLite's processes share.
STAYS_ORDINARY = re.compile(r"\.so(\.[0-9]+)*$|-shm$")


class Unusable(Exception):
    """Something that every case needs is not there."""


class Skipped(Exception):
    """A case needs a program or a module that this machine lacks."""


class Failed(Exception):
    """A case failed; the text says how."""


def execute(command: list[str], directory: pathlib.Path, environment: dict[str, str], timeout_s: float) -> str:
    """The output of a command and its exit status, as the last line. Kills only what it started."""
    process = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, umask=0o022)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise Failed(f"not done after {timeout_s:.0f} s: {' '.join(command)}\n{tail(output)}") from None
    except BaseException:  # an interrupt of the runner ends what it started
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return output.decode(errors="backslashreplace") + f"\nexit status {process.returncode}\n"


def tail(output: bytes) -> str:
    return "\n".join(output.decode(errors="backslashreplace").splitlines()[-15:])


def find_python(modules: tuple[str, ...]) -> str:
    """An interpreter that can import the modules; the system's first, for h5py and mpi4py belong to it."""
    for candidate in ("/usr/bin/python3", "python3", sys.executable):
        path = shutil.which(candidate)
        check = "; ".join(f"import {module}" for module in modules) or "pass"
        if path and subprocess.run([path, "-c", check], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0:
            return path
    raise Skipped(f"no python3 here can import {', '.join(modules)}")


class Bare:
    """Runs a command as it is."""

    def __init__(self, base: pathlib.Path, label: str):
        self.base = base / label
        self.base.mkdir()
        self.base.chmod(0o755)

    def directory(self, case: Case) -> pathlib.Path:
        path = self.base / case.name.replace("/", ".")
        path.mkdir()
        path.chmod(0o755)
        return path

    def command(self, words: list[str]) -> list[str]:
        return words

    def inspect(self, directory: pathlib.Path, snapshot: str, case: Case) -> None:
        """Nothing but the snapshot is there to be looked at."""


class Redirected(Bare):
    """Runs a command under `stripewise run`, in a directory that Stripewise manages. All that the tests know of the
    command line is in this class."""

    # Small regions and unequal servers, so that small files cross stripes and regions.
    SERVERS = ("hdd0=hdd", "hdd1=hdd", "hdd2=hdd", "ssd0=ssd", "ssd1=ssd")

    def __init__(self, base: pathlib.Path, label: str, stripewise: str):
        super().__init__(base, label)
        self.stripewise = stripewise
        self.cluster = base / f"{label}-cluster"
        self.cluster.mkdir()
        self.cluster.chmod(0o755)
        servers = []
        for server in self.SERVERS:
            store = base / f"{label}-servers" / server.split("=")[0]
            store.mkdir(parents=True)
            servers += ["--server", f"{server}:{store}"]
        self.tell("init", *servers, "--region", "1MiB")

    def tell(self, *words: str) -> bytes:
        command = [self.stripewise, "-C", str(self.cluster), *words]
        result = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        if result.returncode != 0:
            raise Failed(f"{' '.join(command)} exited {result.returncode}:\n{tail(result.stdout + result.stderr)}")
        return result.stdout

    def directory(self, case: Case) -> pathlib.Path:
        path = super().directory(case)
        self.tell("manage", str(path))
        return path

    def command(self, words: list[str]) -> list[str]:
        return [self.stripewise, "-C", str(self.cluster), "run", "--", *words]

    def inspect(self, directory: pathlib.Path, snapshot: str, case: Case) -> None:
        """Stubs where data should be, the same bytes by `stripewise cat`, and nothing that `check` finds. The snapshot is the redirected one."""
        stubs = 0
        for line in snapshot.splitlines():
            name, _, description = line.partition("\t")
            words = description.split()
            if "sha256" not in words or words[words.index("size") + 1] == "0":
                continue
            logical = words[words.index("sha256") + 1]
            is_ordinary = sha256((directory / name).read_bytes()) == logical
            if STAYS_ORDINARY.search(name):
                if not is_ordinary:
                    raise Failed(f"{name} is managed, and used past any library")
                continue
            if is_ordinary:
                raise Failed(f"{name} is an ordinary file: it was not redirected")
            stubs += 1
            if sha256(self.tell("cat", str(directory / name))) != logical:
                raise Failed(f"stripewise cat {name} gives other bytes than the redirected program reads")
        findings = json.loads(self.tell("--json", "check"))["findings"]
        if findings:
            raise Failed(f"stripewise check finds {len(findings)} faults afterwards, the first: {findings[0]}")
        if case.leaves_data and stubs == 0:
            raise Failed("no managed file is left: nothing was redirected, or the case proves nothing")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Runner:
    def __init__(self, build: pathlib.Path, first: Bare, second: Bare):
        self.build, self.first, self.second = build, first, second

    def compile(self, case: Case) -> None:
        if not case.source or (self.build / case.build_as).exists():
            return
        source = HERE / case.source
        compiler = case.programs[0] if case.source == "mpi/hdf5.c" else COMPILERS[source.suffix, case.mpi]
        if not shutil.which(compiler):
            raise Skipped(f"no {compiler} here")
        # Compilers of modules and of HDF5 leave files where they run.
        with tempfile.TemporaryDirectory(dir=self.build) as scratch:
            command = [compiler, *case.flags, "-o", str(self.build / case.build_as), str(source), "-lm"]
            result = subprocess.run(command, capture_output=True, cwd=scratch, stdin=subprocess.DEVNULL)
        if result.returncode != 0:
            raise Failed(f"{' '.join(command)}:\n{result.stderr.decode()}")

    def words(self, case: Case) -> list[str]:
        for program in case.programs:
            if not shutil.which(program):
                raise Skipped(f"no {program} here")
        known = {"{build}": str(self.build), "{here}": str(HERE), "{mpirun}": str(MPIRUN)}
        if "{python}" in case.command:
            known["{python}"] = find_python(case.modules)
        words = []
        for word in case.command:
            for name, value in known.items():
                word = word.replace(name, value)
            words.append(word)
        return words

    def observe(self, way: Bare, case: Case, words: list[str]) -> tuple[str, str, pathlib.Path]:
        directory = way.directory(case)
        environment = {
            **{k: v for k, v in os.environ.items() if k in ("PATH", "TMPDIR", "USER", "LD_LIBRARY_PATH", "STRIPEWISE_LOG")},
            "HOME": str(self.build), "LC_ALL": "C", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1",
            **dict(case.environment),
        }
        transcript = execute(way.command(words), directory, environment, case.timeout_s)
        snapshot = execute(way.command([find_python(()), str(HERE / "snapshot.py"), str(directory)]), directory,
                           environment, case.timeout_s)
        return transcript, snapshot, directory

    def run(self, case: Case) -> None:
        self.compile(case)
        words = self.words(case)
        bare_transcript, bare_snapshot, _ = self.observe(self.first, case, words)
        transcript, snapshot, directory = self.observe(self.second, case, words)
        if "WRONG" in bare_transcript or "exit status 0\n" not in bare_transcript:
            lines = [line for line in bare_transcript.splitlines() if "WRONG" in line or line.startswith("rank ")]
            raise Failed("the bare run itself went wrong:\n" + "\n".join([*lines[:10], tail(bare_transcript.encode())]))
        compare("transcript", bare_transcript, transcript)
        compare("files left", bare_snapshot, snapshot)
        self.second.inspect(directory, snapshot, case)


def compare(what: str, bare: str, other: str) -> None:
    expected, found = bare.splitlines(), other.splitlines()
    if len(expected) == len(found):
        expected = [b if b == f or not allowed(b, f) else f for b, f in zip(expected, found)]
    if expected != found:
        lines = list(difflib.unified_diff(expected, found, "bare", "second", lineterm="", n=2))
        more = f"\n... {len(lines) - DIFF_LINES_SHOWN} lines more" if len(lines) > DIFF_LINES_SHOWN else ""
        raise Failed(f"{what} differs:\n" + "\n".join(lines[:DIFF_LINES_SHOWN]) + more)


def allowed(bare: str, other: str) -> bool:
    """True for lines `~tag result` whose second result is a documented one."""
    tag, _, result = other.partition(" ")
    return other.startswith("~") and bare.partition(" ")[0] == tag and result in DOCUMENTED.get(tag[1:], ())


def select(arguments: argparse.Namespace) -> list[Case]:
    return [
        case for case in all_cases()
        if (not arguments.only or any(word in case.name for word in arguments.only))
        and (not arguments.mpi or case.mpi in (None, arguments.mpi))
    ]


def run_all(cases: list[Case], arguments: argparse.Namespace, base: pathlib.Path) -> int:
    build = base / "build"
    build.mkdir()
    first = Bare(base, "bare")
    if arguments.bare_twice:
        second: Bare = Bare(base, "again")
    else:
        second = Redirected(base, "redirected", find_stripewise())
    runner = Runner(build, first, second)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # Failures to compile come up again, and are told, when the case runs.
        list(pool.map(lambda case: quietly(runner.compile, case), {c.build_as or c.name: c for c in cases}.values()))

    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        begun_s = time.monotonic()
        try:
            runner.run(case)
            verdict, text = "ok", ""
            counts["passed"] += 1
        except Skipped as reason:
            verdict, text = "skip", str(reason)
            counts["skipped"] += 1
        except (Failed, subprocess.TimeoutExpired) as reason:
            verdict, text = "FAIL", str(reason)
            counts["failed"] += 1
        print(f"{verdict:4} {case.name} ({time.monotonic() - begun_s:.1f} s)", flush=True)
        if text:
            print("     " + text.replace("\n", "\n     "), flush=True)
        if verdict == "FAIL" and arguments.fail_fast:
            break
    print(", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    return 1 if counts["failed"] or (arguments.strict and counts["skipped"]) else 0


def run_on(kind: str, arguments: argparse.Namespace) -> int:
    """This program once more, in a mount namespace of its own: however it ends, its mount and loop device end with it."""
    for tool in ("unshare", "mount", FILE_SYSTEMS[kind][0]):
        if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
            raise Unusable(f"no {tool} here; setup/install installs it")
    if os.geteuid() != 0:
        print(f"SKIPPED: {kind}: only root may mount a loop device", flush=True)
        return 0
    only = [word for pattern in arguments.only or DISK_CASES for word in ("--only", pattern)]
    options = [f"--{name}" for name in ("strict", "fail-fast") if getattr(arguments, name.replace("-", "_"))]
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--mounted", kind, *only, *options]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


def mount(kind: str, base: pathlib.Path) -> pathlib.Path:
    """A fresh file system of that kind, on an image that goes with the last use of its loop device."""
    image, at = base / f"{kind}.image", base / kind
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    at.mkdir()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        for command in ([*FILE_SYSTEMS[kind], str(image)], ["mount", "-t", kind, "-o", "loop", str(image), str(at)]):
            result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                    env={**os.environ, "PATH": path})
            if result.returncode != 0:
                raise Skipped(f"{' '.join(command)}: {result.stderr.strip()}")
    finally:
        image.unlink()
    at.chmod(0o755)
    return at


def memory() -> pathlib.Path | None:
    """Where an image is quick to sync: memory, if there is room."""
    path = pathlib.Path("/dev/shm")
    return path if os.access(path, os.W_OK) and shutil.disk_usage(path).free > 2 * IMAGE_BYTES else None


def run_mounted(kind: str, cases: list[Case], arguments: argparse.Namespace, base: pathlib.Path) -> int:
    try:
        at = mount(kind, base)
    except Skipped as reason:
        print(f"SKIPPED: {kind}: no loop device or file system to be had: {reason}", flush=True)
        return 0
    print(f"on {kind}:", flush=True)
    try:
        return run_all(cases, arguments, at)
    finally:
        subprocess.run(["umount", "--lazy", str(at)], capture_output=True, stdin=subprocess.DEVNULL)


def quietly(function, case: Case) -> None:
    try:
        function(case)
    except (Failed, Skipped):
        pass


def find_stripewise() -> str:
    path = os.environ.get("STRIPEWISE")
    if not path:
        raise Unusable("name the command in STRIPEWISE (make test-programs does), or give --bare-twice")
    if not (found := shutil.which(path)):
        raise Unusable(f"STRIPEWISE={path}: no such program; make build makes it")
    return os.path.abspath(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", action="append", metavar="WORD", help="only cases with WORD in their name")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), help="of the MPI cases only this one's")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--bare-twice", action="store_true", help="run both times bare: the programs are deterministic")
    parser.add_argument("--strict", action="store_true", help="a skipped case is a failure")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    parser.add_argument("--dir", type=pathlib.Path, help="where to work (a fresh temporary directory)")
    parser.add_argument("--keep", action="store_true", help="leave the directories for a look")
    parser.add_argument("--on", metavar="KIND,...", help="on file systems of these kinds instead: ext4, xfs")
    parser.add_argument("--mounted", choices=sorted(FILE_SYSTEMS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.on:
        kinds = arguments.on.split(",")
        if unknown := [kind for kind in kinds if kind not in FILE_SYSTEMS]:
            parser.error(f"--on {unknown[0]}: known are {', '.join(FILE_SYSTEMS)}")
        try:
            return max(run_on(kind, arguments) for kind in kinds)
        except Unusable as reason:
            print(f"tests/programs/run.py: {reason}", file=sys.stderr)
            return 2
    cases = select(arguments)
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    if not cases:
        print("no case matches", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(2))
    where = arguments.dir or (memory() if arguments.mounted else None)
    base = pathlib.Path(tempfile.mkdtemp(prefix="stripewise-programs-", dir=where))
    base.chmod(0o755)  # a case runs as nobody
    try:
        if arguments.mounted:
            return run_mounted(arguments.mounted, cases, arguments, base)
        return run_all(cases, arguments, base)
    except (Unusable, Failed) as reason:
        print(f"tests/programs/run.py: {reason}", file=sys.stderr)
        return 2
    finally:
        if arguments.keep:
            print(f"kept: {base}", file=sys.stderr)
        else:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
