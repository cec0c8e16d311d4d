#!/usr/bin/env python3
"""The simulator beside the emulated testbed: every run of a demo is simulated with the same servers, requests and plans.

Runs a small demo (real processes, real bytes, emulated time) unless --results names one's results.json, then simulates each of its runs
and prints the ratio. The simulator plans again, with a profile made of the device parameters instead of a measured one. Exits with 1 when a
ratio lies outside the tolerance; runs that the machine held up (host_bound) do not count.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def words_of(servers):
    """`--servers` for the emulated servers of a cluster file."""
    groups = []
    for server in servers:
        query = dict(pair.split("=") for pair in server["url"].split("?")[1].split("&"))
        capacity = f":{server['capacity']}" if server.get("capacity") else ""
        groups.append(f"1x{query['device']}{capacity}")
    return ",".join(groups), query.get("link")


def simulate(stripewise, results, size, seed, request, ranks, op, policies, requests):
    cluster = results["cluster"]
    servers, link = words_of(cluster["server"])
    workload = (f"ior:pattern=zipf,a=0.8,region={cluster['region']},size={size},transfer={request},requests={requests},"
                f"processes={ranks},nodes=1,op={op},seed={seed}")
    command = [stripewise, "simulate", workload, "--policy", ",".join(policies), "--servers", servers, "--region", cluster["region"],
               "--order", "testbed", "--seed", str(seed), "--json"]
    if link:
        command += ["--link", link]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return {run["name"]: run["outcome"]["mb_per_s"] for run in json.loads(run.stdout)["simulation"]["runs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", type=pathlib.Path, default=ROOT / "target/release/stripewise")
    parser.add_argument("--results", type=pathlib.Path, help="of a demo that was run before, with the same --size and --seed")
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", required=True, help="as of stripewise simulate --policy")
    parser.add_argument("--requests", default="64KiB,256KiB,1MiB,4MiB")
    parser.add_argument("--tolerance", type=float, default=0.10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = options.results or pathlib.Path(scratch) / "results.json"
        if not options.results:
            subprocess.run([options.stripewise, "demo", "--out", scratch, "--size", options.size, "--seed", str(options.seed),
                            "--policy", options.policies, "--request", options.requests], check=True, stdout=subprocess.DEVNULL)
        results = json.loads(path.read_text())
    ratios, worst = [], 0.0
    print(f"{'request':>10} {'op':<6} {'policy':<8} {'emulated':>10} {'simulated':>10} {'ratio':>7}")
    for run in results["runs"]:
        count = run["bytes"] // (run["request_bytes"] * run["ranks"])
        rate = simulate(options.stripewise, results, options.size, options.seed, run["request_bytes"], run["ranks"], run["op"],
                        [run["policy"]], count)[run["policy"]]
        ratio = rate / run["bandwidth_mb_s"]
        if not run["host_bound"]:
            ratios.append(ratio)
            worst = max(worst, abs(ratio - 1))
        print(f"{run['request_bytes'] // 1024:>6} KiB {run['op']:<6} {run['policy']:<8} {run['bandwidth_mb_s']:>10.2f} {rate:>10.2f} "
              f"{ratio:>7.3f}{'  host bound' if run['host_bound'] else ''}")
    print(f"{len(ratios)} runs that count: ratios {min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}")
    return 1 if worst > options.tolerance else 0


if __name__ == "__main__":
    sys.exit(main())
