/* What the parts of a host's mount of the shared directory have in common; mount.c says how it works. */
#ifndef MOUNT_H
#define MOUNT_H
#define FUSE_USE_VERSION 34
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The owner of POSIX locks on one file. */
struct owner {
    struct owner *next;
    uint64_t identity;
    int descriptor;
    int waiters;
};

/* A file that the kernel knows. Its descriptor (O_PATH) keeps device and inode number from being used again. */
struct inode {
    struct inode *next;
    int descriptor;
    dev_t device;
    ino_t number;
    uint64_t lookups;
    pthread_mutex_t owners_lock;
    struct owner *owners;
};

extern struct inode root;
extern int own_descriptors; /* /proc/self/fd */
extern double timeout_s;
extern int is_caching, has_exchange, has_noreplace, has_birth_time;

static inline struct inode *inode_of(fuse_ino_t node)
{
    return node == FUSE_ROOT_ID ? &root : (struct inode *)node;
}

static inline int path_of(fuse_ino_t node)
{
    return inode_of(node)->descriptor;
}

static inline int file_of(const struct fuse_file_info *open)
{
    return (int)open->fh;
}

/* An O_PATH descriptor's name below `own_descriptors`. */
struct name {
    char text[16];
};

static inline struct name name_of(int descriptor)
{
    struct name name;
    snprintf(name.text, sizeof name.text, "%d", descriptor);
    return name;
}

/* mount_names.c */
void lookup(fuse_req_t request, fuse_ino_t parent, const char *name);
void forget(fuse_req_t request, fuse_ino_t node, uint64_t lookups);
void forget_many(fuse_req_t request, size_t count, struct fuse_forget_data *forgotten);
void get_attributes(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open);
void set_attributes(fuse_req_t request, fuse_ino_t node, struct stat *to, int what, struct fuse_file_info *open);
void read_link(fuse_req_t request, fuse_ino_t node);
void make_node(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void make_directory(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode);
void make_link(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name);
void link_file(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char *name);
void remove_file(fuse_req_t request, fuse_ino_t parent, const char *name);
void remove_directory(fuse_req_t request, fuse_ino_t parent, const char *name);
void rename_file(fuse_req_t request, fuse_ino_t from, const char *name, fuse_ino_t to, const char *new_name,
                        unsigned int flags);
void statistics(fuse_req_t request, fuse_ino_t node);
void get_attribute(fuse_req_t request, fuse_ino_t node, const char *name, size_t bytes);
void list_attributes(fuse_req_t request, fuse_ino_t node, size_t bytes);
void set_attribute(fuse_req_t request, fuse_ino_t node, const char *name, const char *value, size_t bytes, int flags);
void remove_attribute(fuse_req_t request, fuse_ino_t node, const char *name);
int remember(int descriptor, struct fuse_entry_param *entry);
void forget_lookups(fuse_ino_t node, uint64_t lookups);
int give(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode);
void reply(fuse_req_t request, int result);
int reopen(int descriptor, int flags);
void reply_entry(fuse_req_t request, fuse_ino_t parent, const char *name);

/* mount_files.c */
void open_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open);
void create_file(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *open);
void read_file(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, struct fuse_file_info *open);
void write_file(fuse_req_t request, fuse_ino_t node, const char *data, size_t bytes, off_t offset,
                       struct fuse_file_info *open);
void sync_file(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *open);
void allocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t bytes, struct fuse_file_info *open);
void seek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence, struct fuse_file_info *open);
void release_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open);
void open_directory(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open);
void read_directory(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, struct fuse_file_info *open);
void sync_directory(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *open);
void release_directory(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open);

/* mount_locks.c */
void flush_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open);
void get_lock(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open, struct flock *lock);
void set_lock(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open, struct flock *lock, int waits);
void lock_whole_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *open, int operation);

#endif
