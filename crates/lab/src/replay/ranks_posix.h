/* Ranks that are plain processes: how they wait for each other and do their I/O. Part of replay_io.c. */

/* Shared by the processes: a barrier that sleeps, and room for reductions. */
struct meeting {
    int arrived, round;
    int64_t values[]; /* of each rank in turn */
};
static struct meeting *meeting;
#define REDUCED_AT_ONCE 4096

static void leave(int status)
{
    _exit(status);
}

static void barrier(void)
{
    struct timespec interval = {.tv_nsec = POLL_SHORTEST_NS};
    int round = __atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL) == ranks) {
        __atomic_store_n(&meeting->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&meeting->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    while (__atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE) == round) {
        nanosleep(&interval, NULL);
        if (interval.tv_nsec < POLL_LONGEST_NS)
            interval.tv_nsec *= 2;
    }
}

static void reduce_some(int64_t *values, int count, enum operation operation)
{
    memcpy(meeting->values + (size_t)rank * REDUCED_AT_ONCE, values, (size_t)count * sizeof *values);
    barrier();
    for (int other = 0; other < ranks; other++) {
        const int64_t *theirs = meeting->values + (size_t)other * REDUCED_AT_ONCE;
        for (int i = 0; other != rank && i < count; i++) {
            if (operation == SUM)
                values[i] += theirs[i];
            else if (operation == MAX ? theirs[i] > values[i] : theirs[i] < values[i])
                values[i] = theirs[i];
        }
    }
    barrier();
}

static void reduce(int64_t *values, int count, enum operation operation)
{
    for (int done = 0; done < count; done += REDUCED_AT_ONCE)
        reduce_some(values + done, count - done < REDUCED_AT_ONCE ? count - done : REDUCED_AT_ONCE, operation);
}

/* The first process that fails ends the others, which would wait for it forever. */
static int await(const pid_t *children)
{
    int worst = 0;
    for (int left = ranks, status; left > 0; left--) {
        if (wait(&status) < 0)
            return 2;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
        if (WIFSIGNALED(status) && worst == 0)
            fprintf(stderr, "replay_io: a process was ended by signal %d\n", WTERMSIG(status));
        if (code > 1 && worst < 2)
            for (int i = 0; i < ranks; i++)
                kill(children[i], SIGKILL);
        worst = code > worst ? code : worst;
    }
    return worst;
}

static int forked_ranks;

static void start_ranks(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    ranks = forked_ranks;
    size_t bytes = sizeof *meeting + (size_t)ranks * REDUCED_AT_ONCE * sizeof(int64_t);
    meeting = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED)
        fail("no shared memory of %zu bytes", bytes);
    pid_t *children = allocate((size_t)ranks * sizeof *children);
    for (int i = 0; i < ranks; i++) {
        children[i] = fork();
        if (children[i] < 0) {
            int error = errno;
            for (int started = 0; started < i; started++)
                kill(children[started], SIGKILL);
            fail("cannot start process %d: %s", i, strerror(error));
        }
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank = i;
            free(children);
            return;
        }
    }
    exit(await(children));
}

static int end_ranks(int status)
{
    return status;
}

typedef int handle;

static handle open_file(const struct file *file, bool exclusively)
{
    int mode = file->flags & FILE_WRITTEN || exclusively ? O_RDWR | O_CREAT : O_RDONLY;
    int opened = open(file->path, mode | O_CLOEXEC, 0666);
    if (opened < 0)
        fail("open of %s: %s", file->path, strerror(errno));
    return opened;
}

static void move(handle opened, const struct file *file, int direction, uint64_t offset, char *buffer, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t moved = direction == WRITE ? pwrite(opened, buffer + done, bytes - done, (off_t)(offset + done))
                                           : pread(opened, buffer + done, bytes - done, (off_t)(offset + done));
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            fail("%s of %s at %" PRIu64 ": %s", direction == WRITE ? "pwrite" : "pread", file->path, offset + done,
                 strerror(errno));
        if (moved == 0)
            fail("%s: %" PRIu64 " bytes of %" PRIu64 " %s at %" PRIu64, file->path, done, bytes,
                 direction == WRITE ? "written" : "read", offset);
        done += (uint64_t)moved;
    }
}

static void close_file(handle *opened, const struct file *file)
{
    if (close(*opened) != 0)
        fail("close of %s: %s", file->path, strerror(errno));
}
