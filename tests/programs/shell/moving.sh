# mv, ln, rm, chmod, touch, stat, find: names and attributes.
set -u
echo "content of a" > a
echo "content of b" > b
mv a b
cat b
ls a
mkdir d
mv b d/
cat d/b
ln d/b hard
ln -s d/b soft
cat hard soft
stat -c '%h %s' hard
echo "by the soft link" > soft
cat hard
mv hard elsewhere
rm d/b
cat elsewhere
cat soft
rm elsewhere
echo "another" > other
chmod 600 other
stat -c '%a %s %F' other
chmod u=rw,go=r other
stat -c '%A' other
touch -d '2001-02-03 04:05:06 UTC' other
stat -c '%Y' other
cat other > /dev/null
stat -c '%Y' other
touch fresh
test -e fresh -a ! -s fresh && echo "fresh and empty"
cp -p other timed
stat -c '%Y %a' timed
touch -r timed fresh
mv -n other timed
ls other timed
cp -l timed third
cp -b --suffix=.old other timed
ls
find . -type f -size +0 -printf '%P %s %m\n' | sort
find . -newer timed -name 'nothing'
rm -i third < /dev/null
rm -r d
mv timed 'with space'
cat 'with space'
install -d deep/er/est
mv 'with space' deep/er/est/
find . -name 'with*' -exec cat {} \;
rmdir deep
echo "status $?"
unlink fresh
realpath --relative-to=. deep/er
echo data > deep/file
mv deep renamed
cat renamed/file
