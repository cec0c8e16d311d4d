#!/usr/bin/env python3
"""The benchmarks of `make bench`: prints a table and writes bench-out/bench.json.

Every figure is a median and stands beside its floor, measured in the same run and in turn with it: the bare system call for
capture and redirection, the device parameters for emulated servers, one pass over the same memory for planning and counting.
Rust benchmarks (crates/*/benches) print their figures themselves, one JSON object a line.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB, MIB = 1 << 10, 1 << 20
# Median of so many pairs, bare and ours in turn.
PAIRS = 7
# Files of one run on memory, and on the disk that the sources lie on.
SMALL_FILES, SMALL_FILES_ON_DISK = 1000, 1000
ROUNDS_ON_DISK = 3
# Files of the cluster that is checked.
CHECKED_FILES = 10_000
SMALL_LOOPS = ("create", "stat", "open_close", "unlink")
# Traces that are planned: names and requests, repetitions each.
PLANNED = (("10k", 10_000, 5), ("100k", 100_000, 5), ("1M", 1_000_000, 3))
# Of the log that is advised upon.
SEGMENTS, SEGMENT_RANKS = 1_000_000, 64
# Of tests/programs/shell.
SMALL_SCRIPTS = ("sqlite", "git")
# Requests that a mount and its floor answer at once, and files of a directory that is listed there.
MOUNT_THREADS, LISTED, LISTED_TEXT = 8, 1000, b"text"
# By the name of the measurement: how the directory is managed in which the scripts run.
SCRIPTS_IN = {"": (), ".min-size": ("--min-size", "1MiB")}
RUST_BENCHES = [
    ("stripewise-planner", "plan"),
    ("stripewise-trace", "counts"),
    ("stripewise-sim", "events"),
    ("stripewise-broker", "protocol"),
    ("stripewise-broker", "parallel"),
    ("stripewise-broker", "emulated_moves"),
]


class Bench:
    def __init__(self, stripewise, work):
        self.stripewise = stripewise
        self.library = stripewise.parent / "libstripewise_preload.so"
        self.work = work
        self.loop = work / "io_loop"
        self.results = []
        self.small_files = work / "small_files"
        for program in (self.loop, self.small_files):
            subprocess.run(["cc", "-O2", "-o", program, ROOT / f"bench/{program.name}.c"], check=True)

    def add(self, name, value, unit, floor=None, ratio=None):
        """What has no floor, such as a search, has neither floor nor ratio."""
        if floor is None:
            self.results.append({"name": name, "value": value, "unit": unit})
            print(f"{name:<26} {value:>12.4g} {unit}", flush=True)
            return
        ratio = value / floor if ratio is None else ratio
        self.results.append({"name": name, "value": value, "unit": unit, "floor": floor, "ratio": ratio})
        print(f"{name:<26} {value:>12.4g} {unit:<10} floor {floor:>12.4g}   ratio {ratio:.3f}", flush=True)

    def command(self, *words, cluster=None, **options):
        environment = dict(os.environ)
        if cluster:
            environment["STRIPEWISE_CLUSTER"] = str(cluster)
        run = subprocess.run([self.stripewise, *map(str, words)], env=environment, capture_output=True, text=True, **options)
        if run.returncode not in (0, 1):
            sys.exit(f"stripewise {' '.join(map(str, words))}: exit {run.returncode}\n{run.stderr}")
        return run.stdout

    def spin(self, kind, path, file_bytes, request, count, environment=None):
        """ns of the loop, ns of the whole process."""
        words = [self.loop, kind, path, file_bytes, request, count]
        start = time.monotonic_ns()
        run = subprocess.run(list(map(str, words)), env={**os.environ, **(environment or {})}, capture_output=True, text=True)
        whole = time.monotonic_ns() - start
        if run.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: exit {run.returncode}\n{run.stderr}")
        return int(run.stdout), whole

    # -- capture -----------------------------------------------------------------------------------------------------------

    def capture(self, count):
        """Pairs of a fifth of the operations each, then one run of all of them, of which no record may be missing."""
        path, trace = self.work / "captured", self.work / "capture.trace"
        with open(path, "wb") as file:
            file.truncate(64 * MIB)

        def once(captured, operations):
            environment = {}
            if captured:
                shutil.rmtree(trace, ignore_errors=True)
                trace.mkdir()
                environment = {"LD_PRELOAD": str(self.library), "STRIPEWISE_TRACE": str(trace)}
            return [ns / operations for ns in self.spin("mixed", path, 64 * MIB, 4 * KIB, operations, environment)]

        once(False, count // 20)
        runs = {False: [], True: []}
        for turn in range(PAIRS):
            for captured in (False, True) if turn % 2 else (True, False):
                runs[captured].append(once(captured, count // 5))
        once(True, count)
        shown = json.loads(self.command("trace", "show", trace, "--json"))
        records = sum(file["read_requests"] + file["write_requests"] for file in shown["files"])
        if shown["lost"] or records != count:
            sys.exit(f"capture: {records} of {count} requests recorded, {shown['lost']} lost")
        shutil.rmtree(trace)
        for part, name in enumerate(("capture.path", "capture.process")):
            floor = statistics.median(run[part] for run in runs[False])
            # Neighbours in time share the machine's mood: what capture adds is the median of the pairs' differences.
            added = statistics.median(ours[part] - bare[part] for ours, bare in zip(runs[True], runs[False]))
            self.add(name, floor + added, "ns/op", floor)
        path.unlink()

    # -- redirection -------------------------------------------------------------------------------------------------------

    def directories(self, cluster, *manage):
        """A cluster of eight directories; returns its directory, managed with these options."""
        servers = [cluster / f"server{number}" for number in range(8)]
        for server in servers:
            server.mkdir(parents=True)
        classes = ["hdd"] * 6 + ["ssd"] * 2
        options = [word for number, kind in enumerate(classes) for word in ("--server", f"s{number}={kind}:{servers[number]}")]
        self.command("init", *options, "--state", cluster / "state", cluster=cluster / "cluster.toml")
        data = cluster / "data"
        data.mkdir()
        self.command("manage", *manage, data, cluster=cluster)
        return data

    def redirect(self):
        cluster = self.work / "directories"
        data = self.directories(cluster)
        size = 256 * MIB
        bare, managed = self.work / "bare", data / "managed"
        fill(bare, size)
        self.command("cp", bare, managed, cluster=cluster)
        with Redirection(self, cluster) as environment:
            for kind in ("read", "write"):
                for request in (4 * KIB, 64 * KIB, 512 * KIB, 4 * MIB):
                    count = min(200_000, 2048 * MIB // request)
                    times = self.pairs(lambda ours: self.spin(
                        kind, managed if ours else bare, size, request, count, environment if ours else None)[0])
                    speed = [count * request / 1e6 / (ns / 1e9) for ns in times]
                    name = f"{request // MIB}MiB" if request >= MIB else f"{request // KIB}KiB"
                    self.add(f"redirect.{kind}.{name}", speed[1], "MB/s", speed[0])
            count = 100_000
            times = self.pairs(lambda ours: self.spin("open", bare, 0, 0, count, environment if ours else None)[0])
            self.add("redirect.open.unmanaged", times[1] / count, "ns", times[0] / count)
        bare.unlink()
        shutil.rmtree(cluster)

    # -- a mount -----------------------------------------------------------------------------------------------------------

    def listing(self, directory):
        """ns of `ls -l`."""
        start = time.monotonic_ns()
        lines = subprocess.run(["ls", "-l", directory], capture_output=True, check=True).stdout.count(b"\n")
        took = time.monotonic_ns() - start
        return took if lines == LISTED + 1 else sys.exit(f"{directory}: {lines - 1} of {LISTED} files are listed")

    def scan(self, directory):
        """ns of a list with the size of each file, as programs ask for it."""
        start = time.monotonic_ns()
        with os.scandir(directory) as entries:
            sizes = [entry.stat(follow_symlinks=False).st_size for entry in entries]
        took = time.monotonic_ns() - start
        return took if sizes == [len(LISTED_TEXT)] * LISTED else sys.exit(f"{directory}: {len(sizes)} of {LISTED} files are listed")

    def mount(self):
        """MB/s and ms of listings through a mount; the floor is a plain pass-through by the same library for FUSE, over a file on the same memory."""
        if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
            print("mount.*: skipped, mounting takes root and /dev/fuse", flush=True)
            return
        cluster = self.work / "mount"
        data, bare = self.directories(cluster), cluster / "bare"
        bare.mkdir()
        size = 256 * MIB
        fill(bare / "file", size)
        self.command("cp", bare / "file", data / "file", cluster=cluster)
        lists = bare / "list", data / "list"
        for listed in lists:
            listed.mkdir()
        for number in range(LISTED):
            (lists[0] / f"file{number}").write_bytes(LISTED_TEXT)
        self.command("cp", *sorted(lists[0].iterdir()), lists[1], cluster=cluster)
        points = cluster / "bare.mount", cluster / "data.mount"
        points[0].mkdir()
        servers = [subprocess.Popen([self.stripewise.parent / "examples/passthrough", bare, points[0], str(MOUNT_THREADS)]),
                   subprocess.Popen([self.stripewise, "-C", cluster, "mount", data, "--at", points[1], "--threads", str(MOUNT_THREADS)],
                                    stdout=subprocess.DEVNULL)]
        try:
            for point, server in zip(points, servers):
                while not (point / "file").exists():
                    if server.poll() is not None:
                        sys.exit(f"{point} is not mounted: exit {server.returncode}")
                    time.sleep(0.01)
            for kind in ("read", "write"):
                for request, name in ((4 * KIB, "4KiB"), (128 * KIB, "128KiB"), (MIB, "1MiB")):
                    count = min(20_000, 1024 * MIB // request)
                    times = self.pairs(lambda ours: self.spin(kind, points[ours] / "file", size, request, count)[0])
                    speed = [count * request / 1e6 / (ns / 1e9) for ns in times]
                    self.add(f"mount.{kind}.{name}", speed[1], "MB/s", speed[0])
            times = self.pairs(lambda ours: self.listing(points[ours] / "list"))
            self.add(f"mount.list.{LISTED}", times[1] / 1e6, "ms", times[0] / 1e6)
            times = self.pairs(lambda ours: self.scan(points[ours] / "list"))
            self.add(f"mount.scan.{LISTED}", times[1] / 1e6, "ms", times[0] / 1e6)
        finally:
            for point, server in zip(points, servers):
                subprocess.run(["umount", point], stderr=subprocess.DEVNULL)
                server.wait()
        shutil.rmtree(cluster)

    # -- Python ------------------------------------------------------------------------------------------------------------

    def python(self):
        """MB/s of `stripewise.open` in a program of Python; the floor is a redirected program of C on the same file.

        Buffers begin at a page, as those of the C program do. `python.import` is of the module as cargo linked it for this machine, not of an installed wheel.
        """
        module = self.stripewise.parent / "lib_stripewise.so"
        if not module.exists():
            sys.exit(f"there is no {module}: cargo build --release --package stripewise-python")
        package = self.work / "site/stripewise"
        shutil.copytree(ROOT / "crates/python/python/stripewise", package, ignore=shutil.ignore_patterns("bin", "__pycache__"))
        (package / "_stripewise.abi3.so").symlink_to(module)
        cluster = self.work / "python"
        managed, size = self.directories(cluster) / "file", 256 * MIB
        fill(cluster / "bare", size)
        self.command("cp", cluster / "bare", managed, cluster=cluster)
        named = {"PYTHONPATH": str(package.parent), "STRIPEWISE_CLUSTER": str(cluster), "STRIPEWISE_COMMAND": str(self.stripewise)}
        start = time.monotonic()
        for _ in range(PAIRS):
            subprocess.run([sys.executable, "-c", "import stripewise"], env={**os.environ, **named}, check=True)
        imported = (time.monotonic() - start) / PAIRS
        start = time.monotonic()
        for _ in range(PAIRS):
            subprocess.run([sys.executable, "-c", ""], check=True)
        self.add("python.import", imported, "s", (time.monotonic() - start) / PAIRS)
        with Redirection(self, cluster) as environment:
            for kind in ("read", "write"):
                for request, name in ((64 * KIB, "64KiB"), (MIB, "1MiB")):
                    count = 2048 * MIB // request
                    words = [sys.executable, ROOT / "bench/io_loop.py", kind, managed, size, request, count]

                    def once(ours):
                        if not ours:
                            return self.spin(kind, managed, size, request, count, environment)[0]
                        run = subprocess.run(list(map(str, words)), env={**os.environ, **named}, capture_output=True, text=True)
                        return int(run.stdout) if run.returncode == 0 else sys.exit(f"{run.stdout}{run.stderr}")

                    times = self.pairs(once)
                    speed = [count * request / 1e6 / (ns / 1e9) for ns in times]
                    self.add(f"python.{kind}.{name}", speed[1], "MB/s", speed[0])
        shutil.rmtree(cluster)

    # -- small files -------------------------------------------------------------------------------------------------------

    def small(self):
        """ns of one file's calls, on memory; then s of those of all files, on the disk."""
        runs = self.small_runs(self.work / "small", SMALL_FILES)
        for number, loop in enumerate(SMALL_LOOPS):
            ours, bare = (statistics.median(run[number] for run in runs[kind]) / SMALL_FILES for kind in (True, False))
            self.add(f"small.{loop}", ours, "ns", bare)
        with tempfile.TemporaryDirectory(prefix="stripewise-bench-", dir=ROOT / "target") as disk:
            cluster = pathlib.Path(disk) / "cluster"
            runs = self.small_runs(cluster, SMALL_FILES_ON_DISK, ROUNDS_ON_DISK)
            for number, loop in enumerate(SMALL_LOOPS):
                ours, bare = (statistics.median(run[number] for run in runs[kind]) / 1e9 for kind in (True, False))
                self.add(f"small.disk.{loop}", ours, "s", bare)
            for prefix, options in SCRIPTS_IN.items():
                self.small_scripts(pathlib.Path(disk) / "scripts", f"small.disk{prefix}", options, ROUNDS_ON_DISK)
            self.small_check(pathlib.Path(disk) / "checked")
        for prefix, options in SCRIPTS_IN.items():
            self.small_scripts(self.work / "scripts", f"small{prefix}", options)
        self.small_fragments(self.work / "fragments")

    def small_check(self, cluster):
        """s of `check`, and bytes of state a file, of many files on the disk."""
        data, state = self.directories(cluster), cluster / "state"

        def held():
            return sum(path.stat().st_blocks * 512 for path in state.rglob("*") if path.is_file())

        self.command("check", cluster=cluster)
        before = held()
        with Redirection(self, cluster) as environment:
            words = [self.small_files, data, CHECKED_FILES, "keep"]
            subprocess.run(list(map(str, words)), env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
        times = []
        for _ in range(ROUNDS_ON_DISK):
            begin = time.perf_counter()
            self.command("check", cluster=cluster)
            times.append(time.perf_counter() - begin)
        self.add("small.disk.check", statistics.median(times), "s", None)
        self.add("small.disk.state", (held() - before) / CHECKED_FILES, "B", None)
        shutil.rmtree(cluster)

    def small_fragments(self, cluster):
        """The loops of a cluster whose files may have fragments, though none has; the floor is that of one where they may not."""
        places = {True: cluster / "with", False: cluster / "without"}
        data = {kind: self.directories(place) for kind, place in places.items()}
        config = places[True] / "cluster.toml"
        config.write_text(f"fragments = true\n{config.read_text()}")
        runs = {False: [], True: []}
        with Redirection(self, places[True]) as possible, Redirection(self, places[False]) as impossible:
            for turn in range(PAIRS):
                for kind in (False, True) if turn % 2 else (True, False):
                    runs[kind].append(self.small_once(data[kind], SMALL_FILES, possible if kind else impossible))
        for number, loop in enumerate(SMALL_LOOPS):
            ours, bare = (statistics.median(run[number] for run in runs[kind]) / SMALL_FILES for kind in (True, False))
            self.add(f"small.fragments.{loop}", ours, "ns", bare)
        shutil.rmtree(cluster)

    def small_scripts(self, cluster, prefix, options, rounds=PAIRS):
        """s of the scripts of git and SQLite that the tests run, redirected and bare in turn."""
        data, bare = self.directories(cluster, *options), cluster / "bare"
        with Redirection(self, cluster) as environment:
            for name in SMALL_SCRIPTS:
                times = {False: [], True: []}
                for turn in range(rounds):
                    for ours in (False, True) if turn % 2 else (True, False):
                        directory = (data if ours else bare) / f"{name}-{turn}"
                        directory.mkdir(parents=True)
                        script = ROOT / f"tests/programs/shell/{name}.sh"
                        begin = time.perf_counter()
                        run = subprocess.run(["sh", script], cwd=directory, capture_output=True, text=True,
                                             env={**os.environ, **(environment if ours else {})})
                        times[ours].append(time.perf_counter() - begin)
                        if run.returncode != 0:
                            sys.exit(f"{script}: exit {run.returncode}\n{run.stderr}")
                self.add(f"{prefix}.{name}", statistics.median(times[True]), "s", statistics.median(times[False]))
        shutil.rmtree(cluster)

    def small_runs(self, cluster, files, rounds=PAIRS):
        """The four loops' times in ns, by whether they were redirected; one and the other in turn."""
        data, bare = self.directories(cluster), cluster / "bare"
        bare.mkdir()
        runs = {False: [], True: []}
        with Redirection(self, cluster) as environment:
            for turn in range(rounds):
                for ours in (False, True) if turn % 2 else (True, False):
                    runs[ours].append(self.small_once(data if ours else bare, files, environment if ours else {}))
        shutil.rmtree(cluster)
        return runs

    def small_once(self, directory, files, environment):
        """The four loops' times in ns."""
        words = [self.small_files, directory, files]
        run = subprocess.run(list(map(str, words)), env={**os.environ, **environment}, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: exit {run.returncode}\n{run.stderr}")
        return [int(ns) for ns in run.stdout.split()]

    def pairs(self, measure):
        """Medians of (bare, ours), measured in turn."""
        times = {False: [], True: []}
        for turn in range(PAIRS):
            for ours in (False, True) if turn % 2 else (True, False):
                times[ours].append(measure(ours))
        return statistics.median(times[False]), statistics.median(times[True])

    def emulated(self):
        cluster = self.work / "emulated"
        cluster.mkdir()
        self.command("init", "--emulated", "12xhdd-7200,4xsata-ssd-2012", "--link", "gigabit", "--emulated-dir", cluster / "servers",
                     cluster=cluster / "cluster.toml")
        devices = json.loads(self.command("devices", "--json"))
        data = cluster / "data"
        data.mkdir()
        self.command("manage", data, cluster=cluster)
        source, managed = self.work / "source", data / "managed"
        fill(source, 256 * MIB)
        self.command("cp", source, managed, cluster=cluster)
        request, count = 4 * MIB, 64
        with Redirection(self, cluster) as environment:
            times = [self.spin("read", managed, 256 * MIB, request, count, environment)[0] / 1e9 for _ in range(3)]
        # The first request finds the disks elsewhere; the others continue their streams.
        floor = slowest_sub_request(devices, request / 16, "random_s")
        floor += (count - 1) * slowest_sub_request(devices, request / 16, "sequential_s")
        self.add("redirect.emulated", statistics.median(times), "s", floor)
        source.unlink()
        shutil.rmtree(cluster)

    # -- planning and counting ------------------------------------------------------------------------------------------------

    def plan(self):
        """`stripewise plan --policy opt` of reads of 64 KiB by 32 processes, regions by Zipf's law: the whole command, reading of the trace included."""
        place = self.work / "plan"
        place.mkdir()
        cluster = place / "cluster.toml"
        self.command("init", "--emulated", "12xhdd-7200,4xsata-ssd-2012:1GiB", "--link", "gigabit", "--emulated-dir", place / "servers",
                     cluster=cluster)
        self.command("calibrate", cluster=cluster)
        for name, requests, repetitions in PLANNED:
            trace = place / f"{name}.csv"
            zipf_trace(trace, requests)
            times = []
            for _ in range(repetitions):
                start = time.monotonic()
                self.command("plan", trace, cluster=cluster)
                times.append(time.monotonic() - start)
            self.add(f"plan.opt.trace.{name}", statistics.median(times), "s")
            trace.unlink()

    def advise(self):
        """A log of a million DXT segments: time of the command, and memory of the largest of it and its children."""
        python = ROOT / ".venv/bin/python"
        if not (ROOT / ".venv/darshan-requirements.txt").exists():
            print("advise: no PyDarshan in .venv; setup/darshan installs it", file=sys.stderr)
            return
        sys.path.insert(0, str(ROOT / "tests/darshan"))
        import log_writer
        import sites

        log, site, source = self.work / "segments.darshan", self.work / "site.toml", random.Random(5)
        site.write_text(sites.lustre(("hdd", "OST0000..OST0007", "1GB/s", 8.0), ("ssd", "OST0008..OST000b", "5GB/s", 0.1)))
        each = SEGMENTS // SEGMENT_RANKS

        def reads():
            return [(source.randrange(1 << 18) << 16, 65536, 1e-4 * number, 1e-4 * number + 9e-5) for number in range(each)]

        records = b"".join(log_writer.dxt(7, rank=rank, reads=reads()) for rank in range(SEGMENT_RANKS))
        run_s = each * 1e-4 + 1
        log_writer.write(log, {7: "/lustre/field"}, {"DXT_POSIX": records}, processes=SEGMENT_RANKS, run_s=int(run_s))
        environment = dict(os.environ, PATH=f"{python.parent}:{os.environ['PATH']}")
        command = [str(self.stripewise), "advise", str(log), "--site", str(site), "--json"]
        program = "import resource, subprocess, sys\nrun = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        program += "print(run.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        times, most_kib = [], 0
        for _ in range(PAIRS):
            start = time.monotonic()
            run = subprocess.run([sys.executable, "-c", program, *command], env=environment, capture_output=True, text=True)
            times.append(time.monotonic() - start)
            status, kib = run.stdout.split()
            if status not in ("0", "1"):
                sys.exit(f"{' '.join(command)}: exit {status}\n{run.stderr}")
            most_kib = max(most_kib, int(kib))
        self.add("advise.million-segments", statistics.median(times), "s")
        self.add("advise.million-segments.memory", most_kib * KIB / 1e6, "MB")
        log.unlink()

    def rust(self):
        # All packages each time: cargo would build their dependencies again for another selection.
        packages = [word for package, _ in RUST_BENCHES for word in ("-p", package)]
        for package, name in RUST_BENCHES:
            run = subprocess.run(["cargo", "bench", "--quiet", *packages, "--bench", name], cwd=ROOT, capture_output=True, text=True)
            lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"name"')]
            if run.returncode != 0 or not lines:
                sys.exit(f"cargo bench -p {package} --bench {name}: exit {run.returncode}\n{run.stdout}{run.stderr}")
            for line in lines:
                self.add(**line)


def zipf_trace(path, requests):
    """A trace as `trace export` writes it: a file of 24 GiB, its regions of 64 MiB in an order of their own."""
    draws, processes, request, region, regions = random.Random(1), 32, 64 * KIB, 64 * MIB, 384
    weights = [(1 + rank) ** -0.8 for rank in range(regions)]
    order = draws.sample(range(regions), regions)
    drawn = draws.choices(order, weights, k=requests)
    columns = "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns"
    with open(path, "w") as file:
        file.write(columns + "\n")
        for number, place in enumerate(drawn):
            offset = place * region + draws.randrange(region // request) * request
            start = 1_000_000_000_000 + number * 100_000
            file.write(f"node,{100 + number % processes},,,posix,read,pread,,/data/file,,{offset},{request},,{start},{start + 3_000_000}\n")


def fill(path, file_bytes):
    """Data everywhere: holes are neither copied nor placed, so reading them would take no server's time."""
    with open(path, "wb") as file:
        for _ in range(file_bytes // MIB):
            file.write(os.urandom(MIB))


class Redirection:
    """The environment of redirected programs, while a `stripewise run` in the background holds the broker: the program's own start
    and end are no part of what is measured."""

    def __init__(self, bench, cluster):
        self.bench, self.cluster = bench, cluster

    def __enter__(self):
        words = [self.bench.stripewise, "-C", self.cluster, "run", "--", "sh", "-c", "env; exec cat"]
        self.holder = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        environment = {}
        while not {"LD_PRELOAD", "STRIPEWISE_STATE"} <= environment.keys():
            line = self.holder.stdout.readline()
            if not line:
                sys.exit("stripewise run ended before it printed its environment")
            name, _, value = line.rstrip("\n").partition("=")
            if name == "LD_PRELOAD" or name.startswith("STRIPEWISE_"):
                environment[name] = value
        return environment

    def __exit__(self, *_):
        self.holder.stdin.close()
        self.holder.wait()


def slowest_sub_request(devices, piece_bytes, startup):
    """Seconds of one read of `piece_bytes` on the slower device, then over the link."""
    by_name = {device["name"]: device for device in devices["devices"] + devices["links"]}
    link = by_name["gigabit"]
    over_link = link["e_s"] + piece_bytes * link["t_s_per_byte"]
    on_device = [by_name[name]["read"] for name in ("hdd-7200", "sata-ssd-2012")]
    return max(line[startup] + piece_bytes * line["s_per_byte"] for line in on_device) + over_link


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/release/stripewise")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench-out")
    parser.add_argument("--only", default="", help="capture, redirect, mount, python, small, emulated, plan, advise or rust")
    parser.add_argument("--operations", type=int, default=10_000_000, help="operations of the capture benchmark")
    arguments = parser.parse_args()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="stripewise-bench-", dir=memory) as work:
        bench = Bench(arguments.stripewise.resolve(), pathlib.Path(work))
        parts = {"capture": lambda: bench.capture(arguments.operations), "redirect": bench.redirect, "mount": bench.mount,
                 "python": bench.python, "small": bench.small, "emulated": bench.emulated, "plan": bench.plan, "advise": bench.advise, "rust": bench.rust}
        for name, part in parts.items():
            if arguments.only in ("", name):
                part()
    arguments.out.mkdir(exist_ok=True)
    (arguments.out / "bench.json").write_text(json.dumps(bench.results, indent=2) + "\n")
    print(f"wrote {arguments.out / 'bench.json'}")


if __name__ == "__main__":
    main()
