/* Executing files of the directory: a copy of this program and scripts, by every function that starts a program. */
#include "transcript.h"
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern char **environ;

static void write_file(const char *path, const void *bytes, size_t length, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, bytes, length) != (ssize_t)length || fchmod(fd, mode) != 0 || close(fd) != 0)
        say("WRONG: %s was not written: %s", path, errno_name(errno));
}

static void write_text(const char *path, const char *text, mode_t mode)
{
    write_file(path, text, strlen(text), mode);
}

static void copy_self(const char *path)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    struct stat status;
    fstat(fd, &status);
    char *bytes = malloc((size_t)status.st_size);
    if (read(fd, bytes, (size_t)status.st_size) != status.st_size)
        say("WRONG: a short read");
    close(fd);
    write_file(path, bytes, (size_t)status.st_size, 0755);
    free(bytes);
}

/* As the child: the arguments, one variable, and how many descriptors are open. */
static int child(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        printf(" [%s]", argv[i]);
    printf(" in %s\n", getenv("WHERE") ? getenv("WHERE") : "nowhere");
    FILE *own = fopen("data", "r");
    char line[32] = "";
    if (own && fgets(line, sizeof line, own))
        printf(" %s", line);
    if (own)
        fclose(own);
    fflush(stdout);
    return 7;
}

static void finish(pid_t pid)
{
    int status = 0;
    if (pid <= 0 || waitpid(pid, &status, 0) != pid)
        say("no child");
    else
        show_child(status);
}

/* In a child of fork, and in one of vfork where all it does is the call. */
#define FORKED(call) do { \
        say("%s", #call); \
        pid_t pid = fork(); \
        if (pid == 0) { call; _exit(100 + (errno == ENOENT ? 1 : errno == EACCES ? 2 : errno == ENOEXEC ? 3 : errno == ELOOP ? 4 : 5)); } \
        finish(pid); \
        pid = vfork(); \
        if (pid == 0) { call; _exit(100 + (errno == ENOENT ? 1 : errno == EACCES ? 2 : errno == ENOEXEC ? 3 : errno == ELOOP ? 4 : 5)); } \
        finish(pid); \
    } while (0)

static char *const many[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", NULL};
static char *const away[] = {"WHERE=elsewhere", NULL};

static char **away_redirected(void)
{
    /* The library's own variables stay, or the child would not be redirected. */
    static char *all[64];
    size_t n = 0;
    all[n++] = away[0];
    for (char **variable = environ; *variable && n < 63; variable++)
        if (!strncmp(*variable, "LD_PRELOAD=", 11) || !strncmp(*variable, "STRIPEWISE_", 11))
            all[n++] = *variable;
    return all;
}

static void every_function(char **elsewhere)
{
    FORKED(execl("./tool", "zero", "one", "two", "three", "four", "five", "six", "seven", (char *)NULL));
    FORKED(execl("./tool", (char *)"child", (char *)NULL));
    FORKED(execle("./tool", "zero", "one", (char *)NULL, elsewhere));
    FORKED(execle("./tool", "zero", "one", "two", "three", "four", "five", "six", "seven", (char *)NULL, elsewhere));
    FORKED(execlp("tool", "zero", "one", "two", "three", "four", "five", "six", (char *)NULL));
    FORKED(execv("./tool", many));
    FORKED(execvp("tool", many));
    FORKED(execvpe("tool", many, elsewhere));
    FORKED(execve("./tool", many, elsewhere));
    int fd = open("tool", O_RDONLY | O_CLOEXEC);
    FORKED(fexecve(fd, many, environ));
    FORKED(syscall(SYS_getpid) > 0 ? execveat(fd, "", many, environ, AT_EMPTY_PATH) : 0);
    close(fd);
    int directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FORKED(execveat(directory, "tool", many, environ, 0));
    FORKED(execveat(directory, "script", many, environ, 0));
    close(directory);
}

static void spawned(void)
{
    pid_t pid = 0;
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn(&pid, "./tool", NULL, NULL, many, environ);
    finish(pid);
    say("posix_spawn %d", failed);
    failed = posix_spawnp(&pid, "tool", NULL, NULL, many, environ);
    finish(pid);
    say("posix_spawnp %d", failed);
    failed = posix_spawn(&pid, "./script", NULL, NULL, many, environ);
    finish(pid);
    say("posix_spawn of a script %d", failed);
    say("posix_spawn without permission %d", posix_spawn(&pid, "./plain", NULL, NULL, many, environ));
    say("posix_spawn of text %d", posix_spawn(&pid, "./text", NULL, NULL, many, environ));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    failed = posix_spawn(&pid, "./tool", &actions, NULL, many, environ);
    finish(pid);
    say("posix_spawn with actions %d", failed);
    posix_spawn_file_actions_destroy(&actions);
    show_file("spawned");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, "below");
    failed = posix_spawn(&pid, "../tool", &actions, NULL, many, environ);
    finish(pid);
    say("posix_spawn in a directory %d", failed);
    posix_spawn_file_actions_destroy(&actions);
}

static void scripts(void)
{
    write_text("script", "#! /bin/sh -e\necho \"$0\" \"$@\"; cat data\n", 0755);
    write_text("by_tool", "#!./tool an argument with blanks  \nnot read\n", 0755);
    write_text("nested", "#!./by_tool nested\n", 0755);
    write_text("text", "echo text for the shell: \"$0\" \"$1\"\n", 0755);
    write_text("empty", "", 0755);
    write_text("plain", "#!/bin/sh\necho never\n", 0644);
    write_text("no_interpreter", "#!/no/such/interpreter\n", 0755);
    write_text("loop", "#!./loop\n", 0755);
    FORKED(execv("./script", many));
    FORKED(execv("./by_tool", many));
    FORKED(execv("./nested", many));
    FORKED(execl("./nested", "only one", (char *)NULL));
    FORKED(execv("./text", many));
    FORKED(execvp("./text", many));
    FORKED(execv("./empty", many));
    FORKED(execv("./plain", many));
    FORKED(execvp("plain", many));
    FORKED(execv("./no_interpreter", many));
    FORKED(execv("./loop", many));
    FORKED(execv("./not there", many));
    FORKED(execvp("not there", many));
    FORKED(execv("./below", many));
    FORKED(execvp("", many));
    CALL(system("./script 1 2; ./tool 3; ./nested 4; ./text 5; sh text 6; . ./text"));
    FILE *pipe = popen("./tool from a pipe", "r");
    char line[200];
    while (pipe && fgets(line, sizeof line, pipe))
        fputs(line, stdout);
    CALL(pclose(pipe));
}

/* What failed left nothing behind: descriptors, position, locks of this process. */
static void failures_leave_nothing(void)
{
    int fd = (int)CALL(open("plain", O_RDWR));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CALL(fcntl(fd, F_SETLK, &lock));
    CALL(lseek(fd, 5, SEEK_SET));
    CALL(execv("./plain", many));
    CALL(chmod("plain", 0755));
    write_text("text", "neither\n", 0755);
    CALL(execv("./text", many));
    CALL(execv("./loop", many));
    CALL(lseek(fd, 0, SEEK_CUR));
    if (fork() == 0) {
        struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CALL(fcntl(fd, F_GETLK, &other));
        say("held by another: %d", other.l_type == F_WRLCK);
        _exit(0);
    }
    wait(NULL);
    int next = (int)CALL(open("plain", O_RDONLY));
    say("the next descriptor is %s", next == fd + 1 ? "the next number" : "WRONG");
    close(next);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "parent"))
        if (argc > 1 || strcmp(argv[0], "child") == 0)
            return child(argc, argv);
    if (!getenv("PROGRAMS_BEGUN")) {
        setenv("PROGRAMS_BEGUN", "1", 1);
        execl("/proc/self/exe", "parent", (char *)NULL);
        return 1;
    }
    setenv("PATH", "/nonexistent:.:/usr/bin:/bin", 1);
    setenv("WHERE", "here", 1);
    write_text("data", "what the data say\n", 0644);
    mkdir("below", 0755);
    write_text("below/data", "what the data below say\n", 0644);
    copy_self("tool");
    write_text("script", "#! /bin/sh -e\necho \"$0\" \"$@\"; cat data\n", 0755);
    write_text("plain", "#!/bin/sh\necho never\n", 0644);
    write_text("text", "echo\n", 0755);
    every_function(away_redirected());
    scripts();
    spawned();
    failures_leave_nothing();
    return 0;
}
