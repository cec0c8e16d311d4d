#!/usr/bin/env python3
"""The main job on four hosts and a real Ceph (`make demo-hosts`): trace an MPI program, calibrate, plan, place, run redirected, report.

    demo/hosts.py --stripewise target/demo/stripewise [--out DIR] [--request SIZE,...] [--rounds N] [--seconds S]

Real: the Ceph (one monitor, five OSDs in memory), the hosts' kernels' namespaces and network (tests/hosts/bed.py), MPICH, the program (zipf_io.c), every
message and every byte; the program compares all that it reads with what was written. Not real: the speed of the servers. Three are made slow
and one less so by the agents, which make each request take a time (`throttle` in a server's URL, docs/ceph.md); all hosts of this machine share one
queue for each server. Limits of cgroups would be the kernel's own, but those let requests pass in bursts of 100 ms, which is no device's way.

The program is H2DP's modified IOR: requests to one shared file, its regions by Zipf's law. One copy of the file for each policy lies as its plan
says, and the runs on them alternate. Leaves report.html and results.json in DIR. Root, Ceph, MPICH and FUSE
are needed: setup/install and setup/install --engines install them; where they cannot be had this says so and ends with status 3.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
import typing

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/hosts"), str(ROOT / "bench/hosts")]
import bed as beds  # noqa: E402
from cluster import Cluster  # noqa: E402

MISSING = 3
HOSTS, KIB, MIB = 4, 1 << 10, 1 << 20
POLICIES = ("def", "h2dp", "opt")



class Slowness(typing.NamedTuple):
    """What each request takes at least."""

    startup_ms: float
    mb_per_s: float

    def seconds(self, count):
        return self.startup_ms / 1e3 + count / 1e6 / self.mb_per_s

    def __str__(self):
        return f"{self.startup_ms:g}ms+{self.mb_per_s:g}MB/s"


SLOW, FAST = Slowness(12, 60), Slowness(1, 200)
SERVERS = (("hdd0", "hdd", SLOW), ("hdd1", "hdd", SLOW), ("hdd2", "hdd", SLOW), ("ssd0", "ssd", FAST))
WHAT_IS_REAL = f"""Real: Ceph, hosts (namespaces of this machine), network, MPI, program and bytes; all that was read was compared with what was written.
Throttled: three servers to {SLOW} a request and one to {FAST}, by the hosts' agents. No figure is that of a device."""
# Of the file, as H2DP section 5.1.
SSD_SHARE = 6
OSD_BYTES = 2 << 30
JOB_SECONDS = 300
UNITS = {"KiB": KIB, "MiB": MIB, "GiB": 1 << 30}


def size(text):
    match = re.fullmatch(r"(\d+)(KiB|MiB|GiB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: write a size such as 256KiB")
    return int(match[1]) * UNITS[match[2]]


def text_of(count):
    return f"{count // MIB}MiB" if count % MIB == 0 else f"{count // KIB}KiB"


class Demo:
    def __init__(self, options, bed, ceph):
        self.options, self.bed, self.begun, self.load = options, bed, time.monotonic(), os.getloadavg()[0]
        self.common = pathlib.Path(bed.common)
        self.program = self.common / "zipf_io"
        run("mpicc.mpich", "-std=gnu11", "-O2", "-o", self.program, ROOT / "demo/zipf_io.c", "-lm")
        servers = [
            f"{name}={kind}:rados://{pool}?conf={ceph['conf']}&throttle={slowness}&queue={self.common / name}.queue"
            for (name, kind, slowness), pool in zip(SERVERS, ceph["pools"])
        ]
        self.say(f"hosts {', '.join(bed.names)}, Ceph with {len(ceph['pools'])} OSDs; servers {', '.join(f'{name} ({slow})' for name, _, slow in SERVERS)}")
        engine = ("--rados", ceph["pools"][len(SERVERS)], "--conf", ceph["conf"])
        self.cluster = Cluster(bed, options.stripewise, engine, servers, text_of(options.region))

    def say(self, what):
        print(f"[{time.monotonic() - self.begun:3.0f} s] {what}", flush=True)

    def stripewise(self, *words, allowed=(0, 1)):
        self.say("$ stripewise " + " ".join(str(word).replace(f"{self.common}/", "").replace(f"{self.bed.shared}/", "") for word in words))
        return self.cluster.stripewise(0, *words, allowed=allowed, timeout=JOB_SECONDS)

    def job(self, path, *arguments, ranks=None, redirected=False, trace=None):
        """Runs the program on all hosts, redirected, traced, or as it is; returns what it says of its passes. MPICH may hang in its last call on
        several hosts (bed.py): what counts is said by then."""
        launcher, settings = self.bed.mpi("mpich", ranks or self.options.ranks)
        words = [self.program, path, "--size", self.options.size, "--region", self.options.region, "--comm", "self", *arguments]
        words = [*launcher, *((self.cluster.command, "run", "--") if redirected else ()), *words]
        words = [self.cluster.command, "trace", "-o", trace, "--", *words] if trace else words
        environment = {**self.cluster.environment, **settings}
        expected, lines = 2 if "both" in arguments else 1, []
        errors = self.common / "job.errors"
        with errors.open("w") as said, self.bed.start(0, ["timeout", "-k", "5", str(JOB_SECONDS), *words], env=environment, stdin=subprocess.DEVNULL,
                                                      stdout=subprocess.PIPE, stderr=said, text=True) as process:
            for line in process.stdout:
                if line.startswith("{"):
                    lines.append(json.loads(line))
                if len(lines) == expected:
                    break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            process.terminate()
        if len(lines) != expected:
            raise RuntimeError(f"the program printed {len(lines)} of {expected} results\n{errors.read_text()}")
        return lines

    def passes(self, request):
        """Options of a run whose each pass takes about `--seconds` where every request has a part on every slow server."""
        seconds = SLOW.seconds(min(request, 64 * KIB))
        return "--request", request, "--requests", max(4, round(self.options.seconds / seconds / self.options.ranks))

    def path(self, number):
        """Of one policy's file. They differ in a number only, so a plan for one fits all."""
        return self.cluster.directory / f"zipf.{number}"

    def measure(self, request):
        """Traces the program, plans, places a copy of the file as each plan says, and runs the program on them in turn; returns the trace, the plans and the
        runs."""
        work, passes, ordinary = self.common / text_of(request), self.passes(request), self.path(len(POLICIES))
        work.mkdir()
        trace = work / "run.trace"
        is_first = request == self.options.request[0]
        if is_first:
            self.say("$ mpiexec -n 4 ./zipf_io --create     an ordinary file, and a managed one for each policy")
            for number in range(len(POLICIES) + 1):
                self.job(self.path(number), "--create", "--op", "none", ranks=HOSTS, redirected=number < len(POLICIES))
        self.say(f"$ stripewise trace -o run.trace -- mpiexec -n {self.options.ranks} ./zipf_io {ordinary.name} --request {text_of(request)}")
        self.job(ordinary, *passes, "--op", "both", "--epoch", 1, trace=trace)
        room = self.options.size // SSD_SHARE // self.options.region * self.options.region
        plans, predicted = {}, {}
        for policy in POLICIES:
            plan = plans[policy] = work / f"{policy}.json"
            found = self.stripewise("--json", "plan", trace, "--policy", policy, "--file", ordinary, "--ssd-room", text_of(room), "-o", plan)
            predicted[policy] = json.loads(found)["plan"]["predicted"]
        for number, policy in enumerate(POLICIES):
            self.stripewise("restripe", self.path(number), "--plan", plans[policy])
        runs = []
        for turn in range(self.options.rounds):
            for number, policy in list(enumerate(POLICIES))[:: -1 if turn % 2 else 1]:
                done = self.job(self.path(number), *passes, "--op", "both", "--epoch", 2 + turn % 60, redirected=True)
                self.say(f"  {policy:<5} requests of {text_of(request)}: " + ", ".join(f"{one['op']} {one['bandwidth_mb_s']:.1f} MB/s" for one in done))
                runs += [{**one, "policy": policy} for one in done]
        if request == self.options.request[-1]:
            self.take_in(ordinary, plans[POLICIES[-1]])
        return trace, list(plans.values()), [result(request, predicted, same) for same in grouped(runs)]

    def take_in(self, ordinary, plan):
        """The traced file itself comes under management as the plan says, and all of it is read and compared."""
        # The agents of the other hosts may have ended with the job, and cannot say that nobody has the file open; here it is known.
        self.stripewise("apply", "--force", "--unchecked-hosts", ",".join(self.bed.names[1:]), plan)
        self.say(f"$ mpiexec -n {HOSTS} stripewise run -- ./zipf_io {ordinary.name} --check")
        checked, = self.job(ordinary, "--check", "--op", "none", "--epoch", 1, ranks=HOSTS, redirected=True)
        if not checked["verified"]:
            raise RuntimeError(f"{ordinary.name} has other bytes than before")

    def report(self, inputs, runs):
        profile, cluster = self.common / "profile.json", tomllib.loads(self.cluster.file.read_text())
        # Which hosts have the key is nobody's business.
        cluster.get("coordinator", {}).pop("key", None)
        results = {"version": 2, "emulated": False, "runs": runs, "profile": json.loads(profile.read_text()), "cluster": cluster, "live": None}
        self.options.out.mkdir(parents=True, exist_ok=True)
        found = self.common / "results.json"
        found.write_text(json.dumps(results, indent=2) + "\n")
        page = self.common / "report.html"
        self.stripewise("report", *inputs, found, "-o", page)
        for made in (found, page):
            shutil.copy(made, self.options.out)

    def run(self):
        self.stripewise("calibrate", "--quick")
        shown, runs = [], []
        for request in self.options.request:
            trace, plans, measured = self.measure(request)
            shown = [trace, *plans]
            runs += measured
        self.report(shown, runs)
        if self.options.document:
            self.options.document.write_text(page(runs, self.options, self.load))
        print(table(runs))
        print(f"\n{WHAT_IS_REAL}\nwrote {self.options.out / 'report.html'} and {self.options.out / 'results.json'}; "
              f"{time.monotonic() - self.begun:.0f} s")
        return all(one["verified"] for one in runs)


def grouped(runs):
    """The runs of one policy and one direction, which differ in their round."""
    together = {}
    for one in runs:
        together.setdefault((one["policy"], one["op"]), []).append(one)
    return together.values()


def result(request, predicted, same):
    """As results.json has it, of the median."""
    first, speeds = same[0], [one["bandwidth_mb_s"] for one in same]
    of_plan = predicted[first["policy"]][first["op"]]
    return {
        "policy": first["policy"], "op": first["op"], "request_bytes": request, "ranks": first["ranks"], "bytes": first["bytes"],
        "bandwidth_mb_s": statistics.median(speeds), "predicted_mb_s": of_plan and of_plan["mb_per_s"], "verified": all(one["verified"] for one in same),
        "rounds_mb_s": speeds,
    }


def table(runs):
    lines = [f"\n{'':<14}{'policy':<7}{'MB/s':>8}{'rounds':>18}{'predicted':>11}{'over def':>10}  bytes"]
    default = {(one["op"], one["request_bytes"]): one["bandwidth_mb_s"] for one in runs if one["policy"] == "def"}
    for one in sorted(runs, key=lambda one: (one["request_bytes"], one["op"])):
        speeds, gain = one["rounds_mb_s"], one["bandwidth_mb_s"] / default[one["op"], one["request_bytes"]] - 1
        lines.append(
            f"{one['op'] + ' ' + text_of(one['request_bytes']):<14}{one['policy']:<7}{one['bandwidth_mb_s']:>8.1f}{f'{min(speeds):.1f} to {max(speeds):.1f}':>18}"
            f"{one['predicted_mb_s'] or 0:>11.1f}{gain:>+10.0%}  {'right' if one['verified'] else 'WRONG'}"
        )
    return "\n".join(lines)


PAGE = """<!-- Written by `{command}`; edit the text in demo/hosts.py. -->

# H2DP, figure 5, on a real Ceph

IOR with Zipf-distributed requests of H2DP's figure 5 (a = 0.8) on real engines, at 256 KiB and 1 MiB. [h2dp-fig5](h2dp.md#h2dp-fig5-h2dp-figure-5) has the
simulated figure with all sizes.

- **Real**: Ceph {ceph} with a monitor and five OSDs in memory; four hosts, which are namespaces of one machine with a network between them; MPICH with {ranks}
  ranks; the program, all messages, all bytes. All that was read was compared with what was written.
- **Throttled**: three servers to {slow} a request and one to {fast}. Their hosts' agents delay each request, and all hosts share a server's queue
  ([ceph.md](../ceph.md#set-up)). Nothing here is the figure of a device.
- **Smaller than in the paper**: a file of {size} in regions of {region} for 128 GiB in 64 MiB; {ranks} processes on 4 nodes for 32 on 32; 3 HServers and 1 SServer
  for 12 and 4. The SServer has space for a sixth of the file, as there. The popular regions do not change halfway.
- **Machine**: {processors} processors, which Ceph, hosts and program share; load {load:.1f} before and {load_after:.1f} after the runs.{note}

The command was `{command}`. The profile was calibrated on the throttled servers, the plans were made from one traced run, and {rounds} runs on each plan's copy of the
file alternated; a figure is their median.

{runs}

{gains}

{discussion}
"""
# The most that the paper prints for any size (section 5.2.1), in percent.
PUBLISHED = {"read": 219, "write": 253}
# Written after looking at the results.
DISCUSSION = """H2DP is ahead of DEF by 89 to 103 %, of the 219 and 253 % that the paper prints as the most over all sizes; `opt` leads H2DP by 45 to 133 %. Under DEF every request of 256 KiB has
a stripe of 64 KiB on each server and waits for a slow one, which takes 13.1 ms for it, so 76 requests a second are possible, 20.0 MB/s, and 19.8 are found. H2DP puts the
popular regions on the SServer alone and the others in three equal parts on the HServers, so popular requests wait for no HServer. `opt` puts most of the others on one HServer each: a
request then has one startup where H2DP's has three. In the simulation with PADP's profile ([h2dp-fig5](h2dp.md#h2dp-fig5-h2dp-figure-5)) DEF is ahead below 1 MiB. There a request
of DEF meets 4 of 16 servers; here it meets all. Predictions are within 11 % of what was measured, but for `opt` writing 1 MiB (19 % too high). One run of three of `opt` writing 256 KiB took
twice as long as the others, on a machine whose processors had ten tasks waiting for each."""


def page(runs, options, load):
    """The page of docs/reproduction with these results."""
    version = subprocess.run(["ceph-osd", "--version"], capture_output=True, text=True).stdout.split()[2:3]
    sizes = ",".join(text_of(one) for one in options.request)
    command = (f"demo/hosts.py --request {sizes} --size {text_of(options.size)} --ranks {options.ranks} --rounds {options.rounds} "
               f"--seconds {options.seconds:g} --document docs/reproduction/h2dp-on-ceph.md")
    by = {(one["op"], one["request_bytes"], one["policy"]): one for one in runs}
    rows = ["| | requests | policy | MB/s | rounds | predicted | data |", "|---|---|---|---:|---:|---:|---|"]
    for (op, request, policy), one in sorted(by.items()):
        speeds = one["rounds_mb_s"]
        rows.append(f"| {op} | {text_of(request)} | {policy} | {one['bandwidth_mb_s']:.1f} | {min(speeds):.1f} to {max(speeds):.1f} | "
                    f"{one['predicted_mb_s']:.1f} | {'right' if one['verified'] else 'WRONG'} |")
    gains = ["| | requests | what | published | ours |", "|---|---|---|---:|---:|"]
    for op, request in sorted({(op, request) for op, request, _ in by}):
        speed = {policy: by[op, request, policy]["bandwidth_mb_s"] for policy in POLICIES}
        for one, other, published in (("h2dp", "def", f"up to {PUBLISHED[op]} %"), ("opt", "def", "–"), ("opt", "h2dp", "–")):
            gains.append(f"| {op} | {text_of(request)} | {one} over {other} | {published} | {(speed[one] / speed[other] - 1) * 100:.0f} % |")
    return PAGE.format(
        command=command, ceph="".join(version), ranks=options.ranks, slow=SLOW, fast=FAST, size=text_of(options.size), region=text_of(options.region),
        processors=os.cpu_count(), load=load, load_after=os.getloadavg()[0], rounds=options.rounds, runs="\n".join(rows), gains="\n".join(gains),
        discussion=DISCUSSION, note=f" {options.note}" if options.note else "",
    )


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/demo/demo/stripewise")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "demo-hosts-out")
    parser.add_argument("--request", type=lambda text: [size(one) for one in text.split(",")], default=[256 * KIB, MIB], help="sizes of requests")
    parser.add_argument("--size", type=size, default=192 * MIB, help="of the shared file")
    parser.add_argument("--region", type=size, default=4 * MIB, help="of placement, and of the program's popularity")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="runs on each plan's file, in turn")
    parser.add_argument("--seconds", type=float, default=4, help="about how long a pass takes on the slowest plan")
    parser.add_argument("--document", type=pathlib.Path, help="also write the figure's page")
    parser.add_argument("--note", help="what that page also says of the machine")
    options = parser.parse_args()
    if shutil.which("mpicc.mpich") is None or shutil.which("mpiexec.mpich") is None:
        print("the demo on several hosts cannot run: there is no MPICH; setup/install installs it", file=sys.stderr)
        return MISSING
    try:
        with beds.Bed(hosts=HOSTS) as bed, bed.ceph("--osds", str(len(SERVERS) + 1), "--osd-bytes", str(OSD_BYTES), "--grace", "60") as ceph:
            return 0 if Demo(options, bed, ceph).run() else 1
    except beds.Unavailable as why:
        print(f"the demo on several hosts cannot run: {why}", file=sys.stderr)
        return MISSING


if __name__ == "__main__":
    sys.exit(main())
