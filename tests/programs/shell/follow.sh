# tail follows a file that another program writes.
set -u
: > log
: > seen
(
    i=0
    while [ $i -lt 20 ]; do
        i=$((i + 1))
        echo "line $i" >> log
        # Until it was seen, or for 30 s: what tail does not show is missing below.
        tries=0
        while ! grep -q "^line $i\$" seen && [ $tries -lt 300 ]; do
            tries=$((tries + 1))
            sleep 0.1
        done
        [ $tries -lt 300 ] || break
    done
    echo end >> log
) &
writer=$!
timeout 60 tail --pid=$writer -s 0.1 -n +1 -f log > seen 2> /dev/null
wait $writer
cat seen
rm seen
