# tar, gzip, cpio-like streams, compressed and not, in and out of managed files.
set -u
mkdir in
seq 1 60000 > in/numbers
head -c 70001 in/numbers > in/part
touch -d '2001-02-03 04:05:06 UTC' in in/*
tar --sort=name --owner=0 --group=0 --numeric-owner -cf a.tar in
tar -tf a.tar
mkdir out
tar -xf a.tar -C out
diff -r in out/in && echo "same"
tar --owner=0 --group=0 --numeric-owner -rf a.tar -C in part
tar -tf a.tar | tail -n 1
tar -df a.tar in/numbers && echo "no difference"
tar --delete -f a.tar part
tar -tf a.tar | wc -l
tar -xOf a.tar in/part | cmp - in/part && echo "to stdout"
gzip -n -k in/numbers
gzip -t in/numbers.gz && zcat in/numbers.gz | cksum
gunzip -f in/numbers.gz
cksum in/numbers
bzip2 -k in/part 2>/dev/null || true
rm -f in/part.bz2
tar -cSf sparse.tar --owner=0 --group=0 --mtime='2001-02-03 UTC' in/part
tar -tf sparse.tar
ar rcD lib.a in/part in/numbers 2>/dev/null && ar t lib.a
touch -d '2001-02-03 04:05:06 UTC' out
