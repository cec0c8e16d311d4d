/* ftruncate, truncate, fallocate and its kin; holes; SEEK_DATA and SEEK_HOLE, of which only what POSIX promises is
 * printed, for file systems may report any granularity. */
#include "transcript.h"

static void size_of(int fd)
{
    struct stat status;
    fstat(fd, &status);
    say("size %lld", (long long)status.st_size);
}

static void seek_promises(int fd, off_t data_begin, off_t data_end, off_t size)
{
    off_t data = lseek(fd, 0, SEEK_DATA);
    say("first data not after the data: %d", data >= 0 && data <= data_begin);
    off_t hole = lseek(fd, data_begin, SEEK_HOLE);
    say("hole after the data, at most at the end: %d", hole >= data_end && hole <= size);
    CALL(lseek(fd, size, SEEK_DATA));
    CALL(lseek(fd, size, SEEK_HOLE));
    CALL(lseek(fd, size + 1, SEEK_HOLE));
    CALL(lseek(fd, -5, SEEK_DATA));
}

int main(void)
{
    static char buffer[200000];
    fill(buffer, sizeof buffer, 3);
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(ftruncate(fd, 1 << 20));
    size_of(fd);
    CALL(pwrite(fd, buffer, 100000, 300000));
    seek_promises(fd, 300000, 400000, 1 << 20);
    show_file("f");
    CALL(ftruncate(fd, 350001));
    CALL(ftruncate(fd, 500000));
    show_file("f");
    CALL(truncate("f", 123456));
    size_of(fd);
    CALL(truncate("f", 400000));
    show_file("f");
    CALL(truncate("f", -1));
    CALL(ftruncate(fd, -1));
    CALL(truncate("none", 1));
    CALL(truncate(".", 1));
    CALL(ftruncate(99, 1));
    CALL(lseek(fd, 1000000, SEEK_SET));
    CALL(write(fd, "end", 3));
    size_of(fd);
    CALL(ftruncate(fd, 0));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(write(fd, "tail", 4));
    show_file("f");

    CALL(ftruncate(fd, 0));
    CALL(pwrite(fd, buffer, sizeof buffer, 0));
    int error = posix_fallocate(fd, 0, 300000);
    say("posix_fallocate %s", error ? errno_name(error) : "ok");
    size_of(fd);
    error = posix_fallocate(fd, 0, 0);
    say("posix_fallocate of nothing %s", errno_name(error));
    error = posix_fallocate(99, 0, 10);
    say("posix_fallocate of no file %s", errno_name(error));
    TAGGED("fallocate_keep_size", fallocate(fd, FALLOC_FL_KEEP_SIZE, 300000, 500000));
    size_of(fd);
    if (TAGGED("fallocate_punch_hole", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536)) != 0) {
        static const char zeros[65536];
        if (pwrite(fd, zeros, sizeof zeros, 65536) != sizeof zeros)
            return 1;
    }
    if (TAGGED("fallocate_zero_range", fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 190000, 5000)) != 0) {
        static const char zeros[5000];
        if (pwrite(fd, zeros, sizeof zeros, 190000) != sizeof zeros)
            return 1;
    }
    size_of(fd);
    TAGGED("fallocate_collapse", fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 100, 100));
    TAGGED("fallocate_plain", fallocate(fd, 0, 0, 310000));
    if (ftruncate(fd, 310000) != 0)
        return 1;
    CALL(fallocate(fd, 0, -1, 5));
    CALL(fallocate(fd, 0, 0, 0));
    show_file("f");

    int reader = (int)CALL(open("f", O_RDONLY));
    CALL(fallocate(reader, 0, 0, 5));
    CALL(ftruncate(reader, 5));
    CALL(lseek(reader, 0, SEEK_END));
    CALL(lseek(reader, -400000, SEEK_CUR));
    CALL(lseek(reader, 10, SEEK_CUR));
    return 0;
}
