# Filters that read and write files in place or by halves.
set -u
for i in $(seq 1 3000); do echo "$i $((i * 7919 % 3001)) word$((i % 17))"; done > table
sort -k2,2n table > by_number
sort -k2,2n -o table table
cmp table by_number && echo "sorted in place"
sort -S 64k -T . -k3,3 -k1,1n table > by_word
uniq -c -f 2 by_word > counts
sed -n 5,7p table
sed -i 's/word1 /WORD /' table
sed -i.bak '2,$d' counts
cat counts
sed 's/$/!/' table > marked
grep -c word3 table
grep -n 'word16$' table | tail -n 1
awk '{ sum += $2; print $1 > ("by_" $3) } END { print sum }' table
ls by_word* | wc -l
cut -d' ' -f2 table | paste -s -d+ | head -c 40
echo
tr a-z A-Z < table > upper
join <(sort by_word1) <(sort by_word1) | wc -l
comm -12 <(sort table) <(sort marked) | wc -l
nl table | tail -n 1
fold -w 10 table > folded
expand table | unexpand -a > spaces
fmt -w 60 table > formatted
csplit -s -n 3 -f cut. table 1000 2000
wc cut.*
tsort <<< "a b b c"
base64 table > coded
base64 -d coded | cmp - table && echo "decoded"
xargs -n 3 -a by_word2 echo | head -n 2
split -l 700 --filter='cat > $FILE.filtered' table part.
wc -l part.*.filtered
perl -e 'print "perl\n"' > by_perl
perl -i -pe 's/perl/changed by perl/' by_perl
cat by_perl
