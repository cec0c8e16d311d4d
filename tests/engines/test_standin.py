#!/usr/bin/env python3
"""The stand-in for libpvfs2 ends a process that breaks a rule of the library, and says which: otherwise it would prove nothing.

    tests/engines/test_standin.py
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import standin  # noqa: E402

# What stands before each program: a caller that keeps to the rules.
PROLOGUE = r"""
import ctypes, os, sys, threading, time
from ctypes import byref, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p, sizeof
library = ctypes.CDLL(sys.argv[1])
server, second = sys.argv[2:4]

class Reference(ctypes.Structure):
    _fields_ = [("handle", c_uint64), ("file_system", c_int32), ("padding", c_int32)]
class Credential(ctypes.Structure):
    _fields_ = [("user", c_uint32), ("group_count", c_uint32), ("groups", ctypes.POINTER(c_uint32)), ("issuer", c_void_p),
                ("expires", c_uint64), ("signature_bytes", c_uint32), ("signature", c_void_p), ("certificate_bytes", c_uint32),
                ("certificate", c_void_p)]
class Attributes(ctypes.Structure):
    _fields_ = [("owner", c_uint32), ("group", c_uint32), ("permissions", c_uint32), ("times", c_uint64 * 3), ("size", c_int64),
                ("link_target", c_void_p), ("datafiles", c_int32), ("ignored", c_int32 * 4), ("texts", c_void_p * 2),
                ("entries", c_int64), ("kind", c_int), ("flags", c_uint64), ("mask", c_uint32), ("block", c_int64)]
class Layout(ctypes.Structure):
    _fields_ = [("algorithm", c_int), ("count", c_int32), ("padding", c_int32), ("servers", ctypes.POINTER(c_int64))]
class Found(ctypes.Structure):
    _fields_ = [("reference", Reference), ("error_path", c_char_p), ("error_path_bytes", c_int)]
class Entries(ctypes.Structure):
    _fields_ = [("token", c_uint64), ("entries", c_void_p), ("count", c_uint32), ("version", c_uint64)]
library.PVFS_util_gen_mntent.restype = c_void_p

def start():
    library.PVFS_sys_initialize(c_uint64(0))
def wait(id, timeout_ms=1000):
    ids, users, statuses, count = (c_int64 * 1)(id), (c_void_p * 1)(), (c_int * 1)(), c_int(0)
    while count.value == 0:
        count.value = 1
        ids[0] = id
        library.PVFS_sys_testsome(ids, byref(count), users, statuses, timeout_ms)
    return statuses[0]
def begin(call, *arguments):
    id = c_int64(-1)
    status = call(*arguments, byref(id), None, None)
    return id.value if status == 0 and id.value != -1 else status
def run(call, *arguments):
    started = begin(call, *arguments)
    return wait(started) if started > 0 else started
def add():
    mount = library.PVFS_util_gen_mntent(f"tcp://{server}".encode(), b"orangefs")
    id = c_int64()
    library.PVFS_isys_fs_add(c_void_p(mount), byref(id), None)
    assert wait(id.value) == 0
    return ctypes.c_int32.from_address(mount + 40).value
def new_credential():
    made = Credential()
    assert library.PVFS_util_gen_credential_defaults(byref(made)) == 0
    return made
def look_up_root():
    found = Found()
    assert library.PVFS_sys_lookup(file_system, b"/", byref(credential), byref(found), 0, None) == 0
    return found.reference
def addresses():
    found, count = (c_int64 * 8)(), c_int(8)
    library.PVFS_mgmt_get_server_array(file_system, 1, found, byref(count))
    return found[:count.value]
def attributes(**given):
    mask = 0x3f | (1 << 25 if "datafiles" in given else 0)
    times = (c_uint64 * 3)(*[int(time.time())] * 3)
    return Attributes(**({"owner": os.geteuid(), "group": os.getegid(), "permissions": 0o600, "times": times, "mask": mask} | given))
def create(name, places=None, algorithm=4, **given):
    places = addresses()[:1] if places is None else places
    layout = Layout(algorithm, 0, len(places), (c_int64 * len(places))(*places))
    # The list is a structure of its own, which begins at a multiple of 8.
    layout.padding, layout.count = len(places), 0
    made = Reference()
    status = run(library.PVFS_isys_create, name, root, attributes(datafiles=1, **given), byref(credential), None, byref(layout), byref(made))
    return status, made
def request(bytes, commit=True):
    made = c_void_p()
    library.PVFS_Request_contiguous(bytes, c_void_p.in_dll(library, "PVFS_BYTE"), byref(made))
    if commit:
        library.PVFS_Request_commit(byref(made))
    return made
def begin_io(object, memory, made, kind=2, moved=None):
    moved = c_int64() if moved is None else moved
    kept.extend((memory, moved))
    byte = c_void_p.in_dll(library, "PVFS_BYTE")
    return begin(library.PVFS_isys_io, object, byte, c_int64(0), memory, made, byref(credential), byref(moved), kind)
kept = []
start()
credential = new_credential()
file_system = add()
root = look_up_root()
"""

# What a caller does wrong, and what the library says of it.
WRONG = {
    "called twice": "start()",
    "called after PVFS_sys_finalize": "library.PVFS_sys_finalize(); look_up_root()",
    "operations are under way": "run(library.PVFS_isys_remove, b'none', root, byref(credential)); begin(library.PVFS_isys_remove, b'none', root, byref(credential)); library.PVFS_sys_finalize()",
    "by a second thread": "thread = threading.Thread(target=look_up_root); thread.start(); thread.join()",
    "in a child of the process": "child = os.fork()\nif child == 0: look_up_root()\nelse: os.kill(os.getpid(), 6) if os.waitpid(child, 0)[1] == 6 else None",
    "is not the one that was made last": "credential.user += 1; look_up_root()",
    "the credential was freed": "library.PVFS_util_release_sys_attr(byref(Attributes(kind=8, mask=64, link_target=credential.signature))); look_up_root()",
    "the credential was changed": "credential.groups[0] += 1; look_up_root()",
    "was freed already": "for _ in range(2): library.PVFS_util_release_sys_attr(byref(Attributes(kind=8, mask=64, link_target=credential.issuer)))",
    "a credential that was replaced was not freed": "credential = new_credential(); add()",
    "is added a second time": "add()",
    "was not added": "file_system += 1; look_up_root()",
    "has no handle": "root.handle = 0; run(library.PVFS_isys_remove, b'none', root, byref(credential))",
    "is no name in a directory": "run(library.PVFS_isys_remove, b'a/b', root, byref(credential))",
    "no name": "run(library.PVFS_isys_remove, b'', root, byref(credential))",
    "the list names 2 servers": "create(b'a', addresses()[:2])",
    "is placed by no list": "create(b'a', algorithm=2)",
    "which is no server": "create(b'a', [addresses()[0] - 1])",
    "belongs to another user": "create(b'a', owner=os.geteuid() + 1)",
    "a time of a new object is 5": "create(b'a', times=(c_uint64 * 3)(5, 5, 5))",
    "permissions 100600": "create(b'a', permissions=0o100600)",
    "the mask of a new object": "create(b'a', mask=0x3f)",
    "hints are given": "library.PVFS_isys_remove(b'none', root, byref(credential), byref(c_int64()), byref(c_int64()), None)",
    "600 entries are asked for": "run(library.PVFS_isys_readdir, root, c_uint64(2**31 - 2), 600, byref(credential), byref(Entries()))",
    "the entries of a directory were not freed": "create(b'a'); run(library.PVFS_isys_readdir, root, c_uint64(2**31 - 2), 10, byref(credential), byref(Entries())); add()",
    "a request was not freed": "request(8); add()",
    "was not committed": "begin_io(create(b'a')[1], b'12345678', request(8, commit=False))",
    "is no request, or was freed already": "made = request(8); copy = c_void_p(made.value); library.PVFS_Request_free(byref(made)); library.PVFS_Request_free(byref(copy))",
    "an operation under way uses the request": "a = create(b'a')[1]; made = request(8000); begin_io(a, b'1' * 8000, made); library.PVFS_Request_free(byref(made))",
    "the memory of a transfer was changed before it was over": "memory = ctypes.create_string_buffer(8000); id = begin_io(create(b'a')[1], memory, request(8000)); memory[99] = b'x'; wait(id)",
    "the place for the answer of `io` was used": "moved = c_int64(); id = begin_io(create(b'a')[1], b'1' * 8000, request(8000), moved=moved); moved.value = 1; wait(id)",
    "is over already": "a = create(b'a')[1]; made = request(8000); id = begin_io(a, b'1' * 8000, made); wait(id); library.PVFS_Request_free(byref(made)); wait(id)",
    "is no operation": "wait(12345)",
    "of 1 to 256": "library.PVFS_sys_testsome((c_int64 * 1)(1), byref(c_int(257)), (c_void_p * 1)(), (c_int * 1)(), 0)",
    "is asked for twice": "id = begin(library.PVFS_isys_mkdir, b'd', root, attributes(), byref(credential), byref(kept.append(Reference()) or kept[-1])); library.PVFS_sys_testsome((c_int64 * 2)(id, id), byref(c_int(2)), (c_void_p * 2)(), (c_int * 2)(), 0)",
    "more than 256 operations are under way": "for number in range(257): begin(library.PVFS_isys_mkdir, b'd%d' % number, root, attributes(), byref(credential), byref(kept.append(Reference()) or kept[-1]))",
    "begun while a file system is added": "library.PVFS_isys_fs_add(c_void_p(library.PVFS_util_gen_mntent(f'tcp://{second}'.encode(), b'orangefs')), byref(c_int64()), None); begin(library.PVFS_isys_remove, b'none', root, byref(credential))",
}

# A caller that does nothing wrong, by the same means.
RIGHT = r"""
assert create(b"a")[0] == 0 and create(b"a")[0] == -(1 << 30 | 11)
for kind, memory in ((2, ctypes.create_string_buffer(b"x" * 8000, 8000)), (1, ctypes.create_string_buffer(8000))):
    found = Found()
    assert run(library.PVFS_isys_ref_lookup, file_system, b"a", root, byref(credential), byref(found), 0) == 0
    made = request(8000)
    started = begin_io(found.reference, memory, made, kind)
    assert started > 0 and wait(started) == 0
    library.PVFS_Request_free(byref(made))
    assert memory.raw == b"x" * 8000
listing = Entries()
assert run(library.PVFS_isys_readdir, root, c_uint64(2**31 - 2), 10, byref(credential), byref(listing)) == 0
assert listing.count == 1 and listing.token == 2**31 - 3 and ctypes.string_at(listing.entries) == b"a"
library.PVFS_util_release_sys_attr(byref(Attributes(kind=8, mask=64, link_target=listing.entries)))
assert run(library.PVFS_isys_remove, b"a", root, byref(credential)) == 0
assert library.PVFS_sys_finalize() == 0
"""


class TheStandIn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("cc") is None:
            raise unittest.SkipTest("there is no C compiler")
        beside = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stripewise-standin-"))
        cls.first, cls.second = (cls.enterClassContext(standin.StandIn(2, beside)) for _ in range(2))

    def call(self, program):
        """What the program says, and its status."""
        words = [sys.executable, "-S", "-E", "-c", PROLOGUE + program, self.first.library, self.first.servers[0], self.second.servers[0]]
        result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
        return result.stderr, result.returncode

    def test_a_caller_that_keeps_to_the_rules_is_served(self):
        self.assertEqual(self.call(RIGHT), ("", 0))

    def test_each_rule_that_is_broken_ends_the_process_and_is_named(self):
        for expected, program in WRONG.items():
            with self.subTest(expected):
                for file in (self.first.directory / "meta" / f"{standin.ROOT_HANDLE:x}").iterdir():
                    file.unlink()
                error, status = self.call(program)
                self.assertIn(expected, error, program)
                self.assertIn("libpvfs2 stand-in: process", error)
                self.assertEqual(status, -signal.SIGABRT, error)
                self.assertIn(expected, self.first.violations())

    def test_a_credential_that_expired_is_no_fault_of_a_caller_that_can_get_no_other(self):
        self.addCleanup(self.first.credential, None)
        # By the library's clock: time() of C runs some milliseconds behind time.time().
        wait = "while ctypes.CDLL(None).time(None) < credential.expires: time.sleep(0.05)\n"
        self.first.credential(1)
        error, status = self.call(wait + "look_up_root()")
        self.assertIn("the credential has expired, and a new one can be had", error)
        refuse = f"open({str(self.first.beside / 'credential')!r}, 'w').write('0')\n"
        refused = "assert library.PVFS_util_gen_credential_defaults(byref(Credential())) == -(1 << 30 | 1 << 29 | 9)\n"
        ended = "assert library.PVFS_sys_lookup(file_system, b'/', byref(credential), byref(Found()), 0, None) == -(1 << 30 | 1 << 29 | 9)"
        # Long enough for what comes before the wait.
        self.first.credential(5)
        self.assertEqual(self.call(refuse + refused + wait + ended), ("", 0))

    def test_what_a_client_sent_before_it_was_killed_arrives(self):
        self.addCleanup(self.first.control, 0)
        before = self.first.objects(0)
        self.first.control(0, "late=300")
        error, status = self.call("begin_io(create(b'a')[1], b'late....', request(8)); os.kill(os.getpid(), 9)")
        self.assertEqual(status, -signal.SIGKILL, error)
        (name,) = self.first.objects(0) - before
        written, end = self.first.directory / "s0" / name, time.monotonic() + 60
        while written.stat().st_size == 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        self.assertEqual(written.read_bytes(), b"late....")


if __name__ == "__main__":
    unittest.main()
