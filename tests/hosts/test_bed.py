#!/usr/bin/env python3
"""The test bed of several hosts keeps what bed.py says of it.

Skipped, with the reason, where hosts cannot be made.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bed as beds  # noqa: E402

HOSTS = 4
WAIT_SECONDS = 60
PAUSE_SECONDS = 0.02

# Runs what it is sent, a line of JSON each, in a directory, and says how that went.
WORKER = r"""
import fcntl, json, os, sys
os.chdir(sys.argv[1])
os.umask(0)

def write(path, at, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        return os.pwrite(descriptor, text.encode(), at)
    finally:
        os.close(descriptor)

def append(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)

def read(path):
    with open(path, "rb") as file:
        return file.read().decode("latin-1")

def status(path):
    found = os.lstat(path)
    # Directories have sizes of their own, by file system.
    return [oct(found.st_mode), found.st_nlink, None if os.path.isdir(path) else found.st_size, found.st_uid, found.st_gid]

actions = {
    "write": write, "append": append, "read": read, "status": status, "truncate": os.truncate, "chmod": os.chmod,
    "rename": os.rename, "link": os.link, "symlink": os.symlink, "readlink": os.readlink, "unlink": os.unlink, "mkdir": os.mkdir,
    "rmdir": os.rmdir, "list": lambda path: sorted(os.listdir(path)), "chown": os.lchown,
    "setxattr": lambda path, value: os.setxattr(path, "user.note", value.encode()),
    "getxattr": lambda path: os.getxattr(path, "user.note").decode(),
}
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        print(json.dumps(["done", actions[name](*arguments)]), flush=True)
    except OSError as error:
        print(json.dumps(["failed", error.errno]), flush=True)
"""

# Takes a lock on byte 0 of a file, waiting for it, says so, and keeps it until its input ends.
HOLDER = r"""
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print("held", flush=True)
sys.stdin.read()
"""

COUNTER = r"""
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
for _ in range(int(sys.argv[2])):
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 8, 100)
    number = int(os.pread(descriptor, 20, 0) or b"0")
    os.pwrite(descriptor, b"%d" % (number + 1), 0)
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 8, 100)
"""

# A datagram that comes is a line of output, a line of input is a datagram to the address that is its first word.
TALKER = r"""
import socket, sys, threading
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 7000))
print("ready", flush=True)

def listen():
    while True:
        print(own.recv(100).decode(), flush=True)

threading.Thread(target=listen, daemon=True).start()
for line in sys.stdin:
    address, word = line.split()
    own.sendto(word.encode(), (address, 7000))
"""

FEATURES = r"""
import ctypes, errno, fcntl, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

def rename(flags, *names):
    for name in names:
        open(name, "w").close()
    result = libc.renameat2(-100, b"old", -100, b"new", flags)
    return "ok" if result == 0 else errno.errorcode[ctypes.get_errno()]

def lease():
    with open("leased", "w"):
        pass
    with open("leased") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return "ok"
        except OSError as error:
            return errno.errorcode[error.errno]

def nameless():
    try:
        os.close(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600))
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]

print("noreplace", rename(1, "old"), "exchange", rename(2, "old", "new"), "lease", lease(), "tmpfile", nameless())
"""


def skip_unless_available(test, **options):
    try:
        return test.enterClassContext(beds.Bed(**options))
    except beds.Unavailable as reason:
        raise unittest.SkipTest(f"no hosts for tests: {reason}")


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bed = skip_unless_available(cls, hosts=HOSTS)

    def good(self, host, *arguments, **options):
        result = self.bed.run(host, arguments, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stdout}{result.stderr}")
        return result.stdout

    def python(self, host, program, *arguments):
        """A program that talks by lines; it ends with the test."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = self.bed.start(host, [sys.executable, "-S", "-E", "-c", program, *arguments], **pipes)

        def end():
            process.kill()
            process.wait(WAIT_SECONDS)
            process.stdin.close()
            process.stdout.close()

        self.addCleanup(end)
        return process

    def say(self, process, *words):
        print(*words, file=process.stdin, flush=True)

    def hear(self, process):
        return process.stdout.readline().strip()

    def test_a_host_has_identities_of_its_own(self):
        facts = {
            "name": ["hostname"],
            "boot id": ["cat", "/proc/sys/kernel/random/boot_id"],
            "machine id": ["cat", "/etc/machine-id"],
            "device": ["stat", "-c", "%d", self.bed.shared],
        }
        for what, command in facts.items():
            found = [self.good(host, *command).strip() for host in range(HOSTS)]
            self.assertEqual(len(set(found)), HOSTS, f"{what}: {found}")
            if what == "name":
                self.assertEqual(found, self.bed.names)
        for path in ("/tmp/note", "/dev/shm/note", "/run/note"):
            self.good(0, "sh", "-c", f"echo h0 > {path}")
            self.assertNotEqual(self.bed.run(1, ["cat", path]).returncode, 0, path)
            self.assertFalse(os.path.exists(path))
        self.good(0, "touch", self.bed.local(0) / "note")
        self.assertTrue((self.bed.local(0) / "note").exists())
        self.assertNotEqual(self.bed.run(1, ["ls", self.bed.local(0)]).returncode, 0)
        segments = [self.good(host, "ipcmk", "-M", "4096") for host in range(2)]
        self.assertEqual(segments[0].split(":")[1], segments[1].split(":")[1], "IPC is a namespace of its own")

    def test_process_numbers_collide(self):
        mine = [{int(name) for name in self.good(host, "ls", "/proc").split() if name.isdigit()} for host in range(HOSTS)]
        self.assertTrue(set.intersection(*mine), mine)
        self.assertTrue(all(1 in numbers and max(numbers) < 10000 for numbers in mine), mine)
        # A process of another host cannot be seen, nor hit.
        seen = self.bed.run(0, ["cat", f"/proc/{os.getpid()}/cmdline"]).stdout
        self.assertNotEqual(seen, pathlib.Path("/proc/self/cmdline").read_text())

    def test_one_file_has_one_inode_number_and_as_many_devices_as_hosts(self):
        path = self.bed.shared / "one"
        self.good(0, "sh", "-c", f"echo from h0 > {path}")
        found = [self.good(host, "stat", "-c", "%d %i %W", path).split() for host in range(HOSTS)]
        self.assertEqual(len({device for device, _, _ in found}), HOSTS)
        self.assertEqual({number for _, number, _ in found}, {str((self.bed.store / "one").stat().st_ino)})
        born = {birth for _, _, birth in found}
        self.assertEqual(len(born), 1, "the birth time is the file's")
        for host in range(HOSTS):
            self.assertEqual(self.good(host, "cat", path), "from h0\n")

    def test_hosts_do_to_one_directory_what_one_program_does(self):
        seed = random.randrange(1 << 30)
        print(f"seed {seed}", file=sys.stderr)
        dice = random.Random(seed)
        model = tempfile.mkdtemp(dir=self.bed.common)
        place = self.bed.shared / "directory"
        # Both lie on one file system, so they answer alike.
        self.good(0, "mkdir", place)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        plain = subprocess.Popen([sys.executable, "-S", "-E", "-c", WORKER, model], **pipes)
        self.addCleanup(plain.communicate)
        workers = [self.python(host, WORKER, place) for host in range(HOSTS)]
        names = ["a", "b", "c", "d", "d/a", "d/b"]

        def some_text():
            return dice.choice("xyz") * dice.randrange(1, 9000)

        makers = {
            "write": lambda: [dice.choice(names), dice.randrange(20000), some_text()],
            "append": lambda: [dice.choice(names), some_text()],
            "truncate": lambda: [dice.choice(names), dice.randrange(20000)],
            "chmod": lambda: [dice.choice(names), dice.choice([0o600, 0o755, 0o4711])],
            "chown": lambda: [dice.choice(names), dice.randrange(3), dice.randrange(3)],
            # No directory is renamed: the kernel answers ESTALE, as on NFS, where it finds one that another host moved.
            "rename": lambda: dice.sample([name for name in names if name != "d"], 2),
            "link": lambda: dice.sample(names, 2),
            "symlink": lambda: [dice.choice(["a", "nowhere"]), dice.choice(names)],
            "setxattr": lambda: [dice.choice(names), dice.choice("xyz")],
            **{one: lambda: [dice.choice(names)] for one in ("read", "read", "status", "readlink", "unlink", "getxattr")},
            **{one: lambda: ["d"] for one in ("mkdir", "rmdir")},
            "list": lambda: [dice.choice([".", "d"])],
        }
        done = 0
        for step in range(1500):
            name = dice.choice(list(makers))
            action = json.dumps([name, *makers[name]()])
                # Another host sees what this one did.
            seen = json.dumps(dice.choice([["list", "."], ["status", "a"], ["read", "b"], ["status", "d/a"], ["list", "d"]]))
            for line in (action, seen):
                host = dice.randrange(HOSTS)
                for process in (plain, workers[host]):
                    self.say(process, line)
                expected, found = self.hear(plain), self.hear(workers[host])
                self.assertEqual(found, expected, f"step {step} of seed {seed}: {line[:100]} on h{host}")
            done += expected.startswith('["done"')
        self.assertGreater(done, 300)

    def test_what_a_user_makes_is_the_user_s(self):
        path = self.bed.shared / "users"
        self.good(0, "setpriv", "--reuid", "1234", "--regid", "4321", "--clear-groups", "sh", "-c", f"umask 027; mkdir {path}; : > {path}/file")
        self.assertEqual(self.good(1, "stat", "-c", "%u %g %a", path / "file"), "1234 4321 640\n")
        other = ["setpriv", "--reuid", "4321", "--regid", "1234", "--clear-groups", "cat", path / "file"]
        self.assertIn("Permission denied", self.bed.run(1, other).stderr)

    def test_locks_exclude_processes_of_all_hosts(self):
        path = self.bed.shared / "locked"
        self.good(0, "touch", path)
        holder = self.python(0, HOLDER, path)
        self.assertEqual(self.hear(holder), "held")
        attempt = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[2]), int(sys.argv[3]))"
        for host in range(HOSTS):
            refused = self.bed.run(host, [sys.executable, "-c", attempt, path, 1, 0])
            self.assertIn("BlockingIOError", refused.stderr, f"h{host}")
            self.good(host, sys.executable, "-c", attempt, path, "10", "1")
        # Many more wait than the server has threads, and one who waits can be interrupted.
        waiting = [self.python(number % HOSTS, HOLDER, path) for number in range(40)]
        interrupted = self.python(1, HOLDER, path)
        interrupted.send_signal(signal.SIGTERM)
        self.assertEqual(interrupted.wait(WAIT_SECONDS), -signal.SIGTERM)
        holder.stdin.close()
        for process in waiting:
            # Whoever comes next is not known: all are let go in advance.
            process.stdin.close()
        for process in waiting:
            self.assertEqual(self.hear(process), "held")

    def test_a_counter_under_a_lock_counts_every_host(self):
        path = self.bed.shared / "counter"
        self.good(0, "touch", path)
        processes = [self.bed.start(host, [sys.executable, "-S", "-E", "-c", COUNTER, path, 100]) for host in range(HOSTS)]
        self.assertEqual([process.wait(WAIT_SECONDS) for process in processes], [0] * HOSTS)
        self.assertEqual(self.good(0, "cat", path), str(100 * HOSTS))

    def test_packets_are_dropped_by_direction(self):
        talkers = [self.python(host, TALKER, self.bed.addresses[host]) for host in range(2)]
        for talker in talkers:
            self.assertEqual(self.hear(talker), "ready")

        def send(host, word):
            self.say(talkers[host], self.bed.addresses[1 - host], word)

        def arrives(host, word):
            send(host, word)
            self.assertEqual(self.hear(talkers[1 - host]), word)

        def is_lost(host, word, direction):
            send(host, word)
            end = time.monotonic() + WAIT_SECONDS
            while self.bed.dropped(1)[direction] == 0:
                self.assertLess(time.monotonic(), end)
                time.sleep(PAUSE_SECONDS)

        arrives(0, "first")
        arrives(1, "second")
        # Datagrams keep their order here, so a later word that comes first shows that the one before it was lost.
        self.bed.cut(1, outbound=False)
        is_lost(0, "lost-in", 0)
        arrives(1, "out")
        self.bed.restore(1)
        arrives(0, "after-in")
        self.bed.cut(1, inbound=False)
        is_lost(1, "lost-out", 1)
        arrives(0, "in")
        self.bed.restore(1)
        arrives(1, "after-out")
        self.bed.cut(1)
        is_lost(0, "lost", 0)
        is_lost(1, "lost", 1)
        self.bed.restore(1)
        arrives(0, "last")
        arrives(1, "last")

    def test_a_connection_outlasts_a_cut(self):
        shell = self.bed.description["remote_shell"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with self.bed.start(0, [shell, "h2", "cat"], **pipes) as process:
            self.say(process, "before")
            self.assertEqual(self.hear(process), "before")
            self.bed.cut(2)
            self.say(process, "late")
            end = time.monotonic() + WAIT_SECONDS
            while self.bed.dropped(2)[0] == 0:
                self.assertLess(time.monotonic(), end)
                time.sleep(PAUSE_SECONDS)
            self.bed.restore(2)
            self.assertEqual(self.hear(process), "late")
        self.assertEqual(process.returncode, 0)

    def test_a_host_dies_and_comes_again(self):
        path = self.bed.shared / "of-the-dead"
        self.good(3, "sh", "-c", f"touch {path} /tmp/here {self.bed.local(3)}/here")
        before = self.good(3, "cat", "/proc/sys/kernel/random/boot_id", "/etc/machine-id").split()
        holder = self.python(3, HOLDER, path)
        self.assertEqual(self.hear(holder), "held")
        waiter = self.python(0, HOLDER, path)
        self.bed.cut(3)
        self.bed.kill_host(3)
        self.assertEqual(holder.wait(WAIT_SECONDS), -signal.SIGKILL)
        self.assertEqual(self.hear(waiter), "held", "its locks have gone")
        self.assertIn("host is down", self.bed.run(3, ["true"]).stderr)
        with self.assertRaisesRegex(RuntimeError, "h3 is down"):
            self.bed.cut(3)
        self.bed.boot(3)
        after = self.good(3, "cat", "/proc/sys/kernel/random/boot_id", "/etc/machine-id").split()
        self.assertNotEqual(before[0], after[0])
        self.assertEqual(before[1], after[1])
        self.assertEqual(self.good(3, "sh", "-c", f"ls /tmp/here; ls {self.bed.local(3)}; true"), "here\n")
        self.assertEqual(self.good(0, self.bed.description["remote_shell"], "h3", "hostname"), "h3\n")

    def test_a_frozen_directory_answers_when_it_is_thawed(self):
        self.bed.freeze(2)
        reader = self.bed.start(2, ["ls", self.bed.shared], stdout=subprocess.DEVNULL)
        self.good(1, "ls", self.bed.shared)
        self.assertIsNone(reader.poll())
        self.bed.thaw(2)
        self.assertEqual(reader.wait(WAIT_SECONDS), 0)

    def test_mpi_starts_a_rank_on_every_host(self):
        for family in ("mpich", "openmpi"):
            with self.subTest(family):
                program = self.bed.common / f"mpi_blocks.{family}"
                subprocess.run([f"mpicc.{family}", "-O1", "-Wall", "-Werror", "-o", program, HERE / "mpi_blocks.c"], check=True)
                words, environment = self.bed.mpi(family)
                path = self.bed.shared / f"by-{family}"
                pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
                with self.bed.start(0, ["timeout", "-k", "5", "300", *words, program, path], env={**os.environ, **environment}, **pipes) as ranks:
                    self.assertEqual(ranks.stdout.readline().split(), [*self.bed.names, "ok"])
                    # Every rank has compared every byte. The end is not waited for: see Bed.mpi.
                    ranks.terminate()
                self.assertEqual((self.bed.store / path.name).stat().st_size, 3001 * 100 * HOSTS)

    def test_hosts_share_an_etcd(self):
        if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
            self.skipTest("there is no etcd: setup/install --engines installs it")
        url = self.bed.etcd()
        environment = {**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": url}
        self.good(0, "etcdctl", "put", "key", "value", env=environment)
        for host in (*range(HOSTS), None):
            self.assertEqual(self.good(host, "etcdctl", "get", "--print-value-only", "key", env=environment), "value\n")

    def test_hosts_share_a_ceph(self):
        try:
            with self.bed.ceph("--osds", "1") as ceph:
                rados = ["rados", "-c", ceph["conf"], "-p", ceph["pools"][0]]
                self.good(0, *rados, "put", "object", "-", input="content")
                for host in range(HOSTS):
                    self.assertEqual(self.good(host, *rados, "get", "object", "-"), "content")
        except beds.Unavailable as reason:
            self.skipTest(f"no Ceph for tests: {reason}")

    def test_all_features_are_there(self):
        found = self.good(0, sys.executable, "-c", FEATURES, self.bed.shared)
        self.assertEqual(found, "noreplace ok exchange ok lease ok tmpfile ENOTSUP\n")


class Without(unittest.TestCase):
    def test_features_can_be_left_out(self):
        bed = skip_unless_available(type(self), hosts=2, without=["exchange", "noreplace", "birth-time", "leases"])
        found = bed.run(1, [sys.executable, "-c", FEATURES, bed.shared]).stdout
        self.assertEqual(found, "noreplace EINVAL exchange EINVAL lease EINVAL tmpfile ENOTSUP\n")
        self.assertEqual(bed.run(0, ["stat", "-c", "%W", bed.shared]).stdout, "0\n")

    def test_a_mount_can_keep_what_another_host_has_changed(self):
        for without, expected in (([], "new"), (["coherence"], "old")):
            bed = skip_unless_available(type(self), hosts=2, without=without)
            path = bed.shared / "file"
            self.assertEqual(bed.run(0, ["sh", "-c", f"printf old > {path}; cat {path}"]).stdout, "old")
            bed.run(1, ["sh", "-c", f"printf new > {path}"])
            self.assertEqual(bed.run(0, ["cat", path]).stdout, expected)


class Ends(unittest.TestCase):
    def test_nothing_is_left_of_a_bed_whose_user_was_killed(self):
        skip_unless_available(type(self), hosts=1)
        program = (
            "import sys, json; sys.path.insert(0, sys.argv[1]); import bed\n"
            "with bed.Bed(hosts=2) as made:\n"
            "    sleeper = made.start(1, ['sleep', '1000'])\n"
            "    print(json.dumps([made.description, sleeper.pid]), flush=True)\n"
            "    sys.stdin.read()\n"
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", program, HERE], **pipes) as user:
            description, sleeper = json.loads(user.stdout.readline())
            user.kill()
        end = time.monotonic() + WAIT_SECONDS
        numbers = [sleeper, *(host["pid"] for host in description["hosts"])]
        while os.path.exists(description["directory"]) or any(os.path.exists(f"/proc/{number}") for number in numbers):
            self.assertLess(time.monotonic(), end, f"{description['directory']} or one of {numbers} is still there")
            time.sleep(PAUSE_SECONDS)

    def test_where_hosts_cannot_be_made_the_reason_is_given(self):
        place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        place.chmod(0o755)
        # That user may not read the checkout.
        for name in ("hosts/machine.py", "engines/daemons.py"):
            (place / name).parent.mkdir()
            shutil.copyfile(HERE.parent / name, place / name)
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", place / "hosts/machine.py"]
        if os.geteuid() != 0:
            command = command[-2:]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", timeout=WAIT_SECONDS)
        self.assertEqual(result.returncode, beds.MISSING, result.stderr)
        self.assertIn("need root", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
