"""zip, tar, gzip, csv, json, pickle, shelve: libraries that seek, patch headers and reopen."""

import csv
import dbm.dumb
import gzip
import json
import pickle
import tarfile
import zipfile

STAMP = (2001, 2, 3, 4, 5, 6)
payload = {f"member{i}": bytes((i * j) % 256 for j in range(20_000 + i)) for i in range(12)}

with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for name, data in payload.items():
        archive.writestr(zipfile.ZipInfo(name, STAMP), data)
with zipfile.ZipFile("a.zip", "a") as archive:
    archive.writestr(zipfile.ZipInfo("late", STAMP), b"added later")
with zipfile.ZipFile("a.zip") as archive:
    print("zip", archive.testzip(), all(archive.read(name) == data for name, data in payload.items()))
    archive.extract("member3", "out")

with open("member", "wb") as file:
    file.write(payload["member5"])


def anonymous(info):
    info.mtime, info.uid, info.gid, info.uname, info.gname = 1, 0, 0, "", ""
    return info


for mode in ("w", "a"):
    with tarfile.open("a.tar", mode) as archive:
        archive.add("member", f"in-{mode}", filter=anonymous)
with tarfile.open("a.tar") as archive:
    print("tar", archive.getnames(), archive.extractfile("in-a").read() == payload["member5"])

with gzip.GzipFile("a.gz", "wb", mtime=0) as file:
    for data in payload.values():
        file.write(data)
with gzip.open("a.gz") as file:
    file.seek(100_000)
    print("gzip", file.read(10))

with open("a.csv", "w", newline="") as file:
    csv.writer(file).writerows([i, i * i, f"text {i}"] for i in range(5000))
with open("a.csv", newline="") as file:
    print("csv", sum(int(row[1]) for row in csv.reader(file)))
with open("a.json", "w") as file:
    json.dump({name: list(data[:50]) for name, data in payload.items()}, file)
with open("a.json") as file:
    print("json", len(json.load(file)))
with open("a.pickle", "wb") as file:
    pickle.dump(payload, file)
with open("a.pickle", "rb") as file:
    print("pickle", pickle.load(file) == payload)
with dbm.dumb.open("a", "c") as database:
    for name, data in payload.items():
        database[name] = data
with dbm.dumb.open("a") as database:
    print("dbm", all(database[name] == data for name, data in payload.items()))
