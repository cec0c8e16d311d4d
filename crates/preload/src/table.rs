//! Every symbol of libc that takes a path, a descriptor or a stream, and what becomes of it.
//!
//! - *served*: wrapped; means the same on a managed file as on an ordinary one.
//! - *refused*: wrapped; fails on a managed file with the errno named, as the kernel does where a file system cannot do it.
//! - *harmless*: not wrapped, for the reason given.
//!
//! [`NUMBERS`] says the same of the kernel's calls where a program makes them by libc's `syscall`.
//!
//! `tests/table.rs` holds the tables against libc's dynamic symbols, the library's own and the kernel's header, and
//! `docs/interposer.md` against the tables. That file is made by `STRIPEWISE_WRITE_DOCS=1 cargo test -p stripewise-preload --test table`.

/// What becomes of a symbol.
pub enum Treatment {
    Served,
    /// The errno on a managed file.
    Refused(&'static str),
    /// Why it need not be wrapped.
    Harmless(&'static str),
}

/// Symbols of one kind, and the source file that wraps them (none for harmless ones).
pub struct Group {
    pub kind: &'static str,
    pub module: Option<&'static str>,
    pub treatment: Treatment,
    pub symbols: &'static [&'static str],
}

const fn served(kind: &'static str, module: &'static str, symbols: &'static [&'static str]) -> Group {
    Group { kind, module: Some(module), treatment: Treatment::Served, symbols }
}

const fn refused(
    kind: &'static str,
    module: &'static str,
    errno: &'static str,
    symbols: &'static [&'static str],
) -> Group {
    Group { kind, module: Some(module), treatment: Treatment::Refused(errno), symbols }
}

const fn harmless(kind: &'static str, reason: &'static str, symbols: &'static [&'static str]) -> Group {
    Group { kind, module: None, treatment: Treatment::Harmless(reason), symbols }
}

#[rustfmt::skip]
pub const TABLE: &[Group] = &[
    served("limits on the size of files", "posix/extent.rs", &[
        "setrlimit", "setrlimit64", "prlimit", "prlimit64",
    ]),
    served("open", "posix/open.rs", &[
        "open", "open64", "__open", "__open64", "__open_2", "__open64_2", "openat", "openat64", "__openat_2",
        "__openat64_2", "creat", "creat64", "mkstemp", "mkstemp64", "mkostemp", "mkostemp64", "mkstemps",
        "mkstemps64", "mkostemps", "mkostemps64",
    ]),
    served("read and write", "posix/data.rs", &[
        "read", "__read", "__read_chk", "pread", "pread64", "__pread64", "__pread_chk", "__pread64_chk", "readv",
        "preadv", "preadv64", "preadv2", "preadv64v2", "write", "__write", "pwrite", "pwrite64", "__pwrite64",
        "writev", "pwritev", "pwritev64", "pwritev2", "pwritev64v2",
    ]),
    served("position", "posix/data.rs", &[
        "lseek", "lseek64", "llseek", "__lseek",
    ]),
    served("size and durability", "posix/extent.rs", &[
        "fsync", "fdatasync", "sync", "sync_file_range", "syncfs", "ftruncate", "ftruncate64", "fallocate",
        "fallocate64", "posix_fallocate", "posix_fallocate64", "posix_fadvise", "posix_fadvise64", "readahead",
    ]),
    refused("formatted input of wide characters", "posix/wide.rs", "EOPNOTSUPP", &[
        "wscanf", "fwscanf", "vwscanf", "vfwscanf", "__isoc99_wscanf", "__isoc99_fwscanf", "__isoc99_vwscanf",
        "__isoc99_vfwscanf",
    ]),
    served("libaio", "posix/libaio.rs", &["io_submit"]),
    served("system calls by number, as listed below", "posix/number.rs", &["syscall"]),
    refused("rings of liburing, in every redirected program", "posix/rings.rs", "ENOSYS", &[
        "io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem", "io_uring_setup",
    ]),
    refused("moves inside the kernel", "posix/extent.rs", "EXDEV", &[
        "copy_file_range",
    ]),
    refused("moves inside the kernel", "posix/extent.rs", "EINVAL", &[
        "sendfile", "sendfile64", "splice",
    ]),
    served("descriptors", "posix/descriptor.rs", &[
        "close", "__close", "close_range", "closefrom", "dup", "dup2", "__dup2", "dup3", "fcntl", "fcntl64",
        "__fcntl", "ioctl", "closedir",
    ]),
    served("names", "posix/names.rs", &[
        "unlink", "unlinkat", "remove", "rename", "renameat", "renameat2", "linkat", "truncate", "truncate64",
    ]),
    served("mode, owner, times", "posix/names.rs", &[
        "chmod", "lchmod", "fchmod", "fchmodat", "chown", "lchown", "fchown", "fchownat", "utime", "utimes",
        "lutimes", "futimes", "futimens", "futimesat", "utimensat",
    ]),
    served("walks", "posix/walk.rs", &[
        "ftw", "ftw64", "nftw", "nftw64", "fts_read", "fts64_read", "fts_children", "fts64_children",
    ]),
    served("status", "posix/status.rs", &[
        "stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat", "fstatat64", "__xstat", "__xstat64",
        "__lxstat", "__lxstat64", "__fxstat", "__fxstat64", "__fxstatat", "__fxstatat64", "statx", "statfs",
        "statfs64", "__statfs", "fstatfs", "fstatfs64",
    ]),
    served("streams", "posix/stdio.rs", &[
        "fopen", "fopen64", "fdopen", "freopen", "freopen64", "fclose", "fread", "fread_unlocked", "__fread_chk",
        "__fread_unlocked_chk", "fwrite", "fwrite_unlocked", "fflush", "fseek", "fseeko", "fseeko64", "rewind",
        "fsetpos", "fsetpos64", "dprintf", "__dprintf_chk", "vdprintf", "__vdprintf_chk", "fileno", "fileno_unlocked",
    ]),
    refused("watches of reads and writes", "posix/names.rs", "ENOSPC", &["inotify_add_watch"]),
    refused("shared mappings by a descriptor that may write", "posix/map.rs", "ENODEV", &[
        "mmap", "mmap64",
    ]),
    refused("mappings that grow", "posix/map.rs", "ENOMEM", &["mremap"]),
    served("wide characters", "posix/wide.rs", &[
        "getwc", "getwc_unlocked", "fgetwc", "fgetwc_unlocked", "fgetws", "fgetws_unlocked", "__fgetws_chk",
        "__fgetws_unlocked_chk", "getwchar", "getwchar_unlocked", "ungetwc", "putwc", "putwc_unlocked", "fputwc",
        "fputwc_unlocked", "fputws", "fputws_unlocked", "putwchar", "putwchar_unlocked", "wprintf",
        "__wprintf_chk", "fwprintf", "__fwprintf_chk", "vwprintf", "__vwprintf_chk", "vfwprintf",
        "__vfwprintf_chk", "fwide",
    ]),
    served("asynchronous I/O", "posix/aio.rs", &[
        "aio_read", "aio_read64", "aio_write", "aio_write64", "aio_fsync", "aio_fsync64", "aio_return",
        "aio_return64", "lio_listio", "lio_listio64",
    ]),
    served("programs", "posix/exec.rs", &[
        "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat", "posix_spawn",
        "posix_spawnp",
    ]),
    served("shared objects", "posix/load.rs", &["dlopen", "dlmopen"]),
    served("processes", "posix/spawn.rs", &[
        "_exit", "_Exit", "vfork", "__vfork", "posix_spawn_file_actions_addopen", "posix_spawn_file_actions_adddup2",
        "posix_spawn_file_actions_addchdir_np", "posix_spawn_file_actions_addfchdir_np",
        "posix_spawn_file_actions_destroy",
    ]),
    harmless("asynchronous I/O",
        "a managed request is finished when it is submitted, and its control block says so to libc", &[
        "aio_cancel", "aio_cancel64", "aio_error", "aio_error64", "aio_init", "aio_suspend", "aio_suspend64",
    ]),
    harmless("opens that make a new file", "the file is an ordinary one; its descriptor is found at the first use", &[
        "tmpfile", "tmpfile64", "memfd_create", "shm_open",
    ]),
    harmless("opens of something opened or named before", "the descriptor is found at the first use", &[
        "open_by_handle_at", "name_to_handle_at", "open_tree", "posix_openpt", "getpt", "openpty", "pidfd_open",
        "pidfd_getfd",
    ]),
    harmless("directories and what is in them", "a managed file is in its directory under its name, as a stub", &[
        "opendir", "fdopendir", "dirfd", "readdir", "readdir64", "readdir_r", "readdir64_r", "rewinddir", "seekdir",
        "telldir", "scandir", "scandir64", "scandirat", "scandirat64", "getdents64", "getdirentries",
        "getdirentries64", "mkdir", "mkdirat", "rmdir", "chdir", "fchdir", "chroot", "getcwd", "__getcwd_chk",
        "getwd", "__getwd_chk", "get_current_dir_name", "glob", "glob64", "mkdtemp", "mount", "umount", "umount2",
        "pivot_root", "move_mount", "mount_setattr", "fsmount", "fsopen", "fspick", "fsconfig",
    ]),
    harmless("beginnings and ends of walks", "what a walk finds comes from other calls", &[
        "fts_open", "fts64_open", "fts_close", "fts64_close", "fts_set", "fts64_set",
    ]),
    harmless("names", "they concern the name or the inode, and both are the stub's", &[
        "access", "faccessat", "eaccess", "euidaccess", "link", "symlink", "symlinkat", "readlink", "readlinkat",
        "__readlink_chk", "__readlinkat_chk", "realpath", "__realpath_chk", "canonicalize_file_name", "pathconf",
        "fpathconf", "mkfifo", "mkfifoat", "mknod", "mknodat", "__xmknod", "__xmknodat", "mktemp", "__mktemp",
        "tempnam", "tmpnam", "tmpnam_r", "ftok", "revoke", "chflags", "fchflags", "fattach", "fdetach", "shm_unlink",
        "acct", "swapon", "swapoff", "uselib", "quotactl", "isfdtype", "ttyslot",
    ]),
    harmless("extended attributes", "they are the stub's", &[
        "getxattr", "lgetxattr", "fgetxattr", "setxattr", "lsetxattr", "fsetxattr", "listxattr", "llistxattr",
        "flistxattr", "removexattr", "lremovexattr", "fremovexattr",
    ]),
    harmless("file systems", "they describe the file system that holds the stub, and MPI does not use them", &[
        "statvfs", "statvfs64", "fstatvfs", "fstatvfs64", "ustat",
    ]),
    harmless("locks", "the program's descriptor is the stub's, so locks are the kernel's own", &[
        "flock", "lockf", "lockf64",
    ]),
    harmless("mappings", "a mapping of a managed file is memory of the process's own", &[
        "munmap", "__munmap", "msync", "mprotect", "madvise", "mincore", "mlock", "mlock2", "munlock",
        "remap_file_pages",
    ]),
    harmless("pipes only", "a managed file is refused by the kernel as any file would be", &[
        "tee", "vmsplice",
    ]),
    harmless("sockets, terminals, events", "no regular file behind them", &[
        "socket", "__socket", "socketpair", "bind", "listen", "accept", "accept4", "connect", "__connect",
        "getsockname", "getpeername", "getsockopt", "setsockopt", "shutdown", "send", "__send", "sendto", "sendmsg",
        "sendmmsg", "__sendmmsg", "recv", "__recv", "__recv_chk", "recvfrom", "__recvfrom_chk", "recvmsg", "recvmmsg",
        "sockatmark", "pipe", "__pipe", "pipe2", "poll", "__poll", "__poll_chk", "ppoll", "__ppoll_chk", "select",
        "__select", "pselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
        "epoll_pwait2", "eventfd", "eventfd_read", "eventfd_write", "signalfd", "timerfd_create", "timerfd_gettime",
        "timerfd_settime", "inotify_init", "inotify_init1", "inotify_rm_watch", "fanotify_init",
        "fanotify_mark", "isatty", "ttyname", "ttyname_r", "__ttyname_r_chk", "ptsname", "ptsname_r",
        "__ptsname_r_chk", "grantpt", "unlockpt", "tcdrain", "tcflow", "tcflush", "tcgetattr", "tcgetpgrp",
        "tcgetsid", "tcsendbreak", "tcsetattr", "tcsetpgrp", "forkpty", "login_tty", "pidfd_send_signal", "mq_open",
        "__mq_open_2", "mq_close", "mq_unlink", "mq_getattr", "mq_setattr", "mq_notify", "mq_receive", "mq_send",
        "mq_timedreceive", "mq_timedsend", "sem_open", "sem_close", "sem_unlink", "getmsg", "putmsg", "getpmsg",
        "putpmsg", "isastream", "setns", "process_madvise", "process_mrelease", "setipv4sourcefilter",
        "getipv4sourcefilter", "setsourcefilter", "getsourcefilter", "bindresvport", "gtty", "stty",
    ]),
    harmless("streams by character, line and format",
        "they work on any stream; capture takes the transferred bytes from the position", &[
        "getc", "getc_unlocked", "fgetc", "fgetc_unlocked", "getchar", "getchar_unlocked", "gets", "__gets_chk",
        "fgets", "fgets_unlocked", "__fgets_chk", "__fgets_unlocked_chk", "getline", "getdelim", "__getdelim", "getw",
        "ungetc", "putc", "putc_unlocked",
        "fputc", "fputc_unlocked", "putchar", "putchar_unlocked", "puts", "fputs", "fputs_unlocked", "putw",
        "printf", "__printf_chk", "fprintf", "__fprintf_chk", "vprintf", "__vprintf_chk", "vfprintf",
        "__vfprintf_chk",
        "scanf", "fscanf", "vscanf", "vfscanf", "__vfscanf",
        "__isoc99_scanf", "__isoc99_fscanf", "__isoc99_vscanf", "__isoc99_vfscanf",
        "perror", "psignal",
        "psiginfo", "ftell", "ftello", "ftello64", "fgetpos", "fgetpos64", "__fseeko64", "__ftello64",
        "fflush_unlocked", "feof", "feof_unlocked", "ferror", "ferror_unlocked", "clearerr", "clearerr_unlocked",
        "setbuf", "setbuffer", "setlinebuf", "setvbuf", "flockfile", "ftrylockfile", "funlockfile",
        "__fbufsize", "__flbf", "__fpending", "__fpurge", "__freadable", "__freading", "__fsetlocking", "__fwritable",
        "__fwriting", "_flushlbf", "__overflow", "__uflow", "__underflow", "__woverflow", "__wuflow", "__wunderflow",
        "printf_size", "__printf_fp", "fcloseall", "open_memstream", "open_wmemstream", "fmemopen", "fopencookie",
        "popen", "pclose",
    ]),
    harmless("messages", "to the terminal or the log daemon", &[
        "err", "errx", "verr", "verrx", "warn", "warnx", "vwarn", "vwarnx", "error", "error_at_line",
        "backtrace_symbols_fd", "malloc_info", "openlog", "closelog", "syslog", "__syslog_chk", "vsyslog",
        "__vsyslog_chk", "malloc_stats", "muntrace", "mtrace",
    ]),
    harmless("libc's own files", "configuration and databases, never managed", &[
        "catopen", "catclose", "catgets", "setmntent", "__setmntent", "getmntent", "getmntent_r", "__getmntent_r",
        "addmntent", "endmntent", "__endmntent", "fgetgrent", "fgetgrent_r", "putgrent", "fgetpwent", "fgetpwent_r",
        "putpwent", "fgetsgent", "fgetsgent_r", "putsgent", "fgetspent", "fgetspent_r", "putspent", "utmpname",
        "utmpxname", "updwtmp", "updwtmpx", "bindtextdomain", "iconv_open", "ruserpass",
        "_nss_files_init",
    ]),
    harmless("processes",
        "the new program loads this library itself; a child made otherwise finds its state emptied", &[
        "fork", "__fork", "_Fork", "clone", "__clone",
        "posix_spawn_file_actions_init", "posix_spawn_file_actions_addclose",
        "posix_spawn_file_actions_addclosefrom_np", "posix_spawn_file_actions_addtcsetpgrp_np", "system", "__libc_system", "daemon", "wordexp", "pidfd_spawn", "pidfd_spawnp", "quick_exit",
    ]),
    harmless("names inside libc", "not for programs: no header of today leads to them", &[
        "__open64_nocancel", "__open_nocancel", "__read_nocancel", "__write_nocancel", "__close_nocancel",
        "__pread64_nocancel", "__libc_pread", "__libc_pwrite", "__libc_fcntl64", "__libc_fork", "__fstat64",
        "__file_change_detection_for_fp", "__file_change_detection_for_path", "__file_change_detection_for_stat",
        "__nss_files_fopen", "__nss_files_data_open", "__nss_readline", "__open_catalog", "__shm_get_name", "__mmap",
        "__gconv_open", "_IO_fopen", "_IO_fdopen", "_IO_fclose", "_IO_fread", "_IO_fwrite", "_IO_fflush", "_IO_popen",
        "_IO_proc_open", "_IO_proc_close", "_IO_getc", "_IO_putc", "_IO_puts", "_IO_gets", "_IO_fgets", "_IO_fputs",
        "_IO_fprintf", "_IO_printf", "_IO_vfprintf", "_IO_vfscanf", "_IO_fgetpos", "_IO_fgetpos64", "_IO_fsetpos",
        "_IO_fsetpos64", "_IO_ftell", "_IO_file_open", "_IO_file_fopen", "_IO_file_read", "_IO_file_write",
        "_IO_file_stat", "_IO_file_seek", "_IO_file_sync", "_IO_file_close", "_IO_file_close_it", "_IO_file_attach",
        "_IO_do_write", "_IO_wdo_write", "_IO_new_do_write", "__ivaliduser",
    ]),
];

const BY_NUMBER: &str = "posix/number.rs";

/// The kernel's calls that take a path or a descriptor, by the names of `asm/unistd.h` without their `__NR_`.
#[rustfmt::skip]
pub const NUMBERS: &[Group] = &[
    served("open and close", BY_NUMBER, &[
        "open", "openat", "openat2", "creat", "close", "close_range",
    ]),
    served("descriptors", BY_NUMBER, &[
        "dup", "dup2", "dup3", "fcntl", "ioctl",
    ]),
    served("read, write and position", BY_NUMBER, &[
        "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "lseek",
    ]),
    served("size and durability", BY_NUMBER, &[
        "truncate", "ftruncate", "fallocate", "fsync", "fdatasync", "sync", "sync_file_range", "syncfs", "readahead",
        "setrlimit", "prlimit64",
    ]),
    served("names", BY_NUMBER, &[
        "unlink", "unlinkat", "rename", "renameat", "renameat2", "linkat",
    ]),
    served("mode, owner, times", BY_NUMBER, &[
        "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat", "utime", "utimes",
        "futimesat", "utimensat",
    ]),
    served("status", BY_NUMBER, &[
        "stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs",
    ]),
    served("processes", BY_NUMBER, &[
        "execve", "execveat", "exit_group",
    ]),
    refused("watches of reads and writes", BY_NUMBER, "ENOSPC", &["inotify_add_watch"]),
    refused("shared mappings by a descriptor that may write", BY_NUMBER, "ENODEV", &["mmap"]),
    refused("mappings that grow", BY_NUMBER, "ENOMEM", &["mremap"]),
    refused("moves inside the kernel", BY_NUMBER, "EXDEV", &["copy_file_range"]),
    refused("moves inside the kernel", BY_NUMBER, "EINVAL", &["sendfile", "splice"]),
    served("the kernel's asynchronous I/O", BY_NUMBER, &["io_submit"]),
    refused("rings, in every redirected program", BY_NUMBER, "ENOSYS", &["io_uring_setup"]),
    harmless("rings and aio without a descriptor of a file", "they work on contexts and rings", &[
        "io_setup", "io_destroy", "io_getevents", "io_pgetevents", "io_cancel", "io_uring_enter", "io_uring_register",
    ]),
    harmless("new descriptors of other kinds", "the descriptor is found at the first use", &[
        "memfd_create", "memfd_secret", "name_to_handle_at", "open_by_handle_at", "open_tree", "open_tree_attr",
        "pidfd_open", "pidfd_getfd", "userfaultfd", "perf_event_open", "bpf", "landlock_create_ruleset", "seccomp",
    ]),
    harmless("directories and mounts", "a managed file is in its directory under its name, as a stub", &[
        "getdents", "getdents64", "mkdir", "mkdirat", "rmdir", "chdir", "fchdir", "chroot", "getcwd", "mount",
        "umount2", "pivot_root", "move_mount", "mount_setattr", "fsopen", "fsconfig", "fsmount", "fspick", "statmount",
        "listmount", "lookup_dcookie",
    ]),
    harmless("names", "they concern the name or the inode, and both are the stub's", &[
        "access", "faccessat", "faccessat2", "link", "symlink", "symlinkat", "readlink", "readlinkat", "mknod",
        "mknodat", "acct", "swapon", "swapoff", "uselib", "quotactl", "quotactl_fd", "file_getattr", "file_setattr",
    ]),
    harmless("extended attributes", "they are the stub's", &[
        "getxattr", "lgetxattr", "fgetxattr", "setxattr", "lsetxattr", "fsetxattr", "listxattr", "llistxattr",
        "flistxattr", "removexattr", "lremovexattr", "fremovexattr", "getxattrat", "setxattrat", "listxattrat",
        "removexattrat",
    ]),
    harmless("locks and advice", "the program's descriptor is the stub's; advice moves no byte", &[
        "flock", "fadvise64", "cachestat",
    ]),
    harmless("mappings", "a mapping of a managed file is memory of the process's own", &[
        "munmap", "mprotect", "msync", "madvise", "mincore", "remap_file_pages",
    ]),
    harmless("pipes only", "a managed file is refused by the kernel as any file would be", &[
        "tee", "vmsplice",
    ]),
    harmless("sockets, terminals, events, processes", "no regular file behind them", &[
        "socket", "socketpair", "bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername",
        "getsockopt", "setsockopt", "shutdown", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg",
        "pipe", "pipe2", "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl",
        "epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl_old", "epoll_wait_old", "eventfd", "eventfd2",
        "signalfd", "signalfd4", "timerfd_create", "timerfd_gettime", "timerfd_settime", "inotify_init",
        "inotify_init1", "inotify_rm_watch", "fanotify_init", "fanotify_mark",
        "pidfd_send_signal", "process_madvise", "process_mrelease", "setns", "mq_open", "mq_unlink", "mq_timedsend",
        "mq_timedreceive", "mq_notify", "mq_getsetattr", "kcmp", "landlock_add_rule", "landlock_restrict_self",
    ]),
    harmless("modules and kernels", "the kernel's own files, never managed", &[
        "finit_module", "kexec_file_load",
    ]),
    harmless("new processes", "a child made otherwise than by libc finds its state emptied", &[
        "fork", "vfork", "clone", "clone3",
    ]),
];
