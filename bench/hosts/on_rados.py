"""How fast a program reads and writes a managed file in four pools of Ceph, alongside plain librados.

The Ceph is a real one on loopback (tests/engines/ceph.py). Its OSDs share this machine's processors with the program. The floor
is librados_loop.c, which makes the same requests on objects of the same sizes by librados, with the same operations under way. It leaves
the bytes of each object one behind the other; a note says what a program reaches that puts them where they are in the file, which
takes it a copy as it takes Stripewise one. All run in turn. Each figure is a median over rounds:

    hosts.rados.read|write.4KiB   microseconds of a request; what Stripewise adds is the difference
    hosts.rados.read|write.SIZE   MB/s

A request of 4 MiB of the floor ends with the slowest of its four sub-requests. The inverse of that ratio is therefore what a
request of Stripewise's takes over its slowest sub-request.
"""

import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from run import KIB, MIB, PAIRS, Bench, Redirection, fill  # noqa: E402

FILE, REGION, STRIPE = 128 * MIB, 64 * MIB, 64 * KIB
# Bytes of a request, and how many are timed.
SIZES = (("4KiB", 4 * KIB, 4000), ("64KiB", 64 * KIB, 2000), ("256KiB", 256 * KIB, 1000), ("1MiB", MIB, 400), ("4MiB", 4 * MIB, 120))
MAX_ADDED_US, MIN_OF_FLOOR, GOAL_FROM, MAX_OF_SLOWEST = 60, 0.85, 256 * KIB, 1.3


def output_of(command):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stderr}")
    return result.stdout


class OnCeph:
    """The two programs on one Ceph."""

    def __init__(self, report, bench, engine, work, share):
        self.report, self.bench, self.engine, self.cluster, self.share = report, bench, engine, work / "cluster", share
        self.loop = work / "librados_loop"
        output_of(["cc", "-O2", "-o", self.loop, ROOT / "bench/hosts/librados_loop.c", "-l:librados.so.2"])
        self.cluster.mkdir()
        servers = [f"s{number}=hdd:rados://{pool}?conf={engine.conf}" for number, pool in enumerate(engine.pools)]
        bench.command("init", "--region", "64MiB", *(word for server in servers for word in ("--server", server)), cwd=self.cluster)
        data = self.cluster / "data"
        data.mkdir()
        bench.command("manage", data, cwd=self.cluster)
        source, self.file = work / "source", data / "file"
        fill(source, FILE)
        bench.command("cp", source, self.file, cwd=self.cluster)
        source.unlink()
        bench.command("restripe", self.file, "--layout", "s0..s3 64KiB", cwd=self.cluster)
        self.floor("write", 4 * MIB, FILE // (4 * MIB))

    def floor(self, kind, request, count, *options):
        words = [self.loop, kind, self.engine.conf, FILE, REGION, STRIPE, request, count, *options, *self.engine.pools]
        return int(output_of(words))

    def measure(self):
        with Redirection(self.bench, self.cluster) as environment:
            for kind in ("read", "write"):
                for name, request, count in SIZES:
                    self.measure_one(f"hosts.rados.{kind}.{name}", kind, request, count // self.share, environment)

    def measure_one(self, name, kind, request, count, environment):
        measures = {
            "ours_ns": lambda: self.bench.spin(kind, self.file, FILE, request, count, environment)[0],
            "floor_ns": lambda: self.floor(kind, request, count),
            "in_place_ns": lambda: self.floor(kind, request, count, "-s"),
        }
        details = {what: [] for what in measures}
        for turn in range(PAIRS):
            for what in list(measures)[:: 1 if turn % 2 else -1]:
                details[what].append(measures[what]() / count)
        ours, bare, in_place = details.values()
        # Neighbours in time share the machine's mood.
        added = statistics.median(one - other for one, other in zip(ours, bare)) / 1000
        ratio = statistics.median(other / one for one, other in zip(ours, bare))
        beside_in_place = statistics.median(other / one for one, other in zip(ours, in_place))
        if request == 4 * KIB:
            floor = statistics.median(bare) / 1000
            self.report.add(name, floor + added, "us", floor, ("at most", MAX_ADDED_US), f"adds {added:.0f} us", details)
            return
        speed = request * 1000 / statistics.median(bare)
        goal = ("at least", MIN_OF_FLOOR) if request >= GOAL_FROM else None
        note = f"adds {added:.0f} us; {beside_in_place:.2f} of librados with the bytes put in place"
        self.report.add(name, ratio * speed, "MB/s", speed, goal, note, details)
        if request == 4 * MIB:
            self.report.add(f"hosts.rados.{kind}.over_slowest", 1 / ratio, "x", goal=("at most", MAX_OF_SLOWEST), note="a request over four OSDs")


def run(report, engine, stripewise, work, share):
    """`share`: one of so many requests is made."""
    OnCeph(report, Bench(stripewise, work), engine, work, share).measure()
