"""What the slow disks give a program without Stripewise that has one request in flight: the reference of the sequential cases."""
from disks import KIB, run

BLOCK_BYTES = 4 * KIB


class BareStream:
    """Requests split over one plain file on each disk, in the shares of a striped file."""

    def __init__(self, program, disks, bytes_by_server, request_bytes):
        self.program, self.request_bytes = program, request_bytes
        total = sum(bytes_by_server.values())
        used = [disk for disk in disks if bytes_by_server.get(disk.name)]
        # In whole blocks, all together the request.
        ends, before, self.parts = 0, 0, {}
        for disk in used:
            ends += bytes_by_server[disk.name]
            end = request_bytes * ends // total // BLOCK_BYTES * BLOCK_BYTES
            self.parts[disk], before = end - before, end
        self.parts = {disk: part for disk, part in self.parts.items() if part}

    @property
    def possible_mb_s(self):
        """Where every request takes as long as the disk with the longest part, no disk ever seeks and the host takes no time."""
        return self.request_bytes / 1e6 / max(disk.model.service_s(part, sequential=True) for disk, part in self.parts.items())

    def measure(self, mode, requests):
        """Seconds of so many requests."""
        words = [word for disk, part in self.parts.items() for word in (disk.mount / "bare", part)]
        return float(run(self.program, mode, requests, *words))

    def remove(self):
        for disk in self.parts:
            (disk.mount / "bare").unlink(missing_ok=True)
