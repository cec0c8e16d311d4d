# fio writes blocks that carry their own checksum and place, and reads all of them back, with the engine named in $1;
# then once more with plain preads; options for every run follow. What it prints holds speeds; its errors and its verdict are compared.
set -u
engine=$1
shift
options=("$@")

# run NAME ENGINE OPTION...: the messages are left in NAME.messages
run() {
    fio --name="$1" --filename="$1" --ioengine="$2" --size=4M --bs=16k --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --verify_state_save=0 --randseed=1 --allrandrepeat=1 --fallocate=none --eta=never --output-format=terse \
        "${options[@]}" "${@:3}" > "$1.messages" 2>&1
}
complaints() {
    grep -v '^3;' "$1.messages"
}

run first "$engine" --rw=randwrite
status=$?
case $engine in
    mmap)
        # This goes round the calls that can be redirected: being refused is an answer, other bytes are none.
        if [ $status = 0 ]; then
            result=ok
        elif grep -qi 'verify\|crc' first.messages; then
            complaints first
            echo "WRONG DATA by $engine"
        else
            grep -q 'No such device' first.messages && result=ENODEV
        fi
        echo "~fio_$engine ${result:-$(complaints first)}"
        if [ $status = 0 ] && ! run first psync --rw=randwrite --verify_only; then
            complaints first
            echo "WRONG DATA: psync reads something else than $engine wrote"
        fi
        ;;
    *)
        echo "random writes: $status"
        complaints first
        run first psync --rw=randwrite --verify_only
        echo "read by psync: $?"
        complaints first
        run second "$engine" --rw=write --bs=77k --size=3696k
        echo "sequential writes of odd size: $?"
        complaints second
        run third "$engine" --rw=randrw --bsrange=4k-128k --iodepth=8
        echo "reads and writes: $?"
        complaints third
        run fourth "$engine" --rw=randwrite --numjobs=3 --offset_increment=4M --fsync=16
        echo "three jobs: $?"
        complaints fourth
        stat -c '%n %s' first second third fourth
        ;;
esac
rm -f ./*.messages first second third fourth # the blocks hold times
echo done > done
