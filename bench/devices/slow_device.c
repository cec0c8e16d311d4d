/* A disk's bytes and times as one file: `slow_device FILE BYTES SEEK_SECONDS BYTES_PER_SECOND`.
 *
 * It mounts itself by FUSE over FILE, an ordinary file. Its bytes lie in memory. It serves one request at a time, in the
 * order in which they come: a request takes its bytes at the given rate, and a seek before them unless it begins where
 * the request before it ended, be that a read or a write. It sleeps that time, never spins. Flushes and discards are free:
 * whatever was answered is on the disk.
 *
 * Times follow the disk's own clock. A request that waited begins when the one before it was due, so late wake-ups of a
 * busy host do not add up. Copying the bytes is part of the service, as a disk's own transfer is: it goes on while a write is
 * served, and an answer with bytes is begun so much earlier that it is whole when it is due.
 *
 * Prints "mounted" when the file can be opened, and a line of JSON with its counts at every SIGUSR1 and at its end. Ends by
 * SIGTERM, and with the process that started it. */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 34
#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A request of the loop device of this size is one request here: the kernel splits larger ones. */
enum { MAX_REQUEST_BYTES = 1 << 20, MAX_QUEUED = 256 };

static char *memory;
static long long disk_bytes, seek_ns;
static double ns_per_byte, answer_ns_per_byte;
static long long head_at, due_ns, begins_ns;
static volatile sig_atomic_t counts_wanted;
static struct {
    long long requests, seeks, read_bytes, written_bytes, flushes, busy_ns, late_ns;
} counts;

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void want_counts(int signal)
{
    (void)signal;
    counts_wanted = 1;
}

static void print_counts(void)
{
    counts_wanted = 0;
    printf("{\"requests\": %lld, \"seeks\": %lld, \"read_bytes\": %lld, \"written_bytes\": %lld, \"flushes\": %lld, "
           "\"busy_s\": %.6f, \"late_s\": %.6f}\n",
           counts.requests, counts.seeks, counts.read_bytes, counts.written_bytes, counts.flushes,
           (double)counts.busy_ns / 1e9, (double)counts.late_ns / 1e9);
    fflush(stdout);
}

/* Sleeps through the service of a request, up to `answer_ns` before its end. */
static void serve(long long offset, long long bytes, long long answer_ns)
{
    long long service = (long long)((double)bytes * ns_per_byte);
    if (offset != head_at) {
        service += seek_ns;
        counts.seeks++;
    }
    head_at = offset + bytes;
    due_ns = begins_ns + service;
    long long until_ns = due_ns - (answer_ns < service ? answer_ns : service);
    struct timespec until = {until_ns / 1000000000LL, until_ns % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    counts.requests++;
    counts.busy_ns += service;
    counts.late_ns += now_ns() - until_ns;
}

static int is_outside(fuse_req_t request, size_t bytes, off_t offset)
{
    if (offset >= 0 && offset <= disk_bytes && (long long)bytes <= disk_bytes - offset)
        return 0;
    fuse_reply_err(request, EIO);
    return 1;
}

static void start(void *unused, struct fuse_conn_info *connection)
{
    (void)unused;
    connection->max_write = connection->max_read = connection->max_readahead = MAX_REQUEST_BYTES;
    connection->max_background = connection->congestion_threshold = MAX_QUEUED;
    /* One copy by read and write is less work than a pipe. */
    connection->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    puts("mounted");
    fflush(stdout);
}

static void get_attributes(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *open)
{
    (void)open;
    struct stat found = {.st_ino = inode, .st_mode = S_IFREG | 0600, .st_nlink = 1, .st_size = disk_bytes, .st_blksize = 4096};
    fuse_reply_attr(request, &found, 3600);
}

static void open_disk(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *open)
{
    (void)inode;
    fuse_reply_open(request, open);
}

static void read_disk(fuse_req_t request, fuse_ino_t inode, size_t bytes, off_t offset, struct fuse_file_info *open)
{
    (void)inode, (void)open;
    if (is_outside(request, bytes, offset))
        return;
    serve(offset, (long long)bytes, (long long)((double)bytes * answer_ns_per_byte));
    counts.read_bytes += (long long)bytes;
    long long begun_ns = now_ns();
    fuse_reply_buf(request, memory + offset, bytes);
    /* As it was of late. One answer that the host held up counts little. */
    double took = (double)(now_ns() - begun_ns) / (double)(bytes > 0 ? bytes : 1);
    answer_ns_per_byte += ((took < ns_per_byte ? took : ns_per_byte) - answer_ns_per_byte) / 8;
}

static void write_disk(fuse_req_t request, fuse_ino_t inode, const char *data, size_t bytes, off_t offset,
                       struct fuse_file_info *open)
{
    (void)inode, (void)open;
    if (is_outside(request, bytes, offset))
        return;
    memcpy(memory + offset, data, bytes);
    serve(offset, (long long)bytes, 0);
    counts.written_bytes += (long long)bytes;
    fuse_reply_write(request, bytes);
}

static void flush_disk(fuse_req_t request, fuse_ino_t inode, int data_only, struct fuse_file_info *open)
{
    (void)inode, (void)data_only, (void)open;
    counts.flushes++;
    fuse_reply_err(request, 0);
}

/* Discards, which give the memory back, and zeroing. */
static void discard(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t bytes, struct fuse_file_info *open)
{
    (void)inode, (void)open;
    if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    if (is_outside(request, (size_t)bytes, offset))
        return;
    long long page = sysconf(_SC_PAGESIZE), first = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    if (first < end) {
        memset(memory + offset, 0, (size_t)(first - offset));
        memset(memory + end, 0, (size_t)(offset + bytes - end));
        madvise(memory + first, (size_t)(end - first), MADV_DONTNEED);
    } else {
        memset(memory + offset, 0, (size_t)bytes);
    }
    fuse_reply_err(request, 0);
}

static const struct fuse_lowlevel_ops operations = {
    .init = start,
    .getattr = get_attributes,
    .open = open_disk,
    .read = read_disk,
    .write = write_disk,
    .fsync = flush_disk,
    .fallocate = discard,
};

static int run(struct fuse_session *session)
{
    struct fuse_buf buffer = {.mem = NULL};
    struct pollfd waiting = {.fd = fuse_session_fd(session), .events = POLLIN};
    int result = 0;
    while (!fuse_session_exited(session)) {
        int had_waited = poll(&waiting, 1, 0) == 1;
        if (!had_waited && poll(&waiting, 1, -1) != 1) {
            if (counts_wanted)
                print_counts();
            continue;
        }
        /* Before the bytes of a write are copied. */
        long long arrived_ns = now_ns();
        result = fuse_session_receive_buf(session, &buffer);
        if (result == -EINTR)
            continue;
        if (result <= 0)
            break;
        begins_ns = had_waited || arrived_ns < due_ns ? due_ns : arrived_ns;
        fuse_session_process_buf(session, &buffer);
        if (counts_wanted)
            print_counts();
    }
    free(buffer.mem);
    return result < 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s FILE BYTES SEEK_SECONDS BYTES_PER_SECOND\n", argv[0]);
        return 2;
    }
    disk_bytes = atoll(argv[2]);
    seek_ns = (long long)(atof(argv[3]) * 1e9);
    ns_per_byte = 1e9 / atof(argv[4]);
    memory = mmap(NULL, (size_t)disk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("memory of the disk");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1);
    /* A disk does not wait for the host's processors. Without the right to this it is a little later. */
    if (sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1}) != 0)
        setpriority(PRIO_PROCESS, 0, -20);
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the whole group; who started the disk unmounts what lies on it first. */
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = want_counts}, NULL);
    char *words[] = {argv[0], "-o", "fsname=stripewise-slow-device,max_read=1048576", NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, words);
    struct fuse_session *session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) != 0 || fuse_session_mount(session, argv[1]) != 0)
        return 2;
    int failed = run(session);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    print_counts();
    return failed;
}
