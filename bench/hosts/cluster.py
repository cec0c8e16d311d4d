"""A Stripewise cluster on hosts of tests/hosts/bed.py, for benchmarks and the demo."""
import os
import pathlib
import subprocess

COMMAND_SECONDS = 120


class Cluster:
    """`engine` are the words of `init` that say where the mapping table is, `servers` those of the option --server."""

    def __init__(self, bed, stripewise, engine, servers, region):
        self.bed, self.command, common = bed, pathlib.Path(stripewise).resolve(), pathlib.Path(bed.common)
        self.directory = pathlib.Path(bed.shared) / "data"
        (pathlib.Path(bed.store) / "data").mkdir()
        self.file = common / "cluster.toml"
        self.environment = {**os.environ, "STRIPEWISE_CLUSTER": str(self.file)}
        self.stripewise(0, "init", *engine, *(word for server in servers for word in ("--server", server)), "--region", region)
        self.stripewise(0, "manage", self.directory)

    def stripewise(self, host, *words, allowed=(0,), timeout=COMMAND_SECONDS):
        """What the command printed."""
        done = self.bed.run(host, [self.command, *words], env=self.environment, timeout=timeout)
        if done.returncode not in allowed:
            raise RuntimeError(f"stripewise {' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, host, *words, before=()):
        """A redirected program with pipes, ready to be told something: its first line was `ready`."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = self.bed.start(host, [*before, self.command, "run", "--", *words], env=self.environment, **pipes)
        if started.stdout.readline() != "ready\n":
            raise RuntimeError(f"{words[0]} on host {host} did not start (status {started.wait(COMMAND_SECONDS)})")
        return started


def end(programs):
    """Ends programs that end with their input."""
    for program in programs:
        program.stdin.close()
    for program in programs:
        program.wait(COMMAND_SECONDS)
        program.stdout.close()
