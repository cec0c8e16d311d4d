/* Memory maps under MPI. UCX, which Debian's MPICH loads, and Open MPI's own patcher put a jump over the first bytes of
 * mmap, and make the call themselves: a managed file's map was one of its stub, and a shared one wrote there. A shared
 * writable map is refused under redirection (tagged). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES 300000
static unsigned char data[BYTES], back[BYTES];

static int is_loaded(const char *library)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, library) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

static int shows(const void *map, size_t offset, size_t bytes)
{
    return map != MAP_FAILED && memcmp(map, data + offset, bytes) == 0;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (argc > 1)
        verify(argv[1], is_loaded(argv[1]));
    for (int i = 0; i < BYTES; i++)
        data[i] = (unsigned char)value(i, rank);
    char name[20];
    snprintf(name, sizeof name, "file%d", rank);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    verify("written", write(fd, data, BYTES) == BYTES);

    void *map = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    verify("a private map", shows(map, 0, BYTES));
    verify("unmapped", munmap(map, BYTES) == 0);
    int reading = open(name, O_RDONLY);
    map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, reading, 0);
    verify("a shared map that reads", shows(map, 0, BYTES));
    close(reading);
    munmap(map, BYTES);
    map = (void *)syscall(SYS_mmap, NULL, 65536L, PROT_READ, MAP_PRIVATE, fd, 131072L);
    verify("a map by number", shows(map, 131072, 65536));
    munmap(map, 65536);
    unsigned char *fixed = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Memory that the library has seen in a message, and has perhaps registered, is mapped over. */
    memset(fixed, rank, BYTES);
    MPI_Bcast(fixed, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    map = mmap(fixed, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
    verify("a fixed map", map == fixed && shows(map, 0, BYTES));
    MPI_Sendrecv(fixed, BYTES, MPI_BYTE, (rank + 1) % ranks, 0, back, BYTES, MPI_BYTE, (rank + ranks - 1) % ranks, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int good = 1;
    for (int i = 0; i < BYTES; i++)
        good &= back[i] == (unsigned char)value(i, (rank + ranks - 1) % ranks);
    verify("the neighbour's map by a message", good);
    fixed[0] ^= 1;
    verify("a private map writes to itself alone", pread(fd, back, 1, 0) == 1 && back[0] == data[0]);
    munmap(fixed, BYTES);

    errno = 0;
    unsigned char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int refused = shared == MAP_FAILED ? errno : 0;
    say("~mmap_shared_write %s", refused ? strerrorname_np(refused) : "ok");
    if (refused) {
        verify("written by hand", pwrite(fd, "by the map", 10, 1000) == 10);
    } else {
        memcpy(shared + 1000, "by the map", 10);
        verify("written by hand", munmap(shared, BYTES) == 0);
    }
    memcpy(data + 1000, "by the map", 10);
    verify("whole", pread(fd, back, BYTES, 0) == BYTES && memcmp(back, data, BYTES) == 0);
    close(fd);
    return finish();
}
