/* O_DIRECT with aligned buffers, switched on at open and later, beside buffered descriptors of the same file. */
#include "transcript.h"

#define BYTES (1 << 20)

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
    return 0;
}
