/* mmap: private and read-only maps show the file; a shared writable one is refused under redirection (tagged). */
#include "transcript.h"
#include <sys/mman.h>

#define BYTES 300000
static char data[BYTES];

static void read_map(const char *tag, int fd, int flags)
{
    void *map = mmap(NULL, BYTES, PROT_READ, flags, fd, 0);
    if (tagged_after(tag, map == MAP_FAILED ? -1 : 0) == 0) {
        if (memcmp(map, data, BYTES) != 0)
            say("WRONG DATA in the map");
        if (munmap(map, BYTES) != 0)
            say("munmap: %s", errno_name(errno));
    }
}

int main(void)
{
    fill(data, BYTES, 5);
    int fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, data, BYTES));
    int reader = (int)CALL(open("f", O_RDONLY));
    read_map("mmap_shared_read", reader, MAP_SHARED);
    read_map("mmap_private_read", reader, MAP_PRIVATE);
    char *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
    if (tagged_after("mmap_private_write", map == MAP_FAILED ? -1 : 0) == 0) {
        map[100] ^= 1;
        if (memcmp(map + 101, data + 101, BYTES - 101) != 0)
            say("WRONG DATA in the map");
        munmap(map, BYTES);
    }
    map = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE, reader, 131072);
    if (tagged_after("mmap_private_read", map == MAP_FAILED ? -1 : 0) == 0) {
        if (memcmp(map, data + 131072, 65536) != 0)
            say("WRONG DATA at an offset of the map");
        CALL(close(reader)); /* the map outlives its descriptor */
        if (memcmp(map, data + 131072, 65536) != 0)
            say("WRONG DATA after the close");
        munmap(map, 65536);
    } else {
        CALL(close(reader));
    }
    /* A map that grows shows what follows in the file, or does not grow. */
    static const char *const GROWN[] = {"mremap_private", "mremap_shared"};
    reader = (int)CALL(open("f", O_RDONLY));
    for (int shared = 0; shared < 2; shared++) {
        map = mmap(NULL, 65536, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, reader, 0);
        char *grown = mremap(map, 65536, 262144, MREMAP_MAYMOVE);
        if (tagged_after(GROWN[shared], grown == MAP_FAILED ? -1 : 0) != 0) {
            if (memcmp(map, data, 65536) != 0)
                say("WRONG DATA in the map that did not grow");
            munmap(map, 65536);
            grown = mmap(NULL, 262144, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, reader, 0);
        }
        if (memcmp(grown, data, 262144) != 0)
            say("WRONG DATA in the grown map");
        grown = mremap(grown, 262144, 4096, 0);
        CALL(grown != MAP_FAILED && memcmp(grown, data, 4096) == 0);
        munmap(grown, 4096);
    }
    CALL(close(reader));
    /* Who may write expects to see in a shared map what is written by calls. */
    map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    bool is_mapped = tagged_after("mmap_shared_by_writer", map == MAP_FAILED ? -1 : 0) == 0;
    CALL(pwrite(fd, "seen there", 10, 2000));
    memcpy(data + 2000, "seen there", 10);
    if (is_mapped) {
        if (memcmp(map, data, BYTES) != 0)
            say("WRONG DATA in the map after a write");
        munmap(map, BYTES);
    }
    /* The last byte of the file and zeros after it in the same page. */
    map = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    if (tagged_after("mmap_private_read", map == MAP_FAILED ? -1 : 0) == 0) {
        if (map[BYTES - 1] != data[BYTES - 1] || map[BYTES] != 0)
            say("WRONG DATA at the end of the map");
        munmap(map, BYTES);
    }
    map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (tagged_after("mmap_shared_write", map == MAP_FAILED ? -1 : 0) == 0) {
        memcpy(map + 1000, "by the map", 10);
        CALL(msync(map, BYTES, MS_SYNC));
        munmap(map, BYTES);
    } else {
        /* What a careful program does when it may not map. */
        if (pwrite(fd, "by the map", 10, 1000) != 10)
            return 1;
        say("msync(map, BYTES, MS_SYNC) = 0");
    }
    CALL(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
    say("%s", errno_name(errno));
    CALL(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 17) == MAP_FAILED);
    say("%s", errno_name(errno));
    CALL(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED);
    say("%s", errno_name(errno));
    int writer = (int)CALL(open("f", O_WRONLY));
    CALL(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, writer, 0) == MAP_FAILED);
    say("%s", errno_name(errno));
    show_file("f");
    return 0;
}
