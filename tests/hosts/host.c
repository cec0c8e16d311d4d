/* What makes a host of namespaces, and what starts programs on it.
 *
 *     host boot NAME [tmpfs PATH | folder PATH | bind SOURCE TARGET]...
 *
 * makes a host: namespaces of mounts, host name, IPC, network and process numbers, with a /proc of its own. The mounts are
 * made in the order in which they are given; sources are opened before the first of them, so that a mount may cover one.
 * Prints the process number of the host's first process, as its parent's namespace has it. All of the host ends with that.
 *
 *     host network
 *
 * makes a namespace of network alone, and prints the process number of who holds it.
 *
 *     host enter [--network] [--no-leases] PID PROGRAM [ARGUMENT...]
 *
 * runs a program on the host (or only in the network) that PID belongs to, in a directory of the same name as here. It
 * passes signals on and ends as the program does; the program ends with it. --no-leases refuses F_SETLEASE with EINVAL to
 * the program and all that it starts, on any mount, as kernels do on mounts without leases.
 *
 * `boot` and `network` end with the process that started them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALL = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWPID };
/* What a shell says of a program that it cannot start. */
enum { CANNOT_START = 126 };

#if defined __x86_64__
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static void fail(const char *what)
{
    fprintf(stderr, "host: %s: %s\n", what, strerror(errno));
    exit(CANNOT_START);
}

static void make_folders(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1;; at++) {
        char stands = *at;
        if (stands != '/' && stands)
            continue;
        *at = 0;
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            fail(part);
        if (!stands)
            return;
        *at = stands;
    }
}

static void bind_to(int source, const char *target)
{
    char from[64];
    struct stat kind;
    if (fstat(source, &kind) != 0)
        fail(target);
    if (S_ISDIR(kind.st_mode))
        make_folders(target);
    snprintf(from, sizeof from, "/proc/self/fd/%d", source);
    if (mount(from, target, NULL, MS_BIND, NULL) != 0)
        fail(target);
}

static void make_mounts(char **words)
{
    int sources[64], count = 0;
    for (char **word = words; *word; word += strcmp(*word, "bind") == 0 ? 3 : 2) {
        int is_bind = strcmp(*word, "bind") == 0;
        if ((!is_bind && strcmp(*word, "tmpfs") != 0 && strcmp(*word, "folder") != 0) || !word[1] || (is_bind && !word[2])) {
            fprintf(stderr, "host: unknown or incomplete mount %s\n", *word);
            exit(2);
        }
        if (is_bind && count == sizeof sources / sizeof *sources) {
            fprintf(stderr, "host: more than %d binds\n", count);
            exit(2);
        }
        if (is_bind && (sources[count++] = open(word[1], O_PATH | O_CLOEXEC)) == -1)
            fail(word[1]);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        fail("private mounts");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        fail("/proc");
    for (int next = 0; *words; words += strcmp(*words, "bind") == 0 ? 3 : 2) {
        if (strcmp(*words, "bind") == 0) {
            bind_to(sources[next], words[2]);
            close(sources[next++]);
            continue;
        }
        make_folders(words[1]);
        if (strcmp(*words, "tmpfs") == 0 && mount("tmpfs", words[1], "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
            fail(words[1]);
    }
}

/* The first process of a namespace of process numbers: children of the dead become its own. */
static _Noreturn void reap(void)
{
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    for (;;) {
        siginfo_t information;
        sigwaitinfo(&children, &information);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}

static void block_all(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, before);
}

static int boot(char **arguments)
{
    const char *name = arguments[0];
    int ready[2];
    char byte = 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || unshare(ALL) != 0)
        fail("namespaces");
    if (pipe2(ready, O_CLOEXEC) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child == -1)
        fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        setsid();
        block_all(NULL);
        if (sethostname(name, strlen(name)) != 0)
            fail("host name");
        make_mounts(arguments + 1);
        if (chdir("/") != 0 || write(ready[1], &byte, 1) != 1)
            fail("start");
        close(ready[1]);
        close(STDOUT_FILENO);
        reap();
    }
    close(ready[1]);
    int status = 0, is_up = read(ready[0], &byte, 1) == 1;
    if (is_up) {
        printf("%d\n", (int)child);
        fflush(stdout);
    }
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        ;
    return is_up ? 0 : CANNOT_START;
}

static _Noreturn void network(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || unshare(CLONE_NEWNET) != 0)
        fail("network namespace");
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (;;)
        pause();
}

static void refuse_leases(void)
{
#ifdef OWN_ARCHITECTURE
    enum { LOW_WORD = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4 };
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + LOW_WORD),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLEASE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        fail("refusal of leases");
#else
    errno = ENOSYS;
    fail("refusal of leases on this architecture");
#endif
}

static _Noreturn void fail_as_down(const char *process)
{
    fprintf(stderr, "host: process %s is no host's: the host is down\n", process);
    exit(CANNOT_START);
}

static void join(const char *process, int namespaces)
{
    char path[64];
    struct stat own, other;
    int host = (int)syscall(SYS_pidfd_open, (pid_t)atoi(process), 0);
    snprintf(path, sizeof path, "/proc/%d/ns/pid", atoi(process));
    if (host == -1 || stat("/proc/self/ns/pid", &own) != 0 || stat(path, &other) != 0) {
        if (errno == ESRCH || errno == ENOENT)
            fail_as_down(process);
        fail(process);
    }
    /* The number may have been given to another process since. */
    if (namespaces & CLONE_NEWPID && own.st_ino == other.st_ino)
        fail_as_down(process);
    if (setns(host, namespaces) != 0) {
        if (errno == ESRCH)
            fail_as_down(process);
        fail(process);
    }
    close(host);
}

static int enter(char **words)
{
    int namespaces = ALL, has_leases = 1;
    for (; *words && strncmp(*words, "--", 2) == 0; words++) {
        if (strcmp(*words, "--network") == 0)
            namespaces = CLONE_NEWNET;
        else if (strcmp(*words, "--no-leases") == 0)
            has_leases = 0;
        else
            return 2;
    }
    if (!words[0] || !words[1])
        return 2;
    char directory[PATH_MAX];
    sigset_t before, all;
    if (!getcwd(directory, sizeof directory))
        fail("this directory");
    join(words[0], namespaces);
    block_all(&before);
    sigfillset(&all);
    pid_t child = fork();
    if (child == -1)
        fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (chdir(directory) != 0)
            fail(directory);
        if (!has_leases)
            refuse_leases();
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(words[1], words + 1);
        fprintf(stderr, "host: %s: %s\n", words[1], strerror(errno));
        _exit(errno == ENOENT ? CANNOT_START + 1 : CANNOT_START);
    }
    for (;;) {
        siginfo_t information;
        int status, signal = sigwaitinfo(&all, &information);
        if (signal == SIGCHLD && waitpid(child, &status, WNOHANG) == child) {
            if (WIFEXITED(status))
                return WEXITSTATUS(status);
            /* A core would be this program's. */
            setrlimit(RLIMIT_CORE, &(struct rlimit){0});
            sigprocmask(SIG_SETMASK, &before, NULL);
            raise(WTERMSIG(status));
            return 128 + WTERMSIG(status);
        }
        /* A terminal's signals come from the kernel, and the program gets them itself. */
        if (signal > 0 && signal != SIGCHLD && information.si_code != SI_KERNEL)
            kill(child, signal);
    }
}

int main(int argc, char **argv)
{
    int result = 2;
    if (argc >= 3 && strcmp(argv[1], "boot") == 0)
        result = boot(argv + 2);
    else if (argc == 2 && strcmp(argv[1], "network") == 0)
        network();
    else if (argc >= 4 && strcmp(argv[1], "enter") == 0)
        result = enter(argv + 2);
    if (result == 2 && argc < 4)
        fprintf(stderr, "usage: host boot NAME [MOUNT]... | host network | host enter [--network] [--no-leases] PID PROGRAM [ARGUMENT...]\n");
    return result;
}
