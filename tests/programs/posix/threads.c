/* Threads that share one descriptor: positioned I/O side by side, and plain write and read, of which each takes its
 * own piece of the shared position. */
#include "transcript.h"
#include <pthread.h>

#define THREADS 8
#define ROUNDS 200
#define PIECE 4093
static int fd;

static void *positioned(void *argument)
{
    unsigned self = (unsigned)(uintptr_t)argument;
    static __thread char out[PIECE], in[PIECE];
    uintptr_t wrong = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        off_t place = ((off_t)round * THREADS + self) * PIECE;
        fill(out, PIECE, round * THREADS + self);
        wrong += pwrite(fd, out, PIECE, place) != PIECE;
        wrong += pread(fd, in, PIECE, place) != PIECE || memcmp(in, out, PIECE) != 0;
    }
    return (void *)wrong;
}

static void *sequential_writer(void *argument)
{
    char record[64];
    uintptr_t wrong = 0;
    memset(record, 'a' + (int)(uintptr_t)argument, sizeof record);
    for (int i = 0; i < ROUNDS; i++)
        wrong += write(fd, record, sizeof record) != sizeof record;
    return (void *)wrong;
}

static int counts[256];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static void *sequential_reader(void *argument)
{
    char record[64];
    (void)argument;
    while (read(fd, record, sizeof record) == sizeof record) {
        char first = record[0];
        for (size_t i = 0; i < sizeof record; i++)
            if (record[i] != first)
                first = 0;
        pthread_mutex_lock(&guard);
        counts[(unsigned char)first]++;
        pthread_mutex_unlock(&guard);
    }
    return NULL;
}

/* Opens, uses and closes files of its own all the time, beside the others. */
static void *churn(void *argument)
{
    char name[32], text[32];
    uintptr_t wrong = 0;
    snprintf(name, sizeof name, "churn-%u", (unsigned)(uintptr_t)argument);
    for (int i = 0; i < 50; i++) {
        int own = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        wrong += own < 0 || write(own, name, strlen(name)) != (ssize_t)strlen(name);
        wrong += pread(own, text, sizeof text, 0) != (ssize_t)strlen(name) || close(own) != 0;
    }
    return (void *)wrong;
}

static void run(const char *what, void *(*job)(void *))
{
    pthread_t threads[THREADS];
    uintptr_t wrong = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, job, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    say("%s: %zu wrong", what, (size_t)wrong);
}

int main(void)
{
    fd = (int)CALL(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    run("positioned", positioned);
    show_file("f");
    run("churn", churn);
    fd = (int)CALL(open("records", O_RDWR | O_CREAT | O_TRUNC, 0644));
    run("sequential write", sequential_writer);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, 0, SEEK_SET));
    run("sequential read", sequential_reader);
    say("torn records %d", counts[0]);
    for (int i = 0; i < THREADS; i++)
        say("records of %c: %d", 'a' + i, counts['a' + i]);
    CALL(ftruncate(fd, 0)); /* the order is the scheduler's */
    return 0;
}
