/* Open files and directories. */
#define _GNU_SOURCE
#include "mount.h"
#include <dirent.h>

static void open_as(struct fuse_file_info *open, int descriptor)
{
    open->fh = (uint64_t)descriptor;
    open->direct_io = !is_caching;
    open->keep_cache = is_caching;
}

/* O_DIRECT would ask for aligned memory, which the kernel's requests are not. */
static int flags_of(const struct fuse_file_info *open)
{
    return open->flags & ~(O_NOFOLLOW | O_CREAT | O_EXCL | O_DIRECT);
}

void open_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open)
{
    int descriptor = reopen(path_of(node), flags_of(open));
    if (descriptor == -1) {
        fuse_reply_err(request, errno);
        return;
    }
    open_as(open, descriptor);
    if (fuse_reply_open(request, open) == -ENOENT)
        close(descriptor);
}

void create_file(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *open)
{
    int descriptor;
    /* Another host may make or remove the name meanwhile. Whoever made it owns it. */
    for (;;) {
        descriptor = openat(path_of(parent), name, flags_of(open) | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (descriptor != -1 && give(request, parent, name, mode | S_IFREG) != 0) {
            int error = errno;
            close(descriptor);
            fuse_reply_err(request, error);
            return;
        }
        if (descriptor != -1 || errno != EEXIST || open->flags & O_EXCL)
            break;
        descriptor = openat(path_of(parent), name, flags_of(open) | O_NOFOLLOW | O_CLOEXEC);
        if (descriptor != -1 || errno != ENOENT)
            break;
    }
    if (descriptor == -1) {
        fuse_reply_err(request, errno);
        return;
    }
    struct fuse_entry_param entry;
    int path = openat(own_descriptors, name_of(descriptor).text, O_PATH | O_CLOEXEC);
    int error = path == -1 ? errno : remember(path, &entry);
    if (error) {
        close(descriptor);
        fuse_reply_err(request, error);
        return;
    }
    open_as(open, descriptor);
    if (fuse_reply_create(request, &entry, open) == -ENOENT) {
        close(descriptor);
        forget_lookups(entry.ino, 1);
    }
}

void read_file(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, struct fuse_file_info *open)
{
    (void)node;
    char *memory = malloc(bytes);
    ssize_t length = memory ? pread(file_of(open), memory, bytes, offset) : -1;
    if (length == -1)
        fuse_reply_err(request, errno);
    else
        fuse_reply_buf(request, memory, (size_t)length);
    free(memory);
}

void write_file(fuse_req_t request, fuse_ino_t node, const char *data, size_t bytes, off_t offset,
                       struct fuse_file_info *open)
{
    (void)node;
    ssize_t length = pwrite(file_of(open), data, bytes, offset);
    if (length == -1)
        fuse_reply_err(request, errno);
    else
        fuse_reply_write(request, (size_t)length);
}

void sync_file(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *open)
{
    (void)node;
    reply(request, data_only ? fdatasync(file_of(open)) : fsync(file_of(open)));
}

void allocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t bytes, struct fuse_file_info *open)
{
    (void)node;
    reply(request, fallocate(file_of(open), mode, offset, bytes));
}

void seek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence, struct fuse_file_info *open)
{
    (void)node;
    off_t found = lseek(file_of(open), offset, whence);
    if (found == -1)
        fuse_reply_err(request, errno);
    else
        fuse_reply_lseek(request, found);
}

void release_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open)
{
    (void)node;
    close(file_of(open));
    fuse_reply_err(request, 0);
}

void open_directory(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open)
{
    int descriptor = openat(path_of(node), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = descriptor == -1 ? NULL : fdopendir(descriptor);
    if (!directory) {
        int error = errno;
        if (descriptor != -1)
            close(descriptor);
        fuse_reply_err(request, error);
        return;
    }
    open->fh = (uint64_t)directory;
    open->cache_readdir = is_caching;
    if (fuse_reply_open(request, open) == -ENOENT)
        closedir(directory);
}

void read_directory(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, struct fuse_file_info *open)
{
    (void)node;
    DIR *directory = (DIR *)open->fh;
    char *memory = malloc(bytes);
    size_t used = 0;
    if (!memory) {
        fuse_reply_err(request, ENOMEM);
        return;
    }
    seekdir(directory, offset);
    struct dirent *found;
    while (errno = 0, (found = readdir(directory))) {
        struct stat attributes = {.st_ino = found->d_ino, .st_mode = (mode_t)found->d_type << 12};
        size_t length = fuse_add_direntry(request, memory + used, bytes - used, found->d_name, &attributes, telldir(directory));
        if (length > bytes - used)
            break;
        used += length;
    }
    if (!found && errno && used == 0)
        fuse_reply_err(request, errno);
    else
        fuse_reply_buf(request, memory, used);
    free(memory);
}

void sync_directory(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *open)
{
    (void)node, (void)data_only;
    reply(request, fsync(dirfd((DIR *)open->fh)));
}

void release_directory(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open)
{
    (void)node;
    closedir((DIR *)open->fh);
    fuse_reply_err(request, 0);
}
