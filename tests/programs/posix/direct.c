/* O_DIRECT with aligned buffers, switched on at open and later, beside buffered descriptors of the same file. */
#include "transcript.h"

#define BYTES (1 << 20)
#ifndef STATX_WRITE_ATOMIC
#define STATX_WRITE_ATOMIC 0x00010000U
#endif
#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x00000040
#endif

/* XFS offers writes that no crash tears. The stub's offer was once passed on for the data, whose writes go to several servers. */
static void show_whole_writes(int fd, const char *page)
{
    struct statx found;
    memset(&found, 0, sizeof found);
    CALL(statx(fd, "", AT_EMPTY_PATH, STATX_WRITE_ATOMIC | STATX_SIZE, &found));
    /* The shortest such write, which not every C library's structure has a name for yet. */
    uint32_t shortest;
    memcpy(&shortest, (char *)&found + 0xa8, sizeof shortest);
    int is_offered = found.stx_mask & STATX_WRITE_ATOMIC && shortest > 0 && shortest <= 4096;
    struct iovec part = {(void *)page, 4096};
    int is_done = is_offered && pwritev2(fd, &part, 1, 4096, RWF_ATOMIC) == 4096;
    if (!is_done)
        (void)!pwrite(fd, page, 4096, 4096);
    say("untorn writes are taken where they are offered: %d", is_offered == is_done);
}

int main(void)
{
    char *out, *in;
    if (posix_memalign((void **)&out, 4096, BYTES) || posix_memalign((void **)&in, 4096, BYTES))
        return 1;
    fill(out, BYTES, 7);
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
    if (fd < 0 && errno == EINVAL) {
        say("SKIP: no O_DIRECT on this file system");
        return 0;
    }
    CALL(pwrite(fd, out, BYTES, 0));
    CALL(pread(fd, in, BYTES, 0));
    say("same %d", memcmp(in, out, BYTES) == 0);
    CALL(pread(fd, in, 65536, BYTES - 4096));
    int buffered = (int)CALL(open("f", O_RDWR));
    CALL(pread(buffered, in, 777, 65530));
    say("same %d", memcmp(in, out + 65530, 777) == 0);
    CALL(pwrite(buffered, "buffered", 8, 65530));
    CALL(pread(fd, in, 131072, 0));
    show("mixed", in, 131072);
    CALL(fcntl(buffered, F_SETFL, O_DIRECT));
    CALL((fcntl(buffered, F_GETFL) & O_DIRECT) != 0);
    CALL(pwrite(buffered, out, 4096, 8192));
    CALL(lseek(fd, 4096, SEEK_SET));
    CALL(read(fd, in, 8192));
    show("second page on", in, 8192);
    CALL(write(fd, out, 4096));
    show_file("f");
    show_whole_writes(fd, out);
    return 0;
}
