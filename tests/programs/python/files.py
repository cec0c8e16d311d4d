"""Python's own file objects, text and binary, os.* and shutil on managed files."""

import io
import os
import shutil
import tempfile


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


def attempt(what, function, *arguments, **keywords):
    try:
        show(what, function(*arguments, **keywords))
    except OSError as error:
        print(f"{what}: {type(error).__name__} {error.errno}", flush=True)


data = bytes((i * 7 + i // 256) % 256 for i in range(400_000))
with open("binary", "wb") as file:
    show("write", file.write(data))
    show("tell", file.tell())
with open("binary", "rb") as file:
    show("same", file.read() == data)
    show("seek", file.seek(-5, os.SEEK_END))
    show("last", file.read())
    show("again", file.read())
with open("binary", "r+b") as file:
    file.seek(131_070)
    file.write(b"across")
    file.seek(131_068)
    show("across", file.read(10))
    show("truncate", file.truncate(200_001))
    buffer = bytearray(50)
    file.seek(199_990)
    show("readinto", file.readinto(buffer))
with open("binary", "rb", buffering=0) as raw:
    show("raw", (raw.read(3), raw.tell(), raw.seek(100), raw.read(3)))
with open("text", "w", encoding="utf-8", newline="\n") as file:
    print("first line", 1, 2.5, "äöü €", sep="|", file=file)
    file.writelines(f"line {i}\n" for i in range(20_000))
with open("text", encoding="utf-8") as file:
    show("lines", sum(1 for _ in file))
with open("text", "a+", encoding="utf-8") as file:
    file.write("appended\n")
    file.seek(0)
    show("first", file.readline())
with open("text", encoding="utf-8") as file:
    show("last", file.readlines()[-1])
attempt("exclusive", open, "text", "x")
attempt("none", open, "none")
attempt("directory", open, ".", "w")

show("getsize", os.path.getsize("text"))
shutil.copy("binary", "copied")
shutil.copyfile("text", "copied text")
with open("binary", "rb") as source, open("by object", "wb") as target:
    shutil.copyfileobj(source, target, 1000)
os.replace("copied", "replaced")
attempt("remove", os.remove, "copied")
os.link("replaced", "hard")
show("links", os.stat("hard").st_nlink)
os.truncate("replaced", 10)
show("through the link", open("hard", "rb").read())
shutil.move("hard", "moved")
os.mkdir("tree")
shutil.copy2("text", "tree/text")
shutil.copytree("tree", "second tree")
show("tree", sorted(os.listdir("second tree")))
shutil.rmtree("tree")
with tempfile.NamedTemporaryFile(dir=".", delete=True) as file:
    file.write(b"temporary")
    file.flush()
    show("temporary", open(file.name, "rb").read())
with tempfile.TemporaryFile(dir=".") as file:
    file.write(data)
    file.seek(70_000)
    show("unnamed", file.read(10) == data[70_000:70_010])
with tempfile.SpooledTemporaryFile(max_size=10, dir=".") as file:
    file.write(b"rolls over to disk")
    file.seek(0)
    show("spooled", file.read())
with io.open("binary", "rb") as file, io.BufferedReader(io.FileIO("binary")) as other:
    show("two readers", file.read(9) == other.read(9))
names = sorted(os.scandir("."), key=lambda entry: entry.name)
show("entries", [(entry.name, entry.is_file(), entry.stat().st_size) for entry in names if entry.is_file()])
