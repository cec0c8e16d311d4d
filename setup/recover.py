#!/usr/bin/env python3
"""Puts files together from server directories alone: no mapping table, no Stripewise.

    recover.py --output DIR SERVER_DIRECTORY...

Give the directory of every server of the cluster, wherever it is mounted now. Each file is written below DIR under the path that it had when
it was made, or under its id with --by-id. A file of which anything is missing is named and not written, unless --partial is given:
then what is missing is zeros. Exit status: 0 all files are whole, 1 some are not, 2 nothing could be done.

docs/formats.md describes the formats: the marker of a server directory, objects, and descriptions of files.
"""

import argparse
import hashlib
import os
import sys
import urllib.parse

FIRST_LINE = "stripewise description 1"
CHUNK_BYTES = 8 << 20

class Server:
    """A server directory."""

    def __init__(self, directory):
        self.directory = directory
        with open(os.path.join(directory, "stripewise-server")) as marker:
            lines = marker.read().splitlines()
        if not lines or lines[0] != "stripewise server 1":
            raise ValueError(f"{directory}: the marker `stripewise-server` is of another version")
        words = dict(line.split(" ", 1) for line in lines[1:])
        self.cluster, self.name = words["cluster"], words["server"]

    def descriptions(self):
        directory = os.path.join(self.directory, "stripewise-descriptions")
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
            if len(name) == 16 and all(digit in "0123456789abcdef" for digit in name):
                with open(os.path.join(directory, name), "rb") as text:
                    yield name, text.read()

    def object(self, file, region, generation):
        return os.path.join(self.directory, "stripewise-objects", file, f"{region}.{generation}")


class File:
    """What all servers say of one file; of two lines about the same, that with the higher sequence counts."""

    def __init__(self):
        self.head = None  # (sequence, region size, mode, path)
        self.places = {}  # region -> (sequence, generation, [(server, stripe size)])
        self.cuts, self.sizes = [], []  # (sequence, size)
        self.exact = ((0, 0), False)  # whether objects may be longer than the file
        self.damaged_lines = 0

    def add(self, text):
        whole, _, _torn = text.rpartition(b"\n")
        for line in whole.split(b"\n"):
            if not line or line == FIRST_LINE.encode():
                continue
            try:
                self.add_line(line)
            except (ValueError, IndexError):
                self.damaged_lines += 1

    def add_line(self, line):
        text, _, checksum = line.rpartition(b" ")
        if hashlib.sha256(text).hexdigest()[:16] != checksum.decode():
            raise ValueError("checksum")
        kind, sequence, *words = text.decode().split(" ")
        broker, step = sequence.split(".")
        sequence = (int(broker), int(step))
        if kind == "file":
            _file, _cluster, region_bytes, mode, _uid, _gid, path = words
            head = (sequence, int(region_bytes), int(mode, 8), urllib.parse.unquote(path))
            self.head = max(self.head or head, head)
        elif kind == "place":
            region, generation, size = (int(word) for word in words[:3])
            stripes = [stripe.rsplit(":", 1) for stripe in words[3].split(",")]
            place = (sequence, generation, [(server, int(stripe)) for server, stripe in stripes])
            self.places[region] = max(self.places.get(region, place), place)
            self.sizes.append((sequence, size))
        elif kind == "cut":
            self.cuts.append((sequence, int(words[0])))
            self.sizes.append((sequence, int(words[0])))
            self.exact = max(self.exact, (sequence, True))
        elif kind == "size":
            self.sizes.append((sequence, int(words[0])))
            self.exact = max(self.exact, (sequence, words[1] == "exact"))
        else:
            raise ValueError(kind)

    def live_places(self):
        """Regions that no later cut took away."""
        region_bytes = self.head[1]
        for region, (sequence, generation, stripes) in sorted(self.places.items()):
            if not any(cut > sequence and region * region_bytes >= size for cut, size in self.cuts):
                yield region, generation, stripes

    def size(self, held):
        """`held`: the end of what the objects hold."""
        since = max((cut for cut, _ in self.cuts), default=(0, 0))
        noted = max((size for sequence, size in self.sizes if sequence >= since), default=0)
        return noted if self.exact[1] else max(noted, held)


def pieces(stripes, turn, length):
    """(offset in the region, offset in the object, bytes) of the first `length` bytes of the object of the cycle's stripe `turn`."""
    cycle = sum(stripe for _, stripe in stripes)
    start, stripe = sum(stripe for _, stripe in stripes[:turn]), stripes[turn][1]
    for number in range((length + stripe - 1) // stripe):
        at = number * stripe
        yield number * cycle + start, at, min(stripe, length - at)


def copy(source, target, stripes, turn, base, length, size):
    """Copies one object to where its bytes belong, as far as the file reaches."""
    for in_region, in_object, count in pieces(stripes, turn, length):
        at = base + in_region
        count = min(count, size - at)
        while count > 0:
            data = os.pread(source, min(count, CHUNK_BYTES), in_object)
            if not data:
                break
            os.pwrite(target, data, at)
            at, in_object, count = at + len(data), in_object + len(data), count - len(data)


def recover(name, file, servers, path, partial):
    """Writes one file; returns what is wrong with it."""
    wrong = [f"{file.damaged_lines} lines of its descriptions are damaged"] if file.damaged_lines else []
    region_bytes, held, objects = file.head[1], 0, []
    for region, generation, stripes in file.live_places():
        for turn, (server, _) in enumerate(stripes):
            known = servers.get(server)
            source = known and known.object(name, region, generation)
            if not source or not os.path.isfile(source):
                wrong.append(f"region {region}: {source or 'the directory of server ' + server} is missing")
                continue
            length = os.stat(source).st_size
            for in_region, _, count in pieces(stripes, turn, length):
                held = max(held, region * region_bytes + in_region + count)
            objects.append((source, stripes, turn, region * region_bytes, length))
    if wrong and not partial:
        return wrong
    size = file.size(held)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(target, size)
        for source_path, stripes, turn, base, length in objects:
            source = os.open(source_path, os.O_RDONLY)
            try:
                copy(source, target, stripes, turn, base, length, size)
            finally:
                os.close(source)
        os.fchmod(target, file.head[2] & 0o777)
        os.fsync(target)
    finally:
        os.close(target)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="directory to write files to")
    parser.add_argument("--by-id", action="store_true", help="name files by their ids")
    parser.add_argument("--partial", action="store_true", help="write damaged files too, with zeros for what is missing")
    parser.add_argument("servers", nargs="+", help="directories of all servers of one cluster")
    arguments = parser.parse_args()
    try:
        servers = {server.name: server for server in map(Server, arguments.servers)}
        if len({server.cluster for server in servers.values()}) != 1 or len(servers) != len(arguments.servers):
            raise ValueError("give each server of one cluster once")
        files = {}
        for server in servers.values():
            for name, text in server.descriptions():
                files.setdefault(name, File()).add(text)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(print(error, file=sys.stderr) or 2)
    status, taken = 0, set()
    for name, file in sorted(files.items()):
        below = name
        if file.head and not arguments.by_id:
            below = os.path.normpath("/" + file.head[3]).lstrip("/")
            below = f"{below}.{name}" if below in taken else below
        taken.add(below)
        path = os.path.join(arguments.output, below)
        try:
            wrong = recover(name, file, servers, path, arguments.partial) if file.head else ["its description has no head"]
        except OSError as error:
            wrong = [str(error)]
        print(f"{'damaged' if wrong else 'whole':8}{name}  {path}")
        for what in wrong:
            print(f"        {what}")
        status = 1 if wrong else status
    return status


if __name__ == "__main__":
    sys.exit(main())
