/* A write at a position that two threads share comes out short after the other has written behind it. The limit on the
 * size of files makes it short; it is lifted when the write is under way. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES (32 << 20)
#define ALLOWED (BYTES / 2)
static char zeros[BYTES];
static int fd;
static ssize_t written;

static void limit(rlim_t bytes)
{
    struct rlimit limits;
    getrlimit(RLIMIT_FSIZE, &limits);
    limits.rlim_cur = bytes < limits.rlim_max ? bytes : limits.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limits);
}

static void *write_all(void *unused)
{
    written = write(fd, zeros, BYTES);
    return unused;
}

int main(void)
{
    const char word[] = "acknowledged";
    const ssize_t length = sizeof word - 1;
    for (int round = 0; round < 50; round++) {
        fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
        limit(ALLOWED);
        pthread_t thread;
        pthread_create(&thread, NULL, write_all, NULL);
        while (lseek(fd, 0, SEEK_CUR) == 0) {
        }
        usleep(500);
        limit(RLIM_INFINITY);
        if (write(fd, word, length) != length)
            return 1;
        pthread_join(thread, NULL);
        off_t position = lseek(fd, 0, SEEK_CUR);
        char found[sizeof word] = "";
        if (pread(fd, found, length, BYTES) == length && memcmp(found, word, length) == 0 && written == ALLOWED) {
            printf("%lld\n", (long long)position - BYTES);
            return 0;
        }
        /* One was too early or too late; alone, a short write leaves the position behind what it wrote. */
        if (written == ALLOWED && position != ALLOWED + length)
            return 2;
        close(fd);
    }
    return 3;
}
