#!/usr/bin/env python3
"""The proof on devices that seek (`make bench-devices`): prints a table and a verdict for each goal, writes bench-out/devices.json.

Six slow disks (6.5 ms seeks, 120 MB/s) and two fast ones (0.25 ms, 250 MB/s): ext4 on loop devices with direct I/O over files of a FUSE
server that serves one request at a time and sleeps its time (slow_device.c). The raw devices are measured first. Then `stripewise
calibrate`, and for every case: the program is traced on the default layout, planned by each policy, and run on each plan's layout in
turn, several rounds of that.

In memory: at most 6 GiB. Time: 25 minutes, --quick 8. The machine should be quiet: 16 processes and 8 disks share its processors.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import goals
from bare import BareStream
from cluster import FILE_BYTES, Cluster
from disks import KIB, MEMORY, MIB, PREFIX, Failed, Skipped, check_machine, compile_program, enter_namespace, only_run, raw_request_s, slow_disks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
POLICIES = ["def", "h2dp", "opt"]
MODES = ["read", "write-direct", "write-buffered", "write-sync"]
# Requests of each of the processes: 2 to 5 s.
REQUESTS = {64 * KIB: 100, 256 * KIB: 80, 1 * MIB: 40, 4 * MIB: 16}
PROCESSES = 16
SEED = 1
# What the raw devices may differ from their models.
MAX_RAW_ERROR = 0.1
# As in load.c.
ZIPF_REGION_BYTES = 8 * MIB
# The default: a disk seeks where a region begins.
STREAM_REGION_BYTES = 64 * MIB
STREAM_REQUEST_BYTES = 4 * MIB
STREAMS = {"read": "read-cached", "read-direct": "read", "write-direct": "write-direct", "write-sync": "write-sync"}


class Bench:
    def __init__(self, disks, base, arguments):
        self.disks, self.base, self.quick = disks, base, arguments.quick
        self.rounds = arguments.rounds or (2 if self.quick else 5)
        self.only, self.busy_host = arguments.only, arguments.busy_host
        self.load = compile_program("load", base, ["-lm", "-lpthread"])
        self.bare = compile_program("bare", base, [])
        self.stripewise = arguments.stripewise.resolve()
        self.results, self.sums = [], {}

    def add(self, case, **figures):
        self.results.append({"case": case, **figures})

    # -- the raw devices -----------------------------------------------------------------------------------------------------

    def check_devices(self):
        """The bare loop devices against their models: how long one direct request takes."""
        print(f"{'device':<7} {'request':>8} {'access':<12} {'ms':>8} {'model':>8} {'error':>7}")
        errors = []
        for disk in (self.disks[0], self.disks[-1]) if self.quick else self.disks:
            for request_bytes in (64 * KIB, 1 * MIB):
                for writing in (False, True):
                    for sequential in (False, True):
                        errors.append(self.check_device(disk, request_bytes, sequential, writing))
        worst = max(errors)
        print(f"raw devices: at most {worst:.1%} off, median {statistics.median(errors):.1%}\n", flush=True)
        if statistics.median(errors) > MAX_RAW_ERROR and not self.busy_host:
            raise Failed(f"the devices do not take the time of their models (median error {statistics.median(errors):.1%}): the machine "
                         "is in use; wait until it is quiet, or add --busy-host for figures that are no proof")

    @staticmethod
    def check_device(disk, request_bytes, sequential, writing):
        count = 60 if request_bytes < MIB else 20
        seconds = raw_request_s(disk, request_bytes, count, sequential, writing)
        model = disk.model.service_s(request_bytes, sequential)
        access = f"{'sequential' if sequential else 'random'} {'write' if writing else 'read'}"
        print(f"{disk.name:<7} {request_bytes // KIB:>4} KiB {access:<17} {seconds * 1e3:>8.3f} {model * 1e3:>8.3f} "
              f"{seconds / model - 1:>+7.1%}", flush=True)
        return abs(seconds / model - 1)

    def measure_streams(self):
        """MB/s of all bare disks together, each streamed alone, before there are file systems."""
        if not self.cases_of_streams():
            return
        for writing in (False, True):
            seconds = [raw_request_s(disk, STREAM_REQUEST_BYTES, 16, True, writing) for disk in self.disks]
            self.sums[writing] = sum(STREAM_REQUEST_BYTES / each for each in seconds) / 1e6

    def cases_of_streams(self):
        return {name: mode for name, mode in STREAMS.items() if self.only in f"sequential-{name}"}

    def prepare(self):
        for disk in self.disks:
            disk.make_file_system()
        self.cluster = Cluster(self.stripewise, self.load, self.disks, self.base / "zipf", ZIPF_REGION_BYTES)
        calibrated = self.cluster.calibrate(self.quick)
        for server in calibrated["profile"]["servers"]:
            lines = ", ".join(
                f"{name.replace('_', ' ')} {server[name]['alpha_s'] * 1e3:.2f} ms {1e-6 / server[name]['beta_s_per_byte']:.0f} MB/s"
                for name in ("read_random", "read_sequential", "write_random", "write_sequential"))
            print(f"{server['name']:<7} {lines}")
        for caveat in calibrated["profile"].get("caveats", []):
            print(f"caveat: {json.dumps(caveat)}")
        print(flush=True)

    def print_lateness(self):
        """Whether the machine kept up with its disks."""
        counts = [disk.counts() for disk in self.disks]
        late, busy = (sum(disk[name] for disk in counts) for name in ("late_s", "busy_s"))
        print(f"\nthe disks served {sum(disk['requests'] for disk in counts):,} requests with {sum(disk['seeks'] for disk in counts):,} "
              f"seeks; they woke up late by {late / busy:.1%} of their service times", flush=True)

    # -- Zipf ------------------------------------------------------------------------------------------------------------------

    def zipf(self):
        # Their names differ in a number only, so a plan for one of them fits all.
        paths = {policy: self.cluster.data / f"zipf.{number}" for number, policy in enumerate(POLICIES)}
        sizes = [64 * KIB, 1 * MIB] if self.quick else list(REQUESTS)
        cases = [(mode, size) for mode in MODES for size in sizes if self.only in f"{mode}-{size_text(size)}"]
        if not cases:
            return
        for path in paths.values():
            self.cluster.create(path)
        print(f"{'case':<24} {'policy':<6} {'MB/s':>8} {'spread':>7} {'predicted':>10} {'error':>7}")
        for mode, size in cases:
            self.zipf_case(f"{mode}-{size_text(size)}", mode, size, paths)

    def zipf_case(self, case, mode, size, paths):
        count = REQUESTS[size]

        def words(path):
            return "zipf", mode, path, FILE_BYTES, size, count, PROCESSES, SEED

        trace = self.base / "zipf.trace"
        self.cluster.trace(trace, *words(paths["def"]))
        promised = {}
        for policy, path in paths.items():
            plan = self.base / f"{policy}.plan"
            promised[policy] = self.cluster.plan(trace, policy, paths["def"], plan)
            self.cluster.restripe(path, plan)
        rates = {policy: [] for policy in paths}
        for turn in range(self.rounds):
            for policy in POLICIES[turn % 3:] + POLICIES[:turn % 3]:
                rates[policy].append(count * PROCESSES * size / 1e6 / self.cluster.measure(*words(paths[policy])))
        for policy in POLICIES:
            rate, spread = statistics.median(rates[policy]), spread_of(rates[policy])
            self.add(case, policy=policy, mb_s=rate, predicted_mb_s=promised[policy], spread=spread, rounds_mb_s=rates[policy])
            print(f"{case:<24} {policy:<6} {rate:>8.1f} {spread:>7.1%} {promised[policy]:>10.1f} {promised[policy] / rate - 1:>+7.1%}",
                  flush=True)

    # -- one process, from the begin of a file to its end ---------------------------------------------------------------------

    def sequential(self):
        streams = self.cases_of_streams()
        if not streams:
            return
        cluster = Cluster(self.stripewise, self.load, self.disks, self.base / "streams", STREAM_REGION_BYTES)
        cluster.take_profile(self.cluster)
        path = cluster.data / "stream.0"
        cluster.create(path)
        print(f"\n{'case':<24} {'MB/s':>8} {'spread':>7} {'predicted':>10} {'devices':>8} {'share':>6} {'possible':>9} {'bare':>8} {'of bare':>8} "
              f"{'paced':>8} {'seeks':>6} {'bare paced':>11} {'seeks':>6}")
        for name, mode in streams.items():
            self.stream(cluster, path, name, mode)

    def stream(self, cluster, path, name, mode):
        words = "sequential", mode, path, FILE_BYTES, STREAM_REQUEST_BYTES
        trace, plan = self.base / "stream.trace", self.base / "stream.plan"
        cluster.trace(trace, *words)
        # With space for what each disk's rate is worth.
        promised = cluster.plan(trace, "opt", path, plan, ssd_bytes=FILE_BYTES // 2)
        cluster.restripe(path, plan)
        bare = BareStream(self.bare, self.disks, cluster.bytes_by_server(path), STREAM_REQUEST_BYTES)
        requests = FILE_BYTES // STREAM_REQUEST_BYTES
        rates, bare_rates = [], []
        for _ in range(self.rounds):
            rates.append(FILE_BYTES / 1e6 / cluster.measure(*words))
            bare_rates.append(FILE_BYTES / 1e6 / bare.measure(mode, requests))
        paced, seeks = self.work_of(lambda: cluster.measure(*words), requests)
        bare_paced, bare_seeks = self.work_of(lambda: bare.measure(mode, requests), requests)
        bare.remove()
        rate, total, bare_rate = statistics.median(rates), self.sums[name.startswith("write")], statistics.median(bare_rates)
        self.add(f"sequential-{name}", policy="opt", mb_s=rate, predicted_mb_s=promised, sum_of_devices_mb_s=total,
                 possible_mb_s=bare.possible_mb_s, bare_mb_s=bare_rate, paced_mb_s=paced, seeks_per_request=seeks,
                 bare_paced_mb_s=bare_paced, bare_seeks_per_request=bare_seeks, spread=spread_of(rates), rounds_mb_s=rates)
        print(f"sequential-{name:<13} {rate:>8.1f} {spread_of(rates):>7.1%} {promised:>10.1f} {total:>8.1f} {rate / total:>6.2f} "
              f"{bare.possible_mb_s:>9.1f} {bare_rate:>8.1f} {rate / bare_rate:>8.2f} {paced:>8.1f} {seeks:>6.2f} {bare_paced:>11.1f} "
              f"{bare_seeks:>6.2f}", flush=True)

    def work_of(self, run, requests):
        """What the disks did in one more run that moves the file: MB/s if the busiest disk alone had set the pace, and seeks for each request. Neither
        depends on how fast the machine is."""
        before = [disk.counts() for disk in self.disks]
        run()
        after = [disk.counts() for disk in self.disks]
        busy_s = max(now["busy_s"] - then["busy_s"] for then, now in zip(before, after))
        seeks = sum(now["seeks"] - then["seeks"] for then, now in zip(before, after))
        return FILE_BYTES / 1e6 / busy_s, seeks / requests

    # -- moves while a program runs --------------------------------------------------------------------------------------------

    def following(self):
        """A program whose hot regions are others than those that the file is placed for; left alone, then followed."""
        if self.only not in "moves-auto":
            return
        path, size, seconds = self.cluster.data / "moving.0", 256 * KIB, 30 if self.quick else 60
        self.cluster.create(path)
        trace, plan = self.base / "moving.trace", self.base / "moving.plan"

        def words(kind, amount, seed):
            return [self.load, kind, "read", path, FILE_BYTES, size, amount, PROCESSES, seed]

        self.cluster.trace(trace, *words("zipf", 100, SEED)[1:])
        self.cluster.plan(trace, "opt", path, plan)
        rates = {}
        for name, options in (("still", []), ("followed", ["--migrate", "--online", "--window", "5s", "--migrate-bandwidth", "auto",
                                                            "--ssd-room", "64MiB"])):
            self.cluster.restripe(path, plan)
            self.cluster.forget_cached()
            rates[name] = self.watch(words("zipf-for", seconds, SEED + 1), options)
        still = statistics.median(rate for rate, _ in rates["still"])
        moving = [rate for rate, moves in rates["followed"] if moves]
        after = [rate for rate, _ in rates["followed"][-len(rates["followed"]) // 4:]]
        foreground = statistics.median(moving) / still if moving else None
        gain = statistics.median(after) / still
        self.add("moves-auto", still_mb_s=still, moving_mb_s=statistics.median(moving) if moving else None,
                 followed_mb_s=statistics.median(after), foreground=foreground, gain=gain, moving_s=len(moving))
        print(f"\nmoves-auto: left alone {still:.1f} MB/s; while moves ran ({len(moving)} s) "
              f"{foreground if foreground is None else round(foreground, 2)} of that; followed {gain:.2f} times", flush=True)

    def watch(self, words, options):
        """(MB/s, whether moves were under way) of each second."""
        command = list(map(str, self.cluster.words("run", *options, "--", *words)))
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        seconds, at, moved = [], 0.0, 0
        try:
            for line in program.stdout:
                fields = line.split()
                if len(fields) != 2:
                    continue
                moves = json.loads(self.cluster.command("migrate", "status", "--json")) if options else {}
                then, bytes_so_far = float(fields[0]), int(fields[1])
                seconds.append(((bytes_so_far - moved) / 1e6 / (then - at), under_way(moves)))
                at, moved = then, bytes_so_far
        finally:
            if program.wait() != 0:
                raise Failed(f"{' '.join(command)}: exit {program.returncode}")
        return seconds


def under_way(status):
    return bool(status) and status["totals"]["queued"] + status["totals"]["active"] > 0


def spread_of(rates):
    """Of the middle half, relative to the median."""
    if len(rates) < 3:
        return (max(rates) - min(rates)) / statistics.median(rates)
    quartiles = statistics.quantiles(rates, n=4, method="inclusive")
    return (quartiles[2] - quartiles[0]) / statistics.median(rates)


def size_text(size_bytes):
    return f"{size_bytes // MIB}MiB" if size_bytes >= MIB else f"{size_bytes // KIB}KiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/release/stripewise")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench-out")
    parser.add_argument("--quick", action="store_true", help="two sizes, two rounds, a short calibration")
    parser.add_argument("--rounds", type=int, help="measurements of each policy, in turn (5, --quick 2)")
    parser.add_argument("--only", default="", help="cases whose name contains this, such as read-1MiB or sequential")
    parser.add_argument("--busy-host", action="store_true", help="go on where the raw devices are late")
    parser.add_argument("--slowdown", type=float, default=1.0, metavar="FACTOR",
                        help="multiply the devices' times, so that a busy machine keeps up; the figures are of slower devices then")
    parser.add_argument("--command", help="instead of the cases: a shell command, run on the calibrated cluster")
    arguments = parser.parse_args()
    try:
        if not arguments.stripewise.exists():
            raise Failed(f"there is no {arguments.stripewise}: `make build` builds it, or name another with --stripewise")
        check_machine()
        enter_namespace()
        return bench(arguments)
    except Skipped as missing:
        print(f"SKIPPED: bench-devices: {missing}")
        return 0
    except Failed as failure:
        print(f"bench-devices: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench-devices: interrupted; nothing was written", file=sys.stderr)
        return 130


def bench(arguments):
    # As Ctrl-C: everything is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started_s = time.monotonic()
    with only_run(), tempfile.TemporaryDirectory(prefix=PREFIX, dir=MEMORY) as base, \
            slow_disks(pathlib.Path(base), arguments.slowdown) as disks:
        run = Bench(disks, pathlib.Path(base), arguments)
        run.check_devices()
        run.measure_streams()
        run.prepare()
        if arguments.command:
            environment = {"STRIPEWISE_CLUSTER": str(run.cluster.base / "cluster.toml"), "LOAD": str(run.load), "STRIPEWISE": str(run.stripewise)}
            return subprocess.run(["sh", "-c", arguments.command], cwd=base, env={**os.environ, **environment}).returncode
        for part in (run.zipf, run.sequential, run.following):
            part()
        run.print_lateness()
    arguments.out.mkdir(exist_ok=True)
    (arguments.out / "devices.json").write_text(json.dumps(run.results, indent=2) + "\n")
    goals.print_verdicts(run.results)
    print(f"wrote {arguments.out / 'devices.json'} after {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
