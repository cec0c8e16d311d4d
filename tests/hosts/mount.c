/* One host's mount of a directory that all hosts share:
 *
 *     shared_mount DIRECTORY MOUNTPOINT PID [no-exchange] [no-noreplace] [no-birth-time] [caching]
 *
 * A FUSE server that passes every operation on to DIRECTORY. It mounts itself on MOUNTPOINT in the mount namespace of
 * process PID and stays outside of that namespace. Each host has a server of its own, so device numbers differ between
 * hosts and inode numbers do not, as on clients of NFS.
 *
 * Nothing is cached: no name, no attribute and no data, so hosts see each other's changes at once. With `caching` the
 * kernel keeps all of them for an hour, as a mount without coherence does.
 *
 * POSIX locks of all hosts meet on the one underlying file. A lock's owner is a process of one host; here it is an open
 * file description, and its locks are OFD locks, which exclude each other within a server and between servers. Waiting
 * takes a thread of its own, so that waiters never keep an unlock from being served. As on NFS nothing finds deadlocks.
 *
 * `no-exchange` and `no-noreplace` refuse these renames with EINVAL, as NFS does; `no-birth-time` reports none.
 * O_TMPFILE is always refused with EOPNOTSUPP.
 *
 * A name that another host removed stays as an open file until this host's kernel forgets it: its inode number is not
 * used again before that.
 *
 * Prints "mounted" when it serves. Ends when its mount has gone, and with the process that started it. */
#define _GNU_SOURCE
#include "mount.h"
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { THREADS = 8, MAX_REQUEST_BYTES = 1 << 20 };

struct inode root;
int own_descriptors;
double timeout_s;
int is_caching, has_exchange = 1, has_noreplace = 1, has_birth_time = 1;

static void start(void *unused, struct fuse_conn_info *connection)
{
    (void)unused;
    connection->max_write = MAX_REQUEST_BYTES;
    connection->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_READDIRPLUS);
    /* It would drop data when it finds a new time; a mount without coherence finds that too late. */
    if (is_caching)
        connection->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
}

static struct fuse_lowlevel_ops operations = {
    .init = start,
    .lookup = lookup,
    .forget = forget,
    .forget_multi = forget_many,
    .getattr = get_attributes,
    .setattr = set_attributes,
    .readlink = read_link,
    .mknod = make_node,
    .mkdir = make_directory,
    .symlink = make_link,
    .link = link_file,
    .unlink = remove_file,
    .rmdir = remove_directory,
    .rename = rename_file,
    .open = open_file,
    .create = create_file,
    .read = read_file,
    .write = write_file,
    .flush = flush_file,
    .fsync = sync_file,
    .fallocate = allocate,
    .lseek = seek,
    .release = release_file,
    .opendir = open_directory,
    .readdir = read_directory,
    .fsyncdir = sync_directory,
    .releasedir = release_directory,
    .statfs = statistics,
    .getxattr = get_attribute,
    .listxattr = list_attributes,
    .setxattr = set_attribute,
    .removexattr = remove_attribute,
    .getlk = get_lock,
    .setlk = set_lock,
    .flock = lock_whole_file,
};

/* The request that carries the birth time; libfuse does not know it yet (protocol 7.39). */

enum { STATX_REQUEST = 52 };

struct moment {
    int64_t seconds;
    uint32_t nanoseconds;
    int32_t reserved;
};

struct statx_answer {
    struct fuse_out_header header;
    uint64_t valid_seconds;
    uint32_t valid_nanoseconds, flags;
    uint64_t reserved[2];
    uint32_t mask, block_bytes;
    uint64_t attributes;
    uint32_t links, user, group;
    uint16_t mode, padding;
    uint64_t number, size, blocks, attributes_mask;
    struct moment accessed, born, changed, modified;
    uint32_t device_major, device_minor, own_major, own_minor;
    uint64_t more[14];
};

static struct moment moment_of(struct statx_timestamp time)
{
    return (struct moment){.seconds = time.tv_sec, .nanoseconds = time.tv_nsec};
}

static void answer_statx(struct fuse_session *session, const struct fuse_in_header *request)
{
    struct statx found;
    struct statx_answer answer = {.header = {.unique = request->unique, .len = sizeof answer.header}};
    unsigned int wanted = STATX_BASIC_STATS | (has_birth_time ? STATX_BTIME : 0);
    if (!has_birth_time) {
        answer.header.error = -ENOSYS;
    } else if (statx(path_of(request->nodeid), "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, wanted, &found) != 0) {
        answer.header.error = -errno;
    } else {
        answer.header.len = sizeof answer;
        answer.valid_seconds = (uint64_t)timeout_s;
        answer.mask = found.stx_mask & wanted;
        answer.block_bytes = found.stx_blksize;
        answer.links = found.stx_nlink;
        answer.user = found.stx_uid;
        answer.group = found.stx_gid;
        answer.mode = found.stx_mode;
        answer.number = found.stx_ino;
        answer.size = found.stx_size;
        answer.blocks = found.stx_blocks;
        answer.accessed = moment_of(found.stx_atime);
        answer.born = moment_of(found.stx_btime);
        answer.changed = moment_of(found.stx_ctime);
        answer.modified = moment_of(found.stx_mtime);
        answer.device_major = found.stx_rdev_major;
        answer.device_minor = found.stx_rdev_minor;
    }
    /* ENOENT: who asked was interrupted. */
    if (write(fuse_session_fd(session), &answer, answer.header.len) == -1 && errno != ENOENT && errno != ENODEV)
        perror("answer to statx");
}

static void *serve(void *data)
{
    struct fuse_session *session = data;
    struct fuse_buf buffer = {.mem = NULL};
    while (!fuse_session_exited(session)) {
        int length = fuse_session_receive_buf(session, &buffer);
        if (length == -EINTR)
            continue;
        if (length <= 0)
            break;
        const struct fuse_in_header *header = buffer.mem;
        if (header->opcode == STATX_REQUEST)
            answer_statx(session, header);
        else
            fuse_session_process_buf(session, &buffer);
    }
    free(buffer.mem);
    return NULL;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* A child enters the namespace: the mount is made there, and the server's view stays as it is. */
static void mount_in(pid_t host, const char *mountpoint, int device)
{
    char path[64], options[128];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)host);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", device);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace == -1)
        fail(path);
    pid_t child = fork();
    if (child == -1)
        fail("fork");
    if (child == 0) {
        if (setns(namespace, CLONE_NEWNS) != 0)
            fail("setns");
        if (mount("shared", mountpoint, "fuse.shared", MS_NOSUID | MS_NODEV, options) != 0)
            fail(mountpoint);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        exit(1);
    close(namespace);
}

static void nothing(int signal)
{
    (void)signal;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s DIRECTORY MOUNTPOINT PID [no-exchange] [no-noreplace] [no-birth-time] [no-locks] [caching]\n", argv[0]);
        return 2;
    }
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "no-exchange") == 0) {
            has_exchange = 0;
        } else if (strcmp(argv[i], "no-noreplace") == 0) {
            has_noreplace = 0;
        } else if (strcmp(argv[i], "no-birth-time") == 0) {
            has_birth_time = 0;
        } else if (strcmp(argv[i], "no-locks") == 0) {
            /* The kernel keeps them, for this host. */
            operations.getlk = NULL;
            operations.setlk = NULL;
            operations.flock = NULL;
        } else if (strcmp(argv[i], "caching") == 0) {
            is_caching = 1;
            timeout_s = 3600;
        } else {
            fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]);
            return 2;
        }
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    umask(0);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = nothing}, NULL);
    root.descriptor = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root.descriptor == -1)
        fail(argv[1]);
    pthread_mutex_init(&root.owners_lock, NULL);
    own_descriptors = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own_descriptors == -1)
        fail("/proc/self/fd");
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device == -1)
        fail("/dev/fuse");
    mount_in((pid_t)atoi(argv[3]), argv[2], device);

    char *words[] = {argv[0], NULL}, at[32];
    struct fuse_args arguments = FUSE_ARGS_INIT(1, words);
    struct fuse_session *session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    snprintf(at, sizeof at, "/dev/fd/%d", device);
    if (!session || fuse_session_mount(session, at) != 0)
        return 1;
    puts("mounted");
    fflush(stdout);
    pthread_t threads[THREADS];
    int started = 0;
    while (started < THREADS - 1 && pthread_create(&threads[started], NULL, serve, session) == 0)
        started++;
    serve(session);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    fuse_session_destroy(session);
    return 0;
}
