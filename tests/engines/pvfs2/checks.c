/* What a caller of libpvfs2 has to keep to. Whatever breaks it ends the process: a test cannot pass by chance then. */
#include "pvfs2.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_S = 3600, MAX_LENT = 256 };

static const char *current = "a call";

_Noreturn void violation(const char *format, ...)
{
    char text[1024];
    int length = snprintf(text, sizeof text, "libpvfs2 stand-in: process %d: %s: ", getpid(), current);
    va_list rest;
    va_start(rest, format);
    length += vsnprintf(text + length, sizeof text - (size_t)length - 1, format, rest);
    va_end(rest);
    if (length > (int)sizeof text - 2)
        length = (int)sizeof text - 2;
    text[length++] = '\n';
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/violations", library_directory());
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if ((log != -1 && write(log, text, (size_t)length) < 0) || write(2, text, (size_t)length) < 0)
        abort();
    abort();
}

/* Where this library lies: the file systems are beside it. */
const char *library_directory(void)
{
    static char directory[PATH_MAX];
    Dl_info info;
    if (!directory[0] && dladdr((void *)library_directory, &info) && realpath(info.dli_fname, directory))
        dirname(directory);
    return directory;
}

static int inside;
static pid_t process;
static long thread;
static bool is_started, is_finalized;

/* Every call begins here. Of a real library one thread at a time may be inside; here it is the same one for ever. */
void enter(const char *call, enum stage earliest)
{
    long caller = syscall(SYS_gettid);
    bool is_first = !process;
    if (is_first)
        process = getpid(), thread = caller;
    if (!is_first && process != getpid())
        current = call, violation("called in a child of the process that loaded it");
    if (__atomic_exchange_n(&inside, 1, __ATOMIC_ACQ_REL))
        violation("another thread called %s meanwhile", call);
    current = call;
    REQUIRE(thread == caller, "called by a second thread");
    REQUIRE(!is_finalized, "called after PVFS_sys_finalize");
    REQUIRE(is_started || earliest == BEFORE_START, "called before PVFS_sys_initialize");
}

int leave(int status)
{
    __atomic_store_n(&inside, 0, __ATOMIC_RELEASE);
    return status;
}

void has_started(bool is_so)
{
    REQUIRE(!is_started, "called twice");
    is_started = is_so;
    if (!is_so)
        process = 0; /* Another thread may try again. */
}

void has_finalized(void)
{
    is_finalized = true;
}

/* Memory that a caller has to give back. */

static struct {
    void *memory;
    size_t bytes;
    bool is_of_credential;
} lent[MAX_LENT];

static void *lend_for(size_t bytes, bool is_of_credential)
{
    for (int at = 0; at < MAX_LENT; at++) {
        if (lent[at].memory)
            continue;
        lent[at].memory = malloc(bytes ? bytes : 1);
        lent[at].bytes = bytes;
        lent[at].is_of_credential = is_of_credential;
        return lent[at].memory;
    }
    violation("%d pieces of memory were not freed", MAX_LENT);
}

void *lend(size_t bytes)
{
    return lend_for(bytes, false);
}

void take_back(void *memory)
{
    if (!memory)
        return;
    for (int at = 0; at < MAX_LENT; at++) {
        if (lent[at].memory != memory)
            continue;
        memset(memory, 0xdd, lent[at].bytes);
        free(memory);
        lent[at].memory = NULL;
        return;
    }
    violation("%p is no memory of the library, or was freed already", memory);
}

static struct request *requests;

/* Between two operations nothing is held but one credential. */
void nothing_is_left(void)
{
    int of_credentials = 0, listings = 0;
    for (int at = 0; at < MAX_LENT; at++) {
        of_credentials += lent[at].memory && lent[at].is_of_credential;
        listings += lent[at].memory && !lent[at].is_of_credential;
    }
    REQUIRE(listings <= ended_listings(), "the entries of a directory were not freed");
    REQUIRE(of_credentials <= 3, "a credential that was replaced was not freed");
    for (struct request *request = requests; request; request = request->next)
        REQUIRE(request->users, "a request was not freed");
}

/* Credentials. `credential` beside the library may say for how many seconds each is valid, or that none is made (0). */

static struct credential made;
static bool is_refused;

static long life_s(void)
{
    char path[PATH_MAX], text[32] = "";
    snprintf(path, sizeof path, "%s/credential", library_directory());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file == -1)
        return LIFE_S;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? strtol(text, NULL, 10) : LIFE_S;
}

static void note_credential(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/credentials", library_directory());
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file == -1)
        return;
    dprintf(file, "%d\n", getpid());
    close(file);
}

int make_credential(struct credential *credential)
{
    long life = life_s();
    is_refused = life == 0;
    if (is_refused)
        return SECURITY;
    *credential = (struct credential){
        .user = geteuid(), .group_count = 1, .groups = lend_for(sizeof(uint32_t), true), .issuer = lend_for(16, true),
        .expires = (uint64_t)time(NULL) + (uint64_t)life, .signature_bytes = 16, .signature = lend_for(16, true),
    };
    credential->groups[0] = getegid();
    memset(credential->issuer, 0, 16);
    strcpy(credential->issuer, "C:stand-in");
    for (int at = 0; at < 16; at++)
        credential->signature[at] = (unsigned char)dice();
    made = *credential;
    note_credential();
    return 0;
}

int check_credential(const struct credential *credential)
{
    REQUIRE(credential, "no credential");
    REQUIRE(!memcmp(credential, &made, sizeof made), "the credential is not the one that was made last");
    bool is_held = false;
    for (int at = 0; at < MAX_LENT; at++)
        is_held |= lent[at].memory == credential->signature;
    REQUIRE(is_held, "the credential was freed");
    REQUIRE(credential->groups[0] == getegid() && !strcmp(credential->issuer, "C:stand-in"), "the credential was changed");
    if ((uint64_t)time(NULL) < credential->expires)
        return 0;
    REQUIRE(is_refused, "the credential has expired, and a new one can be had");
    return SECURITY;
}

/* Arguments. */

void check_text(const char *text, const char *what)
{
    REQUIRE(text && text[0], "no %s", what);
    REQUIRE(strnlen(text, 4096) < 4096, "the %s is too long", what);
}

struct file_system *check_reference(const struct reference *reference, const char *what)
{
    struct file_system *file_system = file_system_of(reference->file_system);
    REQUIRE(file_system, "the %s is in file system %d, which was not added", what, reference->file_system);
    REQUIRE(reference->handle, "the %s has no handle", what);
    return file_system;
}

struct request byte_request = {.bytes = 1, .is_committed = true};

struct request *new_request(int64_t bytes)
{
    struct request *request = calloc(1, sizeof *request);
    request->bytes = bytes;
    request->next = requests;
    requests = request;
    return request;
}

struct request *check_request(struct request *request, const char *what)
{
    if (request == &byte_request)
        return request;
    for (struct request *known = requests; known; known = known->next)
        if (known == request)
            return request;
    violation("the %s is no request, or was freed already", what);
}

void free_request(struct request *request)
{
    REQUIRE(!request->users, "an operation under way uses the request");
    struct request **link = &requests;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    memset(request, 0xdd, sizeof *request);
    free(request);
}
