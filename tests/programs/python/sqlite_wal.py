"""SQLite with a write-ahead log: several processes share memory through NAME-shm, which stays an ordinary file; and the modes that need none."""

import os
import signal
import sqlite3
import subprocess
import sys


def connect(name):
    connection = sqlite3.connect(name, timeout=30, isolation_level=None)
    connection.execute("pragma mmap_size = 268435456")
    return connection


def fill(connection):
    connection.execute("create table entries (number integer, text text)")
    connection.execute("begin")
    connection.executemany("insert into entries values (?, ?)", [(i, "x" * 300) for i in range(500)])
    connection.execute("commit")
    tell(connection)


def tell(connection):
    print("entries", connection.execute("select count(*), sum(number) from entries").fetchone())
    print("integrity", connection.execute("pragma integrity_check").fetchone())


def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


def append(name, worker):
    connection = connect(name)
    for i in range(20):
        connection.execute("begin immediate")
        connection.execute("insert into entries values (?, 'y')", (1000 * worker + i,))
        connection.execute("commit")
    connection.close()


# Writers and a reader of one database, each a process of its own.
connection = connect("shared.db")
print(connection.execute("pragma journal_mode = wal").fetchone())
fill(connection)
children = [child(lambda worker=worker: append("shared.db", worker)) for worker in (1, 2, 3)]
print("children", [os.waitpid(pid, 0)[1] for pid in children])
tell(connection)
print("beside it", sorted(name for name in os.listdir(".") if name.startswith("shared")))

# A writer that is killed leaves its log; the next process reads it.
def die():
    connection = connect("shared.db")
    connection.execute("insert into entries values (5000, 'z')")
    os.kill(os.getpid(), signal.SIGKILL)


print("killed", os.waitpid(child(die), 0)[1])
connection.close()
connection = connect("shared.db")
tell(connection)
print(connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0])
print(connection.execute("pragma journal_mode = delete").fetchone())
connection.close()

# A rollback journal, in each of its ways.
for mode in ("delete", "truncate", "persist"):
    connection = connect(f"{mode}.db")
    print(connection.execute(f"pragma journal_mode = {mode}").fetchone())
    fill(connection)
    connection.close()

# A log without shared memory: one process alone.
connection = connect("exclusive.db")
print(connection.execute("pragma locking_mode = exclusive").fetchone())
print(connection.execute("pragma journal_mode = wal").fetchone())
fill(connection)
print("no shared memory", not os.path.exists("exclusive.db-shm"))
look = "import sqlite3; sqlite3.connect('exclusive.db', timeout=0).execute('select * from entries')"
other = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
print(other.stderr.strip().splitlines()[-1])
print(connection.execute("pragma journal_mode = delete").fetchone())
connection.close()
print(sorted(os.listdir(".")))
for name in ("shared.db", "persist.db-journal"):  # the scheduler's order of rows; a random number
    os.remove(name)
