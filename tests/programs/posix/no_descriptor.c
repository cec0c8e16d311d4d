/* -1 for a descriptor: where a path is absolute it is as good as any other, elsewhere it is EBADF. */
#include "transcript.h"
#include <dirent.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <linux/openat2.h>

static char a[600], b[600], c[600], program[600], buffer[16];

int main(void)
{
    char here[512];
    if (getcwd(here, sizeof here) == NULL)
        return 1;
    sprintf(a, "%s/a", here);
    sprintf(b, "%s/b", here);
    sprintf(c, "%s/c", here);
    sprintf(program, "%s/program", here);
    struct stat status;
    struct statx extended;
    struct statfs file_system;

    int fd = (int)CALL(openat(-1, a, O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(fd, "0123456789", 10));
    CALL(close((int)CALL(openat(-1, a, O_RDONLY))));
    CALL(close((int)CALL(openat(-1, a, O_RDONLY | O_TRUNC))));
    CALL(pwrite(fd, "0123456789", 10, 0));
    CALL(fstatat(-1, a, &status, 0));
    CALL(statx(-1, a, 0, STATX_SIZE, &extended));
    say("sizes %lld %lld", (long long)status.st_size, (long long)extended.stx_size);
    CALL(faccessat(-1, a, W_OK, 0));
    CALL(fchmodat(-1, a, 0600, 0));
    CALL(fchownat(-1, a, geteuid(), getegid(), 0));
    CALL(utimensat(-1, a, NULL, 0));
    CALL(futimesat(-1, a, NULL));
    CALL(linkat(-1, a, -1, b, 0));
    CALL(renameat(-1, b, -1, c));
    CALL(renameat2(-1, a, -1, c, 1));
    CALL(renameat2(-1, c, -1, b, RENAME_EXCHANGE));
    CALL(unlinkat(-1, c, 0));
    struct open_how how = {.flags = O_RDONLY};
    CALL(close((int)CALL(syscall(SYS_openat2, -1, a, &how, sizeof how))));
    CALL(openat(-1, "a", O_RDWR | O_CREAT, 0644));
    CALL(openat(-1, "a", O_RDONLY | O_TRUNC));
    CALL(fstatat(-1, "a", &status, 0));
    CALL(unlinkat(-1, "a", 0));
    CALL(linkat(-1, "a", -1, "b", 0));
    CALL(renameat(-1, "a", -1, "b"));
    CALL(utimensat(-1, "a", NULL, 0));

    CALL(read(-1, buffer, 1));
    CALL(write(-1, buffer, 1));
    CALL(pread(-1, buffer, 1, 0));
    CALL(pwrite(-1, buffer, 1, 0));
    CALL(readv(-1, &(struct iovec){buffer, 1}, 1));
    CALL(pwritev2(-1, &(struct iovec){buffer, 1}, 1, 0, 0));
    CALL(lseek(-1, 0, SEEK_SET));
    CALL(fstat(-1, &status));
    CALL(fstatat(-1, "", &status, AT_EMPTY_PATH));
    CALL(statx(-1, "", AT_EMPTY_PATH, STATX_SIZE, &extended));
    CALL(fstatfs(-1, &file_system));
    CALL(ftruncate(-1, 0));
    CALL(fallocate(-1, 0, 0, 1));
    CALL(posix_fallocate(-1, 0, 1));
    CALL(posix_fadvise(-1, 0, 0, POSIX_FADV_NORMAL));
    CALL(fsync(-1));
    CALL(fdatasync(-1));
    CALL(sync_file_range(-1, 0, 0, 0));
    CALL(syncfs(-1));
    CALL(fchmod(-1, 0600));
    CALL(fchown(-1, 0, 0));
    CALL(futimens(-1, NULL));
    CALL(dup(-1));
    CALL(dup2(-1, 700));
    CALL(dup2(fd, -1));
    CALL(dup3(-1, 700, O_CLOEXEC));
    CALL(fcntl(-1, F_GETFL));
    CALL(fcntl(-1, F_SETFL, O_APPEND));
    CALL(fcntl(-1, F_DUPFD, 0));
    CALL(fcntl(-1, F_SETLK, &(struct flock){.l_type = F_WRLCK}));
    CALL(flock(-1, LOCK_SH));
    CALL(lockf(-1, F_LOCK, 1));
    int waiting;
    CALL(ioctl(-1, FIONREAD, &waiting));
    CALL(sendfile(-1, fd, NULL, 1) < 0);
    CALL(sendfile(fd, -1, NULL, 1) < 0);
    CALL(splice(-1, NULL, fd, NULL, 1, 0) < 0);
    CALL(copy_file_range(-1, NULL, -1, NULL, 1, 0));
    CALL(mmap(NULL, 4096, PROT_READ, MAP_SHARED, -1, 0) == MAP_FAILED ? -1 : 0);
    CALL(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED ? -1 : 0);
    CALL(fdopen(-1, "r") == NULL ? -1 : 0);
    CALL(fdopendir(-1) == NULL ? -1 : 0);
    CALL(dprintf(-1, "%d", 1));
    CALL(close(-1));
    CALL(fchdir(-1));

    aio_context_t context = 0;
    CALL(syscall(SYS_io_setup, 1, &context));
    struct iocb block = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (uint32_t)-1, .aio_buf = (uintptr_t)buffer,
                         .aio_nbytes = 1};
    struct iocb *blocks[] = {&block};
    CALL(syscall(SYS_io_submit, context, 1L, blocks));
    CALL(syscall(SYS_io_destroy, context));

    fd = (int)CALL(openat(-1, program, O_WRONLY | O_CREAT | O_TRUNC, 0755));
    CALL(write(fd, "#!/bin/sh\necho run\n", 19));
    CALL(close(fd));
    fflush(stdout);
    char *arguments[] = {"program", NULL};
    char *environment[] = {NULL};
    pid_t child = fork();
    if (child == 0)
        _exit(execveat(-1, program, arguments, environment, 0) != 0 ? 100 + errno % 100 : 0);
    int ended;
    waitpid(child, &ended, 0);
    show_child(ended);
    child = fork();
    if (child == 0)
        _exit(execveat(-1, "program", arguments, environment, 0) != 0 ? 100 + errno % 100 : 0);
    waitpid(child, &ended, 0);
    show_child(ended);
    child = fork();
    if (child == 0)
        _exit(fexecve(-1, arguments, environment) != 0 ? 100 + errno % 100 : 0);
    waitpid(child, &ended, 0);
    show_child(ended);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    CALL(posix_spawn_file_actions_adddup2(&actions, -1, 5));
    CALL(posix_spawn_file_actions_addfchdir_np(&actions, -1));
    posix_spawn_file_actions_destroy(&actions);
    show_file("a");
    show_file("b");
    return 0;
}
