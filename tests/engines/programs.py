"""Programs that the tests on storage engines run under `stripewise run`."""

# Writes a file in pieces of odd lengths at odd places, reads it again from another process, and prints its hash.
PROGRAM = r"""
import hashlib, os, random, sys
path, seed, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
content = bytearray(dice.randbytes(size))
with open(path, "wb+", buffering=0) as file:
    file.write(content)
    for _ in range(40):
        at, length = dice.randrange(size), dice.randrange(1, 3_000_000)
        piece = dice.randbytes(min(length, size - at))
        os.pwrite(file.fileno(), piece, at)
        content[at:at + len(piece)] = piece
    os.fsync(file.fileno())
    child = os.fork()
    if child == 0:
        # A child has a lane of its own.
        read = os.pread(file.fileno(), size, 0)
        while len(read) < size:
            read += os.pread(file.fileno(), size - len(read), len(read))
        os._exit(0 if read == content else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child read other bytes"
print(hashlib.sha256(content).hexdigest())
"""

READ = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"
