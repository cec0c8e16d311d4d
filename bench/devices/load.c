/* Processes that read or write one file, for the benchmark of slow devices: it knows nothing of Stripewise.
 *
 *   load zipf MODE FILE FILE_BYTES REQUEST_BYTES COUNT PROCESSES SEED   COUNT requests of each process; a region of 8 MiB is
 *                                                                      drawn by Zipf's law (0.8), then a place in it
 *   load zipf-for MODE FILE FILE_BYTES REQUEST_BYTES SECONDS PROCESSES SEED   the same for a time; a line for each second
 *   load sequential MODE FILE FILE_BYTES REQUEST_BYTES                  one process, from the begin of the file to its end
 *
 * Modes: read (direct), read-cached, write-direct, write-buffered (with an fsync of every process at its end), write-sync
 * (O_SYNC). The file is made of 4 KiB blocks that begin with their own offset: writes keep this, and reads compare it.
 *
 * Prints the seconds from the common start to the end of the last process. Lines of zipf-for: seconds since the start, then
 * the bytes of all processes so far. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096, REGION_BYTES = 8 << 20, MAX_PROCESSES = 1024 };
static const double EXPONENT = 0.8;

static const struct mode {
    const char *name;
    int flags, writes, syncs;
} MODES[] = {
    {"read", O_RDONLY | O_DIRECT, 0, 0},     {"read-cached", O_RDONLY, 0, 0},      {"write-direct", O_RDWR | O_DIRECT, 1, 0},
    {"write-buffered", O_RDWR, 1, 1},        {"write-sync", O_RDWR | O_SYNC, 1, 0}, {NULL, 0, 0, 0},
};

static struct {
    const struct mode *mode;
    const char *path;
    uint64_t file_bytes, request_bytes, count, seed;
    double seconds;
    int processes;
} job;

/* Of all processes. */
static struct shared {
    pthread_barrier_t start;
    int64_t end_ns[MAX_PROCESSES];
    uint64_t moved_bytes[MAX_PROCESSES];
} *shared;

static void demand(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* SplitMix64. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct popularity {
    uint64_t regions;
    double *until;     /* cumulated shares of the ranks */
    uint64_t *of_rank; /* the region of each rank, in an order of the seed's */
};

static struct popularity popularity(void)
{
    struct popularity made = {.regions = job.file_bytes / REGION_BYTES};
    made.until = calloc(made.regions, sizeof *made.until);
    made.of_rank = calloc(made.regions, sizeof *made.of_rank);
    demand(made.regions > 0 && made.until && made.of_rank, "a file of at least one region, and memory");
    uint64_t dice = job.seed;
    double sum = 0;
    for (uint64_t rank = 0; rank < made.regions; rank++) {
        sum += pow((double)(rank + 1), -EXPONENT);
        made.until[rank] = sum;
        uint64_t other = next(&dice) % (rank + 1);
        made.of_rank[rank] = made.of_rank[other];
        made.of_rank[other] = rank;
    }
    for (uint64_t rank = 0; rank < made.regions; rank++)
        made.until[rank] /= sum;
    return made;
}

static uint64_t draw_offset(const struct popularity *popular, uint64_t *dice)
{
    double at = (double)(next(dice) >> 11) / 9007199254740992.0;
    uint64_t rank = 0;
    while (rank + 1 < popular->regions && popular->until[rank] <= at)
        rank++;
    uint64_t places = REGION_BYTES / job.request_bytes;
    return popular->of_rank[rank] * REGION_BYTES + next(dice) % places * job.request_bytes;
}

static int open_file(char **buffer)
{
    int file = open(job.path, job.mode->flags);
    demand(file >= 0, job.path);
    demand(posix_memalign((void **)buffer, BLOCK_BYTES, job.request_bytes) == 0, "memory");
    memset(*buffer, 'x', job.request_bytes);
    return file;
}

static void move(int file, char *buffer, uint64_t offset)
{
    for (uint64_t at = 0; job.mode->writes && at < job.request_bytes; at += BLOCK_BYTES)
        *(uint64_t *)(buffer + at) = offset + at;
    ssize_t done = job.mode->writes ? pwrite(file, buffer, job.request_bytes, (off_t)offset)
                                    : pread(file, buffer, job.request_bytes, (off_t)offset);
    demand(done == (ssize_t)job.request_bytes, job.path);
    for (uint64_t at = 0; at < job.request_bytes; at += BLOCK_BYTES)
        if (*(uint64_t *)(buffer + at) != offset + at) {
            fprintf(stderr, "load: %s: WRONG BYTES at %llu: %llx\n", job.path, (unsigned long long)(offset + at),
                    *(unsigned long long *)(buffer + at));
            exit(3);
        }
}

static void zipf_process(int process)
{
    struct popularity popular = popularity();
    uint64_t dice = job.seed * 1000003 + (uint64_t)process;
    char *buffer;
    int file = open_file(&buffer);
    pthread_barrier_wait(&shared->start);
    int64_t until_ns = job.seconds > 0 ? now_ns() + (int64_t)(job.seconds * 1e9) : INT64_MAX;
    for (uint64_t i = 0; i < job.count && now_ns() < until_ns; i++) {
        move(file, buffer, draw_offset(&popular, &dice));
        __atomic_fetch_add(&shared->moved_bytes[process], job.request_bytes, __ATOMIC_RELAXED);
    }
    demand(!job.mode->syncs || fsync(file) == 0, "fsync");
    shared->end_ns[process] = now_ns();
    exit(0);
}

static void print_progress(int64_t start_ns)
{
    for (int second = 1; second <= (int)job.seconds; second++) {
        int64_t at = start_ns + second * 1000000000LL;
        struct timespec due = {at / 1000000000LL, at % 1000000000LL};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        uint64_t bytes = 0;
        for (int process = 0; process < job.processes; process++)
            bytes += __atomic_load_n(&shared->moved_bytes[process], __ATOMIC_RELAXED);
        printf("%.3f %llu\n", (double)(now_ns() - start_ns) / 1e9, (unsigned long long)bytes);
        fflush(stdout);
    }
}

static double zipf(void)
{
    demand(job.processes > 0 && job.processes <= MAX_PROCESSES && REGION_BYTES % job.request_bytes == 0, "arguments");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    demand(shared != MAP_FAILED, "shared memory");
    /* A process that failed before the barrier would leave the others there. */
    char *buffer;
    close(open_file(&buffer));
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->start, &attributes, (unsigned)job.processes + 1);
    for (int process = 0; process < job.processes; process++) {
        pid_t child = fork();
        demand(child >= 0, "fork");
        if (child == 0)
            zipf_process(process);
    }
    pthread_barrier_wait(&shared->start);
    int64_t start_ns = now_ns(), end_ns = start_ns;
    if (job.seconds > 0)
        print_progress(start_ns);
    for (int process = 0; process < job.processes; process++) {
        int status;
        demand(wait(&status) > 0, "wait");
        if (status != 0)
            exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    for (int process = 0; process < job.processes; process++)
        end_ns = shared->end_ns[process] > end_ns ? shared->end_ns[process] : end_ns;
    return (double)(end_ns - start_ns) / 1e9;
}

static double sequential(void)
{
    char *buffer;
    int file = open_file(&buffer);
    int64_t start_ns = now_ns();
    for (uint64_t offset = 0; offset + job.request_bytes <= job.file_bytes; offset += job.request_bytes)
        move(file, buffer, offset);
    demand(!job.mode->syncs || fsync(file) == 0, "fsync");
    return (double)(now_ns() - start_ns) / 1e9;
}

int main(int argc, char **argv)
{
    int is_zipf = argc == 9 && (!strcmp(argv[1], "zipf") || !strcmp(argv[1], "zipf-for"));
    if (!is_zipf && !(argc == 6 && !strcmp(argv[1], "sequential"))) {
        fprintf(stderr, "usage: as the begin of load.c says\n");
        return 2;
    }
    for (job.mode = MODES; job.mode->name && strcmp(job.mode->name, argv[2]); job.mode++)
        ;
    errno = EINVAL;
    demand(job.mode->name != NULL, argv[2]);
    job.path = argv[3];
    job.file_bytes = strtoull(argv[4], NULL, 10);
    job.request_bytes = strtoull(argv[5], NULL, 10);
    demand(job.request_bytes > 0 && job.request_bytes % BLOCK_BYTES == 0, argv[5]);
    if (is_zipf) {
        int by_time = !strcmp(argv[1], "zipf-for");
        job.count = by_time ? UINT64_MAX : strtoull(argv[6], NULL, 10);
        job.seconds = by_time ? atof(argv[6]) : 0;
        job.processes = atoi(argv[7]);
        job.seed = strtoull(argv[8], NULL, 10);
    }
    printf("%.6f\n", is_zipf ? zipf() : sequential());
    return 0;
}
