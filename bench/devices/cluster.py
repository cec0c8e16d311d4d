"""A Stripewise cluster on the slow disks, and what is done on it."""
import json
import os
import pathlib
import tomllib

from disks import MIB, Failed, run

FILE_BYTES = 512 * MIB
# Where the server keeps its objects; its own small files stay cached, as on any machine that is in use.
OBJECTS = "stripewise-objects"
# Of each fast disk, for one file: both together hold a quarter of it.
SSD_ROOM_BYTES = 64 * MIB


class Cluster:
    def __init__(self, stripewise, load, disks, base, region_bytes):
        base.mkdir()
        self.stripewise, self.load, self.base = stripewise, load, base
        self.data = base / "data"
        self.data.mkdir()
        self.directories = [disk.mount / base.name for disk in disks]
        servers = []
        for disk, directory in zip(disks, self.directories):
            directory.mkdir()
            servers += ["--server", f"{disk.name}={disk.model.kind}:{directory}"]
        self.command("init", *servers, "--region", f"{region_bytes // MIB}MiB", "--state", base / "state")
        self.command("manage", self.data)

    def words(self, *words):
        return [self.stripewise, "--cluster", self.base / "cluster.toml", *words]

    def command(self, *words):
        return run(*self.words(*words))

    def calibrate(self, quick):
        return json.loads(self.command("calibrate", "--json", *(["--quick"] if quick else [])))

    def take_profile(self, other):
        """That of another cluster on the same disks."""
        profile = json.loads((other.base / "profile.json").read_text())
        profile["cluster"] = tomllib.loads((self.base / "cluster.toml").read_text())["id"]
        (self.base / "profile.json").write_text(json.dumps(profile))

    def create(self, path):
        """A managed file in the cluster's default layout, its blocks as the load program expects them."""
        source = self.base.parent / "source"
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
        self.command("restripe", path, "--plan", plan, "--force")

    def bytes_by_server(self, path):
        """Of the file, by server name."""
        found = json.loads(self.command("stat", path, "--json"))["files"][0]
        return {server["name"]: server["bytes"] for server in found["servers"]}

    def measure(self, *words):
        """Seconds of the load program, from a cold cache."""
        self.forget_cached()
        return float(self.command("run", "--", self.load, *words).split()[-1])

    def forget_cached(self):
        for server in self.directories:
            for directory, _, names in os.walk(server / OBJECTS):
                for name in names:
                    drop(pathlib.Path(directory) / name)


def drop(path):
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
