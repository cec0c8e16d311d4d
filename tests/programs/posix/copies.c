/* sendfile, copy_file_range, splice, FICLONE: each either does its work or fails as the kernel does where it cannot,
 * so that the caller falls back to read and write, as this program does. The files must come out the same. */
#include "transcript.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>

#define BYTES 400000
static char data[BYTES];

static void copy_by_hand(int from, int to, off_t offset, size_t bytes)
{
    char buffer[65536];
    while (bytes > 0) {
        ssize_t n = pread(from, buffer, bytes < sizeof buffer ? bytes : sizeof buffer, offset);
        if (n <= 0 || write(to, buffer, (size_t)n) != n)
            exit(1);
        offset += n;
        bytes -= (size_t)n;
    }
}

static int fresh(const char *path)
{
    return open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
}

/* As cp did before coreutils 9: only what the file system calls an extent. */
static void copy_by_extents(int from, int to, off_t size)
{
    enum { MOST = 16 };
    struct fiemap *map = calloc(1, sizeof *map + MOST * sizeof(struct fiemap_extent));
    map->fm_length = FIEMAP_MAX_OFFSET;
    map->fm_flags = FIEMAP_FLAG_SYNC;
    map->fm_extent_count = MOST;
    if (TAGGED("fiemap", ioctl(from, FS_IOC_FIEMAP, map)) < 0)
        copy_by_hand(from, to, 0, (size_t)size);
    else
        for (unsigned i = 0; i < map->fm_mapped_extents; i++) {
            off_t offset = (off_t)map->fm_extents[i].fe_logical, left = size - offset;
            off_t bytes = (off_t)map->fm_extents[i].fe_length;
            if (left <= 0) /* xfs has space beyond the end, too */
                break;
            lseek(to, offset, SEEK_SET);
            copy_by_hand(from, to, offset, (size_t)(bytes < left ? bytes : left));
        }
    CALL(ftruncate(to, size));
    free(map);
}

int main(void)
{
    fill(data, BYTES, 6);
    int from = (int)CALL(open("from", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(from, data, BYTES));

    int to = fresh("by_sendfile");
    off_t offset = 1000;
    ssize_t sent = TAGGED("sendfile", sendfile(to, from, &offset, BYTES - 1000));
    size_t done = sent > 0 ? (size_t)sent : 0;
    copy_by_hand(from, to, 1000 + (off_t)done, BYTES - 1000 - done);
    show_file("by_sendfile");
    int pipes[2];
    if (pipe(pipes) != 0)
        return 1;
    offset = 65500;
    if (TAGGED("sendfile_to_pipe", sendfile(pipes[1], from, &offset, 100)) < 0)
        copy_by_hand(from, pipes[1], 65500, 100);
    char piece[100];
    CALL(read(pipes[0], piece, 100));
    say("same %d", memcmp(piece, data + 65500, 100) == 0);

    to = fresh("by_copy_file_range");
    loff_t place = 0;
    sent = TAGGED("copy_file_range", copy_file_range(from, &place, to, NULL, BYTES, 0));
    done = sent > 0 ? (size_t)sent : 0;
    copy_by_hand(from, to, (off_t)done, BYTES - done);
    CALL(lseek(to, 0, SEEK_CUR));
    show_file("by_copy_file_range");

    to = fresh("by_splice");
    place = 131000;
    if (TAGGED("splice_from", splice(from, &place, pipes[1], NULL, 200, 0)) < 0)
        copy_by_hand(from, pipes[1], 131000, 200);
    char buffer[200];
    if (TAGGED("splice_to", splice(pipes[0], NULL, to, NULL, 200, 0)) < 0) {
        CALL(read(pipes[0], buffer, 200));
        CALL(write(to, buffer, 200));
    } else { /* the same lines as the fallback's */
        say("read(pipes[0], buffer, 200) = 200");
        say("write(to, buffer, 200) = 200");
    }
    show_file("by_splice");

    to = fresh("by_clone");
    if (TAGGED("ficlone", ioctl(to, FICLONE, from)) < 0)
        copy_by_hand(from, to, 0, BYTES);
    show_file("by_clone");

    int sparse = fresh("sparse");
    CALL(pwrite(sparse, data, 100000, 0));
    CALL(pwrite(sparse, data, 50000, 1000000));
    copy_by_extents(sparse, fresh("by_extents"), 1050000);
    show_file("by_extents");
    int block = 0;
    TAGGED("fibmap", ioctl(sparse, FIBMAP, &block));
    struct {
        int16_t type, whence;
        int64_t start, length;
        int32_t system;
        uint32_t process;
        int32_t pad[4];
    } space = {.length = 4096}; /* the kernel's space_resv, which no header has */
    TAGGED("resvsp", ioctl(sparse, _IOW('X', 42, space), &space));
    /* No loop device, so the bare system refuses as well. Redirected the managed file comes first. */
    int device = (int)CALL(open("/dev/null", O_RDWR));
    struct loop_config configuration = {.fd = sparse};
    int errors = dup(2); /* the library says what to do instead */
    dup2(device, 2);
    TAGGED("loop_device", ioctl(device, LOOP_SET_FD, sparse));
    TAGGED("loop_device", ioctl(device, LOOP_CHANGE_FD, sparse));
    TAGGED("loop_device", ioctl(device, LOOP_CONFIGURE, &configuration));
    dup2(errors, 2);
    CALL(ioctl(device, LOOP_SET_FD, device));
    CALL(ioctl(device, LOOP_CONFIGURE, NULL));
    show_file("sparse");

    int unreadable = (int)CALL(open("from", O_WRONLY));
    CALL(lseek(to, 0, SEEK_SET));
    CALL(sendfile(to, unreadable, NULL, 10));
    CALL(sendfile(99, from, NULL, 10));
    return 0;
}
