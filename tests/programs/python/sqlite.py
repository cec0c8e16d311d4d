"""SQLite in rollback-journal mode from several processes: record locks, truncation and fsync decide whether it works."""

import os
import sqlite3


def connect():
    connection = sqlite3.connect("data.db", timeout=30, isolation_level=None)
    connection.execute("pragma mmap_size = 268435456")
    return connection


def work(worker):
    connection = connect()
    for i in range(25):
        connection.execute("begin immediate")
        (total,) = connection.execute("select value from counter").fetchone()
        connection.execute("update counter set value = ?", (total + 1,))
        connection.execute("insert into entries values (?, ?, ?)", (worker, i, "x" * 500))
        connection.execute("commit")
    connection.close()


connection = connect()
for mode in ("delete", "truncate", "persist"):
    print("journal", connection.execute(f"pragma journal_mode = {mode}").fetchone()[0])
connection.execute("pragma journal_mode = delete")
connection.execute("create table counter (value integer)")
connection.execute("create table entries (worker integer, number integer, text text)")
connection.execute("insert into counter values (0)")
connection.close()
children = []
for worker in range(3):
    pid = os.fork()
    if pid == 0:
        work(worker)
        os._exit(0)
    children.append(pid)
print("children", [os.waitpid(pid, 0)[1] for pid in children])
connection = connect()
print("counter", connection.execute("select value from counter").fetchone())
print("entries", connection.execute("select worker, count(*), sum(number) from entries group by worker").fetchall())
print("integrity", connection.execute("pragma integrity_check").fetchone())
connection.execute("begin")
connection.execute("delete from entries")
connection.execute("rollback")
print("after the rollback", connection.execute("select count(*) from entries").fetchone())
# The order of the rows is the scheduler's: leave a database whose bytes are not.
rows = connection.execute("select * from entries order by worker, number").fetchall()
connection.close()
os.remove("data.db")
connection = connect()
connection.execute("create table entries (worker integer, number integer, text text)")
connection.execute("begin")
connection.executemany("insert into entries values (?, ?, ?)", rows)
connection.execute("commit")
connection.execute("vacuum")
connection.close()
