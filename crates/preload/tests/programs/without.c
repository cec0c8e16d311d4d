/* Runs a program on file systems that lack something: `without WHAT... -- PROGRAM ARGUMENTS`, where WHAT is `tmpfile`
 * (open with O_TMPFILE fails with EOPNOTSUPP), `link` (every hard link fails with EPERM) or `noreplace` (renameat2 with
 * flags fails with EINVAL). By a filter of system calls, which needs no rights and holds for all that is started. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOW(argument) (offsetof(struct seccomp_data, args) + 8 * (argument))

static struct sock_filter filter[64];
static unsigned short used;

static void add(unsigned short code, unsigned k, unsigned char yes, unsigned char no) {
    filter[used++] = (struct sock_filter)BPF_JUMP(code, k, yes, no);
}

/* `number` fails with `error` if any of `bits` is set in an argument; without bits always. */
static void refuse(int number, int argument, unsigned bits, int error) {
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, bits ? 3 : 1);
    if (bits) {
        add(BPF_LD | BPF_W | BPF_ABS, LOW(argument), 0, 0);
        add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
}

int main(int count, char **arguments) {
    int at = 1;
    for (; at < count && strcmp(arguments[at], "--") != 0; at++) {
        if (strcmp(arguments[at], "tmpfile") == 0) {
            refuse(SYS_openat, 2, O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP);
#ifdef SYS_open
            refuse(SYS_open, 1, O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP);
#endif
        } else if (strcmp(arguments[at], "link") == 0) {
            refuse(SYS_linkat, 0, 0, EPERM);
#ifdef SYS_link
            refuse(SYS_link, 0, 0, EPERM);
#endif
        } else if (strcmp(arguments[at], "noreplace") == 0) {
            refuse(SYS_renameat2, 4, ~0u, EINVAL);
        } else {
            fprintf(stderr, "without: %s is not known\n", arguments[at]);
            return 2;
        }
    }
    if (at + 1 >= count) {
        fprintf(stderr, "without: name a program after --\n");
        return 2;
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog program = {.len = used, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("without: installing the filter");
        return 2;
    }
    execvp(arguments[at + 1], arguments + at + 1);
    perror("without: starting the program");
    return 2;
}
