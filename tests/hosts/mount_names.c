/* The files that the kernel knows, their names and their attributes. */
#define _GNU_SOURCE
#include "mount.h"
#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum { BUCKETS = 4096 };

static struct inode *inodes[BUCKETS];
static pthread_mutex_t inodes_lock = PTHREAD_MUTEX_INITIALIZER;

static struct inode **bucket_of(dev_t device, ino_t number)
{
    return &inodes[(number ^ (ino_t)device * 31) % BUCKETS];
}

int reopen(int descriptor, int flags)
{
    return openat(own_descriptors, name_of(descriptor).text, flags | O_CLOEXEC);
}

void reply(fuse_req_t request, int result)
{
    fuse_reply_err(request, result == -1 ? errno : 0);
}

/* Takes the descriptor over. */
int remember(int descriptor, struct fuse_entry_param *entry)
{
    *entry = (struct fuse_entry_param){.attr_timeout = timeout_s, .entry_timeout = timeout_s};
    if (fstatat(descriptor, "", &entry->attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
        int error = errno;
        close(descriptor);
        return error;
    }
    pthread_mutex_lock(&inodes_lock);
    struct inode **bucket = bucket_of(entry->attr.st_dev, entry->attr.st_ino), *inode = *bucket;
    while (inode && (inode->device != entry->attr.st_dev || inode->number != entry->attr.st_ino))
        inode = inode->next;
    if (inode) {
        close(descriptor);
    } else if ((inode = calloc(1, sizeof *inode))) {
        inode->descriptor = descriptor;
        inode->device = entry->attr.st_dev;
        inode->number = entry->attr.st_ino;
        pthread_mutex_init(&inode->owners_lock, NULL);
        inode->next = *bucket;
        *bucket = inode;
    }
    if (inode)
        inode->lookups++;
    pthread_mutex_unlock(&inodes_lock);
    if (!inode) {
        close(descriptor);
        return ENOMEM;
    }
    entry->ino = (fuse_ino_t)inode;
    return 0;
}

void forget_lookups(fuse_ino_t node, uint64_t lookups)
{
    if (node == FUSE_ROOT_ID)
        return;
    struct inode *inode = inode_of(node);
    pthread_mutex_lock(&inodes_lock);
    inode->lookups -= lookups;
    int is_last = inode->lookups == 0;
    if (is_last) {
        struct inode **at = bucket_of(inode->device, inode->number);
        while (*at != inode)
            at = &(*at)->next;
        *at = inode->next;
    }
    pthread_mutex_unlock(&inodes_lock);
    if (is_last) {
        close(inode->descriptor);
        pthread_mutex_destroy(&inode->owners_lock);
        free(inode);
    }
}

static int find(fuse_ino_t parent, const char *name, struct fuse_entry_param *entry)
{
    int descriptor = openat(path_of(parent), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return descriptor == -1 ? errno : remember(descriptor, entry);
}

void reply_entry(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry;
    int error = find(parent, name, &entry);
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_entry(request, &entry);
}

/* Gives what was just made to who asked for it; a set-group-ID directory gives its group. */
int give(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode)
{
    const struct fuse_ctx *caller = fuse_req_ctx(request);
    struct stat above;
    if (fstatat(path_of(parent), "", &above, AT_EMPTY_PATH) != 0)
        return -1;
    gid_t group = above.st_mode & S_ISGID ? (gid_t)-1 : caller->gid;
    if (fchownat(path_of(parent), name, caller->uid, group, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    /* A change of owner takes these bits away. */
    return mode & (S_ISUID | S_ISGID) && !S_ISLNK(mode) ? fchmodat(path_of(parent), name, mode & 07777, 0) : 0;
}

/* Names and attributes. */

void lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    reply_entry(request, parent, name);
}

void forget(fuse_req_t request, fuse_ino_t node, uint64_t lookups)
{
    forget_lookups(node, lookups);
    fuse_reply_none(request);
}

void forget_many(fuse_req_t request, size_t count, struct fuse_forget_data *forgotten)
{
    for (size_t i = 0; i < count; i++)
        forget_lookups(forgotten[i].ino, forgotten[i].nlookup);
    fuse_reply_none(request);
}

void get_attributes(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open)
{
    (void)open;
    struct stat found;
    if (fstatat(path_of(node), "", &found, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
        fuse_reply_err(request, errno);
    else
        fuse_reply_attr(request, &found, timeout_s);
}

static int change(fuse_ino_t node, const struct stat *to, int what, const struct fuse_file_info *open)
{
    int path = path_of(node);
    if (what & FUSE_SET_ATTR_MODE && fchmodat(own_descriptors, name_of(path).text, to->st_mode & 07777, 0) != 0)
        return -1;
    if (what & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
        uid_t user = what & FUSE_SET_ATTR_UID ? to->st_uid : (uid_t)-1;
        gid_t group = what & FUSE_SET_ATTR_GID ? to->st_gid : (gid_t)-1;
        if (fchownat(path, "", user, group, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
            return -1;
    }
    if (what & FUSE_SET_ATTR_SIZE) {
        int file = open ? file_of(open) : reopen(path, O_WRONLY);
        if (file == -1)
            return -1;
        int result = ftruncate(file, to->st_size), error = errno;
        if (!open)
            close(file);
        errno = error;
        if (result != 0)
            return -1;
    }
    if (what & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
        if (what & FUSE_SET_ATTR_ATIME)
            times[0] = what & FUSE_SET_ATTR_ATIME_NOW ? (struct timespec){.tv_nsec = UTIME_NOW} : to->st_atim;
        if (what & FUSE_SET_ATTR_MTIME)
            times[1] = what & FUSE_SET_ATTR_MTIME_NOW ? (struct timespec){.tv_nsec = UTIME_NOW} : to->st_mtim;
        /* glibc refuses an empty path, which the kernel takes. */
        if (syscall(SYS_utimensat, path, "", times, AT_EMPTY_PATH) != 0)
            return -1;
    }
    return 0;
}

void set_attributes(fuse_req_t request, fuse_ino_t node, struct stat *to, int what, struct fuse_file_info *open)
{
    if (change(node, to, what, open) != 0)
        fuse_reply_err(request, errno);
    else
        get_attributes(request, node, open);
}

void read_link(fuse_req_t request, fuse_ino_t node)
{
    char text[PATH_MAX + 1];
    ssize_t length = readlinkat(path_of(node), "", text, sizeof text);
    if (length == -1 || length == sizeof text) {
        fuse_reply_err(request, length == -1 ? errno : ENAMETOOLONG);
        return;
    }
    text[length] = 0;
    fuse_reply_readlink(request, text);
}

void make_node(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    if (mknodat(path_of(parent), name, mode, device) != 0 || give(request, parent, name, mode) != 0)
        fuse_reply_err(request, errno);
    else
        reply_entry(request, parent, name);
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode)
{
    if (mkdirat(path_of(parent), name, mode) != 0 || give(request, parent, name, mode | S_IFDIR) != 0)
        fuse_reply_err(request, errno);
    else
        reply_entry(request, parent, name);
}

void make_link(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name)
{
    if (symlinkat(target, path_of(parent), name) != 0 || give(request, parent, name, S_IFLNK) != 0)
        fuse_reply_err(request, errno);
    else
        reply_entry(request, parent, name);
}

void link_file(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char *name)
{
    if (linkat(own_descriptors, name_of(path_of(node)).text, path_of(parent), name, AT_SYMLINK_FOLLOW) != 0)
        fuse_reply_err(request, errno);
    else
        reply_entry(request, parent, name);
}

void remove_file(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    reply(request, unlinkat(path_of(parent), name, 0));
}

void remove_directory(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    reply(request, unlinkat(path_of(parent), name, AT_REMOVEDIR));
}

void rename_file(fuse_req_t request, fuse_ino_t from, const char *name, fuse_ino_t to, const char *new_name,
                        unsigned int flags)
{
    if ((flags & RENAME_EXCHANGE && !has_exchange) || (flags & RENAME_NOREPLACE && !has_noreplace)) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    reply(request, renameat2(path_of(from), name, path_of(to), new_name, flags));
}

void statistics(fuse_req_t request, fuse_ino_t node)
{
    struct statvfs found;
    if (fstatvfs(path_of(node), &found) != 0)
        fuse_reply_err(request, errno);
    else
        fuse_reply_statfs(request, &found);
}

/* Extended attributes. Calls on O_PATH descriptors are refused, so these go by /proc. */

static void proc_path(fuse_ino_t node, char path[64])
{
    snprintf(path, 64, "/proc/self/fd/%d", path_of(node));
}

static void reply_attribute(fuse_req_t request, const char *memory, ssize_t length, size_t bytes)
{
    if (length == -1)
        fuse_reply_err(request, errno);
    else if (bytes == 0)
        fuse_reply_xattr(request, (size_t)length);
    else
        fuse_reply_buf(request, memory, (size_t)length);
}

void get_attribute(fuse_req_t request, fuse_ino_t node, const char *name, size_t bytes)
{
    char path[64], *memory = malloc(bytes + 1);
    proc_path(node, path);
    reply_attribute(request, memory, memory ? getxattr(path, name, memory, bytes) : -1, bytes);
    free(memory);
}

void list_attributes(fuse_req_t request, fuse_ino_t node, size_t bytes)
{
    char path[64], *memory = malloc(bytes + 1);
    proc_path(node, path);
    reply_attribute(request, memory, memory ? listxattr(path, memory, bytes) : -1, bytes);
    free(memory);
}

void set_attribute(fuse_req_t request, fuse_ino_t node, const char *name, const char *value, size_t bytes, int flags)
{
    char path[64];
    proc_path(node, path);
    reply(request, setxattr(path, name, value, bytes, flags));
}

void remove_attribute(fuse_req_t request, fuse_ino_t node, const char *name)
{
    char path[64];
    proc_path(node, path);
    reply(request, removexattr(path, name));
}
