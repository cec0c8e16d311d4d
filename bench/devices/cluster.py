"""A Stripewise cluster on the slow disks, and what is measured on it."""
import json
import os
import pathlib

from disks import MIB, Failed, run

FILE_BYTES = 512 * MIB
REGION_BYTES = 8 * MIB
SERVER_DIRECTORY = "stripes"
# Of each fast disk, for one file: both together hold a quarter of it.
SSD_ROOM_BYTES = 64 * MIB


class Cluster:
    def __init__(self, stripewise, load, disks, base):
        self.stripewise, self.load, self.disks, self.base = stripewise, load, disks, base
        self.data = base / "data"
        self.data.mkdir()
        servers = []
        for disk in disks:
            directory = disk.mount / SERVER_DIRECTORY
            directory.mkdir()
            servers += ["--server", f"{disk.name}={disk.model.kind}:{directory}"]
        self.command("init", *servers, "--region", f"{REGION_BYTES // MIB}MiB", "--state", base / "state")
        self.command("manage", self.data)

    def words(self, *words):
        return [self.stripewise, "--cluster", self.base / "cluster.toml", *words]

    def command(self, *words):
        return run(*self.words(*words))

    def calibrate(self, quick):
        return json.loads(self.command("calibrate", "--json", *(["--quick"] if quick else [])))

    def create(self, path):
        """A managed file in the cluster's default layout, its blocks as the load program expects them."""
        source = self.base / "source"
        if not source.exists():
            with open(source, "wb") as file:
                file.truncate(FILE_BYTES)
            run(self.load, "sequential", "write-buffered", source, FILE_BYTES, 4 * MIB)
        self.command("cp", source, path)

    def trace(self, trace, *words):
        self.command("run", "--force", "--trace", trace, "--", self.load, *words)

    def plan(self, trace, policy, path, output, ssd_bytes=SSD_ROOM_BYTES):
        """MB/s that the plan promises."""
        words = ["--policy", policy, "--file", path, "--ssd-room", f"{ssd_bytes // MIB}MiB", "-o", output, "--json"]
        return json.loads(self.command("plan", trace, *words))["plan"]["predicted"]["total"]["mb_per_s"]

    def restripe(self, path, plan):
        self.command("restripe", path, "--plan", plan)

    def measure(self, *words):
        """Seconds of the load program, from a cold cache."""
        self.forget_cached()
        return float(self.command("run", "--", self.load, *words).split()[-1])

    def forget_cached(self):
        for disk in self.disks:
            for directory, _, names in os.walk(disk.mount / SERVER_DIRECTORY):
                for name in names:
                    drop(pathlib.Path(directory) / name)


def drop(path):
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
