/* Descriptors across exec, vfork and posix_spawn with file actions. The program calls itself as the child. */
#include "transcript.h"
#include <spawn.h>

extern char **environ;

static int child(const char *role)
{
    char buffer[8] = {0};
    if (!strcmp(role, "reader")) { /* an inherited descriptor, its position included */
        CALL(lseek(20, 0, SEEK_CUR));
        CALL(read(20, buffer, 4));
        show("inherited", buffer, 4);
        CALL(read(21, buffer, 4)); /* close on exec */
        return 3;
    }
    if (!strcmp(role, "writer")) { /* stdout is a file of the parent's */
        fputs("written by the child\n", stdout);
        fflush(stdout);
        return write(1, "raw\n", 4) == 4 ? 4 : 1;
    }
    if (!strcmp(role, "stdin")) {
        int c, n = 0;
        while ((c = getchar()) != EOF)
            n += c;
        printf("sum of stdin %d\n", n);
        return 5;
    }
    if (!strcmp(role, "keeper")) {
        char all[100000];
        CALL(lseek(40, 0, SEEK_CUR));
        CALL(pread(40, all, sizeof all, 0));
        show("before the exec", all + 99996, 4);
        CALL(pwrite(40, "later", 5, 200000));
        CALL(lseek(40, 0, SEEK_END));
        CALL(pread(40, buffer, 5, 200000));
        show("written after the exec", buffer, 5);
        return 6;
    }
    return 9;
}

static const char self[] = "/proc/self/exe";

/* A child of vfork opens its standard output as shells do, and becomes another program: what it makes is a managed file,
 * what it cuts loses its data and not its stub, and the parent's own files are untouched by it. */
static void redirect_in_vfork(char *name, const char *path, int flags)
{
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        int fd = open(path, flags, 0644);
        if (fd < 0)
            _exit(100 + (errno == EEXIST ? 1 : errno == ENOENT ? 2 : 3));
        dup2(fd, 1);
        close(fd);
        execl(self, name, "writer", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    show_child(status);
}

/* Nobody else has the file open, which has no name any more, and the program that has its descriptor comes after some that do not use it. */
static void keep_over_exec(char *name, int flags)
{
    int status;
    if (fork() == 0) {
        static char all[100000];
        memset(all, 'k', sizeof all);
        int fd = open(flags & O_DIRECTORY ? "." : "kept", flags, 0600);
        if (fd < 0 || write(fd, all, sizeof all) != sizeof all || (!(flags & O_DIRECTORY) && unlink("kept")) || dup2(fd, 40) < 0)
            _exit(120);
        close(fd);
        execl("/bin/sh", "sh", "-c", "exec sh -c 'exec \"$0\" keeper' \"$0\"", name, (char *)NULL);
        _exit(127);
    }
    wait(&status);
    show_child(status);
}

/* The list closes all descriptors from a number on before it opens files: what is opened for it beforehand is among them. */
static void spawn_closed(char *name)
{
    pid_t pid;
    int status;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    CALL(posix_spawn_file_actions_addclosefrom_np(&actions, 0));
    CALL(posix_spawn_file_actions_addopen(&actions, 0, "in", O_RDONLY, 0));
    CALL(posix_spawn_file_actions_addopen(&actions, 1, "closed", O_WRONLY | O_CREAT | O_EXCL, 0600));
    CALL(posix_spawn_file_actions_adddup2(&actions, 1, 2));
    char *words[] = {name, "stdin", NULL};
    CALL(posix_spawn(&pid, self, &actions, NULL, words, environ));
    waitpid(pid, &status, 0);
    show_child(status);
    CALL(posix_spawn(&pid, self, &actions, NULL, words, environ));
    posix_spawn_file_actions_destroy(&actions);
    show_file("closed");

    /* Nothing of the list is done before the child is made, and then in its directory; each child has a position of its own. */
    CALL(mkdir("below", 0755));
    posix_spawn_file_actions_init(&actions);
    CALL(posix_spawn_file_actions_addchdir_np(&actions, "below"));
    CALL(posix_spawn_file_actions_addopen(&actions, 1, "made", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    CALL(posix_spawn_file_actions_addopen(&actions, 0, "../in", O_RDONLY, 0));
    CALL(access("below/made", F_OK));
    for (int i = 0; i < 2; i++) {
        CALL(posix_spawn(&pid, self, &actions, NULL, words, environ));
        waitpid(pid, &status, 0);
        show_child(status);
        show_file("below/made");
    }
    posix_spawn_file_actions_destroy(&actions);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return child(argv[1]);
    int status;
    redirect_in_vfork(argv[0], "early", O_WRONLY | O_CREAT | O_EXCL);
    redirect_in_vfork(argv[0], "early", O_WRONLY | O_CREAT | O_EXCL);
    keep_over_exec(argv[0], O_RDWR | O_CREAT | O_EXCL);
    keep_over_exec(argv[0], O_RDWR | O_TMPFILE);
    CALL(open("in", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CALL(write(3, "0123456789abcdef", 16));
    CALL(lseek(3, 6, SEEK_SET));
    CALL(dup2(3, 20));
    CALL(fcntl(3, F_DUPFD_CLOEXEC, 21));

    if (fork() == 0) {
        execl(self, argv[0], "reader", (char *)NULL);
        _exit(127);
    }
    wait(&status);
    show_child(status);
    CALL(lseek(3, 0, SEEK_CUR));

    pid_t pid = vfork();
    if (pid == 0) {
        close(3);
        dup2(20, 30);
        execl(self, argv[0], "reader", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    show_child(status);
    CALL(lseek(3, 0, SEEK_CUR));
    CALL(lseek(30, 0, SEEK_CUR));

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_TRUNC, 0640);
    char *writer[] = {argv[0], "writer", NULL};
    CALL(posix_spawn(&pid, self, &actions, NULL, writer, environ));
    waitpid(pid, &status, 0);
    show_child(status);
    show_file("out");
    posix_spawn_file_actions_destroy(&actions);

    posix_spawn_file_actions_init(&actions);
    int out = (int)CALL(open("out", O_WRONLY | O_APPEND));
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_addclose(&actions, out);
    posix_spawn_file_actions_addopen(&actions, 0, "in", O_RDONLY, 0);
    char *reader[] = {argv[0], "stdin", NULL};
    CALL(posix_spawnp(&pid, self, &actions, NULL, reader, environ));
    waitpid(pid, &status, 0);
    show_child(status);
    posix_spawn_file_actions_destroy(&actions);
    show_file("out");

    spawn_closed(argv[0]);

    redirect_in_vfork(argv[0], "early", O_WRONLY | O_APPEND | O_CREAT);
    redirect_in_vfork(argv[0], "late", O_WRONLY | O_CREAT | O_TRUNC);
    show_file("early");
    redirect_in_vfork(argv[0], "early", O_WRONLY | O_TRUNC);
    redirect_in_vfork(argv[0], "missing", O_WRONLY | O_TRUNC);
    show_file("early");
    show_file("late");
    CALL(lseek(3, 0, SEEK_CUR));

    FILE *pipe = popen("cat >> out; echo done >> out", "w");
    fputs("through a pipe\n", pipe);
    CALL(pclose(pipe));
    CALL(system("cat in in > twice; wc -c < twice"));
    show_file("out");
    show_file("twice");
    return 0;
}
