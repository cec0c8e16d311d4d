"""Creates files where file systems lack what creating takes. `creating.py works|refused`."""

import errno
import os
import sys

if sys.argv[1] == "refused":
    try:
        os.open("file", os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
    else:
        raise AssertionError("the file was created")
    assert os.listdir() == [], os.listdir()
    sys.exit()

descriptor = os.open("file", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
assert os.listdir() == ["file"], os.listdir()
assert os.pwrite(descriptor, b"bytes", 100_000) == 5
status = os.fstat(descriptor)
assert (status.st_size, status.st_nlink, status.st_mode & 0o777) == (100_005, 1, 0o640), status
os.close(descriptor)
try:
    os.open("file", os.O_RDWR | os.O_CREAT | os.O_EXCL)
except FileExistsError:
    pass
else:
    raise AssertionError("O_EXCL does not hold")
with open("file", "rb") as file:
    assert file.read() == bytes(100_000) + b"bytes"
os.rename("file", "renamed")
os.unlink("renamed")
# Only the file system can give a file without a name; a program that hears so does without.
try:
    os.close(os.open(".", os.O_TMPFILE | os.O_RDWR))
except OSError as error:
    assert error.errno == errno.EOPNOTSUPP, error
else:
    raise AssertionError("a file without a name")
# Many processes want one name: one of them gets it.
children = []
for number in range(8):
    child = os.fork()
    if child == 0:
        try:
            os.write(os.open("one", os.O_WRONLY | os.O_CREAT | os.O_EXCL), b"%d" % number)
        except FileExistsError:
            os._exit(1)
        os._exit(0)
    children.append(child)
assert sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children) == 1
assert os.listdir() == ["one"], os.listdir()
