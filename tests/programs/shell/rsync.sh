# rsync writes a temporary file, sets times and modes, and renames it over the old one.
set -u
mkdir source
seq 1 100000 > source/numbers
seq 5 7 > source/small
touch -d '2001-02-03 04:05:06 UTC' source/*
rsync -a source/ target/
cmp source/numbers target/numbers && echo "same"
echo "changed" >> source/small
touch -d '2002-02-03 04:05:06 UTC' source/small
rsync -a --itemize-changes source/ target/
sed -i 's/^5000$/five thousand/' source/numbers
touch -d '2003-02-03 04:05:06 UTC' source/numbers
rsync -a --no-whole-file --inplace source/ target/
rsync -a --checksum --dry-run --itemize-changes source/ target/
rsync -a --append-verify source/ target/
rm source/small
rsync -a --delete source/ target/
ls target
cmp source/numbers target/numbers && echo "same"
touch -d '2004-02-03 04:05:06 UTC' source target
