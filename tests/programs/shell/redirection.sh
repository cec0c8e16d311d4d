# The shell's own redirections: descriptors that it opens, moves, duplicates and hands to children, and built-ins that
# write through libc's stdio from within the shell.
set -u
echo "first line" > out
echo "second line" >> out
printf '%s-%d\n' formatted 7 >> out
cat out
wc -c < out
cat < out > copy
{ echo "to out"; echo "to err" >&2; } > both 2>&1
cat both
ls none > listing 2>&1
echo "status $?"
ls > listing
cat listing
cat > here << HERE
a here document
of two lines, \$HOME not expanded
HERE
cat here
cat <<< "a here string" >> here
exec 3> third
echo "through 3" >&3
(echo "from a subshell" >&3)
bash -c 'echo "from a child shell" >&3'
exec 3>&-
echo "closed" >&3
cat third
exec 4<> both
read -r -u 4 line
echo "read: $line"
echo "OVER" >&4
exec 4>&-
cat both
exec 5< out 6<&5
read -r -u 5 one
read -r -u 6 two
echo "shared position: $one / $two"
exec 5<&- 6<&-
while read -r line; do echo "[$line]"; done < out
mapfile -t lines < out
echo "${#lines[@]} lines, last ${lines[-1]}"
set -o noclobber
echo "refused" > out
echo "status $?"
echo "forced" >| forced
set +o noclobber
: > out
cat out
for i in 1 2 3; do echo "loop $i"; done | tee teed | sort -r > sorted
cat teed sorted
echo "$(< teed)"
for i in $(seq 1 300); do echo "line $i" >> many; done
wc -l < many
(for i in $(seq 1 50); do echo "a$i"; done) >> parallel &
(for i in $(seq 1 50); do echo "b$i"; done) >> parallel &
wait
sort -o parallel parallel
cksum < parallel
test -s parallel && echo "not empty"
[ sorted -nt /proc/version ] || [ -f sorted ] && echo "a file"
echo "into a directory" > .
echo "status $?"
exec > stdout_moved
echo "the shell's stdout is a file"
date > /dev/null
env printf 'a program wrote this\n'
