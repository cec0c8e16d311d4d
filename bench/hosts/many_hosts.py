#!/usr/bin/env python3
"""Many simulated hosts against one master: how fast they open regions, and how many moves a minute go without a growing queue.

    bench/hosts/many_hosts.py [--hosts N,N...] [--debug]

The hosts have no data: each is a link with the agent's side of the protocol (crates/broker/src/agent/many_hosts.rs), in the master's process, over TCP and
TLS on the loopback. The master's handlers, listener and moves are the real ones; its table is in memory, so what an engine takes for a commit is not in these
figures. Leaves bench-out/many-hosts.json.

Exit status 1 if the queue of moves grows at 1,000 moves a minute: if it is longer in the second half of the time than twice what it was in the first, and
than 20.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = "agent::many_hosts::figures_of_many_hosts"


def measure(hosts, profile):
    words = ["cargo", "test", "--quiet", *profile, "--package", "stripewise-broker", "--lib", "--", "--ignored", "--exact", "--nocapture", TEST]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "HOSTS": str(hosts)}, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: status {done.returncode}: {done.stdout}")
    return next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--hosts", default="16,64,128", help="how many hosts, one measurement each")
    parser.add_argument("--debug", action="store_true", help="measure a build without optimization")
    options = parser.parse_args()
    figures = [measure(int(hosts), [] if options.debug else ["--release"]) for hosts in options.hosts.split(",")]
    print(f"{'hosts':>6} {'regions':>8} {'opens/s':>8} {'regions shown/s':>16} {'queue at 1,000/min':>19} {'moves/min at most':>18}")
    for figure in figures:
        queue = f"{figure['longest_queue_first_half']}, then {figure['longest_queue_second_half']}"
        print(f"{figure['hosts']:>6} {figure['regions']:>8,} {figure['opens_per_s']:>8,} {figure['regions_shown_per_s']:>16,} {queue:>19}"
              f" {figure['moves_per_minute_at_most']:>18,}")
    out = ROOT / "bench-out"
    out.mkdir(exist_ok=True)
    (out / "many-hosts.json").write_text(json.dumps({"debug": options.debug, "figures": figures}, indent=2) + "\n")
    grows = [figure["hosts"] for figure in figures
             if figure["longest_queue_second_half"] > max(20, 2 * figure["longest_queue_first_half"])]
    if grows:
        sys.exit(f"the queue of moves grows with {', '.join(map(str, grows))} hosts")


if __name__ == "__main__":
    main()
