# cp, dd, cat, cmp, install, split, head, tail, truncate, shred-like overwrites; sums of everything.
set -u
seq 1 200000 > numbers
cp numbers copy
cmp numbers copy && echo "same"
cp --reflink=auto --sparse=always numbers sparse
cp -p numbers kept
cp --preserve=mode,links numbers linked
dd if=numbers of=by_dd bs=64k status=none
dd if=numbers of=by_odd bs=12345 status=none
dd if=numbers of=part bs=1 skip=1000 count=5000 status=none
dd if=part of=copy bs=100 seek=50 conv=notrunc status=none
dd if=part of=holes bs=1000 seek=700 status=none
dd if=numbers of=synced bs=1M conv=fsync status=none
dd if=numbers of=appended oflag=append conv=notrunc bs=100k status=none
dd if=part of=appended oflag=append conv=notrunc status=none
dd if=numbers bs=4096 skip=10 count=3 iflag=fullblock status=none | cksum
cmp numbers copy
cmp -n 5000 numbers copy
cmp --ignore-initial=10 numbers by_dd && echo "same after 10"
cat numbers part > joined
cat part - < numbers | cksum
cat joined >> part
split -b 300000 numbers piece.
cat piece.* | cmp - numbers && echo "pieces make the whole"
split -n 3 numbers third.
head -c 100001 numbers > head
tail -c 100001 numbers > tail
tail -n 3 numbers
head -n -199998 numbers
truncate -s 5000 head
truncate -s +1000 head
truncate -s 2M tail
truncate -r part new
install -m 640 numbers installed
stat -c '%n %s %a' installed head tail new
cp numbers numbers
echo "status $?"
cp none there
cp -r . ../"${PWD##*/}"/none/x 2>/dev/null
echo "status $?"
mkdir d
cp numbers part d
diff numbers d/numbers && echo "no difference"
diff -q numbers part
tac part | head -n 2
rev head | tail -c 5 | od -c | head -n 1
shuf -n 0 numbers
od -A d -t x1 -j 131060 -N 24 numbers
sha256sum numbers part head tail by_dd by_odd holes appended > sums
sha256sum -c sums
md5sum < joined
cksum sparse synced
du -b --apparent-size numbers
