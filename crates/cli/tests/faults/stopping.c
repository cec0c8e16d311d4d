/* A directory shown as a FUSE mount: `stopping BELOW MOUNT_POINT`. Stopped by a signal it answers no more, as a mount whose server is lost does not; when it
   ends, the kernel aborts the connection, and whoever waits gets an error. It ends with the thread that started it, so that a test leaves nobody waiting.
   It has a session of its own: the kernel hangs up stopped members of a process group that becomes orphaned. */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int below;

static const char *relative(const char *path) { return path[1] ? path + 1 : "."; }
static int result(int done) { return done < 0 ? -errno : done; }

static void *init(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->use_ino = 1;
    config->hard_remove = 1;
    config->nullpath_ok = 1;
    config->direct_io = 1; /* what was read before is asked for again */
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    puts("mounted");
    fflush(stdout);
    return NULL;
}
static int get_attributes(const char *path, struct stat *found, struct fuse_file_info *open) {
    return result(open ? fstat(open->fh, found) : fstatat(below, relative(path), found, AT_SYMLINK_NOFOLLOW));
}
static int make_directory(const char *path, mode_t mode) { return result(mkdirat(below, relative(path), mode)); }
static int remove_name(const char *path) { return result(unlinkat(below, relative(path), 0)); }
static int remove_directory(const char *path) { return result(unlinkat(below, relative(path), AT_REMOVEDIR)); }
static int rename_name(const char *from, const char *to, unsigned flags) {
    return result(renameat2(below, relative(from), below, relative(to), flags));
}
static int change_mode(const char *path, mode_t mode, struct fuse_file_info *open) {
    return result(open ? fchmod(open->fh, mode) : fchmodat(below, relative(path), mode, 0));
}
static int change_owner(const char *path, uid_t user, gid_t group, struct fuse_file_info *open) {
    return result(open ? fchown(open->fh, user, group)
                       : fchownat(below, relative(path), user, group, AT_SYMLINK_NOFOLLOW));
}
static int change_times(const char *path, const struct timespec times[2], struct fuse_file_info *open) {
    return result(open ? futimens(open->fh, times) : utimensat(below, relative(path), times, AT_SYMLINK_NOFOLLOW));
}
static int open_as(const char *path, int flags, mode_t mode, struct fuse_file_info *open) {
    int opened = openat(below, relative(path), flags | O_NOFOLLOW, mode);
    open->fh = opened;
    return opened < 0 ? -errno : 0;
}
static int open_file(const char *path, struct fuse_file_info *open) { return open_as(path, open->flags, 0, open); }
static int open_directory(const char *path, struct fuse_file_info *open) {
    return open_as(path, O_RDONLY | O_DIRECTORY, 0, open);
}
static int create_file(const char *path, mode_t mode, struct fuse_file_info *open) {
    return open_as(path, open->flags | O_CREAT, mode, open);
}
static int cut(const char *path, off_t length, struct fuse_file_info *open) {
    if (open)
        return result(ftruncate(open->fh, length));
    int opened = openat(below, relative(path), O_WRONLY | O_NOFOLLOW), done = result(opened);
    if (opened >= 0) {
        done = result(ftruncate(opened, length));
        close(opened);
    }
    return done;
}
static int read_bytes(const char *path, char *bytes, size_t length, off_t at, struct fuse_file_info *open) {
    (void)path;
    return result(pread(open->fh, bytes, length, at));
}
static int write_bytes(const char *path, const char *bytes, size_t length, off_t at, struct fuse_file_info *open) {
    (void)path;
    return result(pwrite(open->fh, bytes, length, at));
}
static int flush_file(const char *path, struct fuse_file_info *open) {
    (void)path, (void)open;
    return 0; /* but every close asks */
}
static int release_file(const char *path, struct fuse_file_info *open) {
    (void)path;
    return result(close(open->fh));
}
static int sync_file(const char *path, int data_only, struct fuse_file_info *open) {
    (void)path;
    return result(data_only ? fdatasync(open->fh) : fsync(open->fh));
}
static int sync_directory(const char *path, int data_only, struct fuse_file_info *open) {
    (void)path, (void)data_only, (void)open;
    return 0;
}
static int reserve(const char *path, int mode, off_t at, off_t length, struct fuse_file_info *open) {
    (void)path;
    return result(fallocate(open->fh, mode, at, length));
}
static int free_space(const char *path, struct statvfs *found) {
    (void)path;
    return result(fstatvfs(below, found));
}
static int list(const char *path, void *names, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *open,
                enum fuse_readdir_flags flags) {
    (void)path, (void)at, (void)flags;
    int own = openat(open->fh, ".", O_RDONLY | O_DIRECTORY);
    DIR *directory = own < 0 ? NULL : fdopendir(own);
    if (!directory)
        return -errno;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat found = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};
        fill(names, entry->d_name, &found, 0, 0);
    }
    closedir(directory);
    return 0;
}

static const struct fuse_operations operations = {
    .init = init, .getattr = get_attributes, .mkdir = make_directory, .unlink = remove_name, .rmdir = remove_directory,
    .rename = rename_name, .chmod = change_mode, .chown = change_owner, .utimens = change_times, .open = open_file,
    .create = create_file, .truncate = cut, .read = read_bytes, .write = write_bytes, .flush = flush_file,
    .release = release_file, .fsync = sync_file, .fsyncdir = sync_directory, .fallocate = reserve, .statfs = free_space,
    .opendir = open_directory, .readdir = list, .releasedir = release_file,
};

int main(int count, char **words) {
    if (count != 3 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setsid() < 0 ||
        (below = open(words[1], O_RDONLY | O_DIRECTORY)) < 0) {
        perror("stopping BELOW MOUNT_POINT");
        return 2;
    }
    umask(0);
    char *arguments[] = {words[0], "-f", "-s", "-o", "default_permissions", words[2], NULL};
    return fuse_main(6, arguments, &operations, NULL);
}
