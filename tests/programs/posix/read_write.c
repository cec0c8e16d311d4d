/* read, write and their positioned and vectored relations, over several stripes, at odd offsets and past the end. */
#include "transcript.h"
#include <sys/mman.h>

#define BYTES (3u << 20)
static char big[BYTES], back[BYTES + 100];

int main(void)
{
    fill(big, BYTES, 1);
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, big, BYTES));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(pread(fd, back, BYTES, 0));
    say("same: %d", memcmp(big, back, BYTES) == 0);
    static const off_t places[] = {0, 1, 4095, 65535, 65536, 131071, 1048575, 3145727, 3145728, 3145729, 9999999};
    static const size_t sizes[] = {0, 1, 17, 4096, 65537, 300001};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            memset(back, 0x5a, sizes[s]);
            ssize_t n = pread(fd, back, sizes[s], places[p]);
            say("pread %zu at %lld = %zd same %d", sizes[s], (long long)places[p], n,
                n <= 0 || memcmp(back, big + places[p], (size_t)n) == 0);
        }
    CALL(lseek(fd, 65530, SEEK_SET));
    CALL(read(fd, back, 12));
    show("across", back, 12);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(pwrite(fd, "pwrite", 6, 65533));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(pwrite(fd, "beyond", 6, BYTES + 1000));
    CALL(lseek(fd, 0, SEEK_END));
    CALL(read(fd, back, 1));
    CALL(pread(fd, back, 2000, BYTES));
    show("hole and tail", back, 1006);
    CALL(pread(fd, back, 1, -1));
    CALL(pwrite(fd, back, 1, -1));
    CALL(pread(fd, back, 1, INT64_MAX));
    CALL(pwrite(fd, back, 1, INT64_MAX));
    CALL(lseek(fd, -1, SEEK_SET));
    CALL(lseek(fd, 0, 99));

    char one[3], two[70000], three[5];
    struct iovec parts[] = {{one, 3}, {two, sizeof two}, {NULL, 0}, {three, 5}};
    CALL(lseek(fd, 100, SEEK_SET));
    CALL(readv(fd, parts, 4));
    show("one", one, 3);
    show("two", two, sizeof two);
    show("three", three, 5);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(preadv(fd, parts, 4, 3145700));
    CALL(preadv2(fd, parts, 2, 131000, 0));
    show("two", two, sizeof two);
    CALL(preadv2(fd, parts, 1, -1, 0));
    CALL(lseek(fd, 0, SEEK_CUR));
    fill(two, sizeof two, 2);
    CALL(writev(fd, parts, 4));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(pwritev(fd, parts, 4, 2000000));
    CALL(pwritev2(fd, parts, 4, 2500001, RWF_SYNC));
    CALL(pwritev2(fd, parts, 1, -1, 0));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(pwritev2(fd, parts, 1, 0, RWF_APPEND));
    volatile int negative = -1;
    CALL(readv(fd, parts, negative));
    CALL(readv(fd, parts, 0));
    CALL(write(fd, "", 0));
    CALL(read(-1, back, 1));
    CALL(pwrite(77, back, 1, 0));
    CALL(fsync(fd));
    CALL(fdatasync(fd));
    CALL(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
    CALL(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    CALL(syncfs(fd));
    sync();
    /* Memory that is not there. */
    void *volatile nowhere = NULL;
    char *guarded = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(guarded + 4096, 4096, PROT_NONE);
    CALL(pread(fd, nowhere, 10, 0));
    CALL(pread(fd, nowhere, 10, 100000000));
    CALL(pwrite(fd, nowhere, 10, 0));
    CALL(pread(fd, guarded + 4096, 10, 0));
    CALL(pwrite(fd, guarded + 4096, 10, 0));
    struct iovec halfway[2] = {{guarded, 100}, {NULL, 10}};
    CALL(preadv(fd, halfway, 2, 0));
    CALL(pwritev(fd, halfway, 2, 0));
    show_file("f");
    CALL(close(fd));
    CALL(fsync(fd));
    return 0;
}
