/* Operations from their post to the test that says they are over. They are carried out in any order, some of them while they are posted.
 *
 * What an answer and a transfer's memory hold while they are lent is noted and compared before they are used: a caller that frees or
 * changes them meanwhile is found. A late request is carried by a process of its own, which goes on when its client is killed. */
#include "pvfs2.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FILLER = 0xa5, REFUSAL_MS = 20, REMEMBERED = 1024 };

static const char *const names[KINDS] = {
    "add", "lookup", "getattr", "mkdir", "readdir", "create", "remove", "rename", "io", "truncate", "flush", "datafiles", "statfs", "root",
};
static struct operation *under_way;
static int count_under_way, peak;
static int64_t ended[REMEMBERED];
static unsigned next_ended;

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t dice(void)
{
    static uint64_t state;
    if (!state && getrandom(&state, sizeof state, 0) != sizeof state)
        state = now_ns();
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

bool is_under_way(void)
{
    return under_way;
}

/* Of which the caller does not know yet. */
int ended_listings(void)
{
    int count = 0;
    for (struct operation *operation = under_way; operation; operation = operation->next)
        count += operation->kind == READDIR && operation->has_ended;
    return count;
}

struct operation *new_operation(enum kind kind, void *user, void *answer, size_t answer_bytes)
{
    struct operation *operation = calloc(1, sizeof *operation);
    operation->kind = kind;
    operation->user = user;
    operation->answer = answer;
    operation->answer_bytes = answer_bytes;
    operation->courier = -1;
    REQUIRE(!answer_bytes || (answer && !((uintptr_t)answer % 4)), "no place for the answer");
    return operation;
}

/* Memory that is lent. */

static uint64_t digest_of(const unsigned char *memory, int64_t bytes)
{
    uint64_t digest = 14695981039346656037u, word;
    for (; bytes >= 8; memory += 8, bytes -= 8) {
        memcpy(&word, memory, 8);
        digest = (digest ^ word) * 1099511628211u;
        digest ^= digest >> 29;
    }
    for (; bytes; memory++, bytes--)
        digest = (digest ^ *memory) * 1099511628211u;
    return digest;
}

static void note_memory(struct operation *operation)
{
    if (operation->answer_bytes)
        memset(operation->answer, FILLER, operation->answer_bytes);
    if (operation->kind != IO)
        return;
    if (operation->io == IO_READ)
        memset(operation->memory, FILLER, (size_t)operation->length);
    operation->digest = digest_of(operation->memory, operation->length);
    if (operation->request != &byte_request)
        operation->request->users++;
}

static void compare_memory(struct operation *operation)
{
    for (size_t at = 0; at < operation->answer_bytes; at++)
        REQUIRE(((unsigned char *)operation->answer)[at] == FILLER, "the place for the answer of `%s` was used before it was over",
                names[operation->kind]);
    if (operation->kind != IO)
        return;
    REQUIRE(digest_of(operation->memory, operation->length) == operation->digest, "the memory of a transfer was changed before it was over");
}

/* What servers do. */

static int transfer(struct operation *operation, const struct control *control, const struct placement *placement)
{
    char path[64];
    int64_t size, used = 0, length = operation->length, done = 0;
    path_of_data(placement, path);
    if (length > control->short_bytes)
        length = control->short_bytes;
    int file = openat(operation->file_system->directory, path, (operation->io == IO_READ ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    if (file == -1)
        return errno == ENOENT ? MISSING : IO_ERROR;
    int status = size_of(operation->file_system, placement, &size);
    if (!status && operation->io == IO_WRITE && operation->offset + length > size) {
        if (control->capacity != INT64_MAX)
            status = used_bytes(operation->file_system, placement->server, &used);
        if (control->full || used + operation->offset + length - size > control->capacity)
            status = FULL;
    }
    while (!status && done < length) {
        unsigned char *at = operation->memory + done;
        ssize_t part = operation->io == IO_READ ? pread(file, at, (size_t)(length - done), operation->offset + done)
                                                : pwrite(file, at, (size_t)(length - done), operation->offset + done);
        if (part < 0)
            status = errno == ENOSPC ? FULL : IO_ERROR;
        if (part <= 0)
            break;
        done += part;
    }
    close(file);
    *(int64_t *)operation->answer = done;
    return status;
}

static int set_length(struct operation *operation, const struct placement *placement)
{
    char path[64];
    path_of_data(placement, path);
    int file = openat(operation->file_system->directory, path, O_WRONLY | O_CLOEXEC);
    if (file == -1)
        return errno == ENOENT ? MISSING : IO_ERROR;
    int status = ftruncate(file, operation->offset) ? IO_ERROR : 0;
    close(file);
    return status;
}

static int attributes_of(struct operation *operation, const struct control *control, const struct placement *placement)
{
    struct attributes attributes = {.kind = TYPE_FILE, .mask = MASK_SIZE | MASK_TYPE};
    int status = size_of(operation->file_system, placement, &attributes.size);
    /* As a distribution over several datafiles has it. */
    if (control->misplaced && placement->datafile != operation->object.handle)
        attributes.size += 1 << 16;
    memcpy(operation->answer, &attributes, sizeof attributes);
    return status;
}

static int space_of(struct operation *operation, const struct control *control)
{
    struct statvfs space;
    int64_t used;
    int status = used_bytes(operation->file_system, operation->target, &used);
    if (status || fstatvfs(operation->file_system->directory, &space))
        return status ? status : IO_ERROR;
    struct server_stat *stat = operation->answer;
    *stat = (struct server_stat){.file_system = operation->file_system->id, .address = "", .kind = IO_SERVER};
    stat->bytes_available = (int64_t)(space.f_bavail * space.f_frsize);
    stat->bytes_total = (int64_t)(space.f_blocks * space.f_frsize);
    if (control->capacity != INT64_MAX) {
        stat->bytes_available = control->capacity > used ? control->capacity - used : 0;
        stat->bytes_total = control->capacity;
    }
    if (control->full)
        stat->bytes_available = 0;
    return 0;
}

static int answer_reference(struct operation *operation, int status, uint64_t handle)
{
    *(struct reference *)operation->answer = (struct reference){.handle = handle, .file_system = operation->file_system->id};
    return status;
}

static int carry_out(struct operation *operation, const struct control *control)
{
    const struct file_system *file_system = operation->file_system;
    struct placement placement;
    uint64_t handle = operation->object.handle;
    int status = 0;
    switch (operation->kind) {
    case ADD:
        return add_file_system(operation->mount);
    case ROOT:
    case LOOKUP:
        status = lookup_path(file_system, handle, operation->name, &handle);
        return answer_reference(operation, status, handle);
    case MKDIR:
        status = make_directory(file_system, handle, operation->name, &handle);
        return answer_reference(operation, status, handle);
    case CREATE:
        status = create_file(file_system, handle, operation->name, operation->target, &handle);
        return answer_reference(operation, status, handle);
    case REMOVE:
        return remove_name(file_system, handle, operation->name);
    case RENAME:
        return rename_name(file_system, handle, operation->name, operation->other.handle, operation->new_name);
    case READDIR:
        return list_names(file_system, handle, (uint64_t)operation->offset, operation->most, operation->answer);
    case STATFS:
        return space_of(operation, control);
    default:
        break;
    }
    status = placement_of(file_system, handle, &placement);
    if (status)
        return status;
    switch (operation->kind) {
    case IO:
        return transfer(operation, control, &placement);
    case TRUNCATE:
        return set_length(operation, &placement);
    case ATTRIBUTES:
        return attributes_of(operation, control, &placement);
    case DATAFILES:
        *(uint64_t *)operation->answer = placement.datafile;
        return 0;
    default: {
        int64_t size;
        return size_of(file_system, &placement, &size);
    }
    }
}

/* The server that the operation is about; metadata is on the first. */
static int server_of_operation(const struct operation *operation)
{
    struct placement placement;
    switch (operation->kind) {
    case CREATE:
    case STATFS:
        return operation->target;
    case IO:
    case TRUNCATE:
    case FLUSH:
    case ATTRIBUTES:
        return placement_of(operation->file_system, operation->object.handle, &placement) ? 0 : placement.server;
    default:
        return 0;
    }
}

/* A byte more in a file that tests look at. */
static void note_courier(int directory, const char *name)
{
    int file = openat(directory, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file == -1 || write(file, ".", 1) != 1)
        abort();
    close(file);
}

/* A process that carries a write or truncation to its server, whatever becomes of its client. Returns what its answer is read from. */
static int send_courier(struct operation *operation, const struct control *control)
{
    struct placement placement;
    int pipes[2];
    if (placement_of(operation->file_system, operation->object.handle, &placement) || pipe2(pipes, O_CLOEXEC | O_NONBLOCK))
        return -1;
    note_courier(operation->file_system->directory, "sent");
    struct operation sent = *operation;
    int64_t moved = -1;
    sent.answer = &moved;
    if (operation->kind == IO)
        sent.memory = memcpy(malloc((size_t)operation->length), operation->memory, (size_t)operation->length);
    pid_t child = fork();
    if (child == 0) {
        if (fork())
            _exit(0);
        setsid();
        /* Locks of the client must not outlive it. */
        int answers = fcntl(pipes[1], F_DUPFD, 5), directory = fcntl(operation->file_system->directory, F_DUPFD, 5);
        if (dup2(answers, 3) == -1 || dup2(directory, 4) == -1 || close_range(5, ~0u, 0))
            _exit(1);
        struct file_system file_system = *operation->file_system;
        file_system.directory = 4;
        sent.file_system = &file_system;
        struct timespec pause = {.tv_sec = control->late_ms / 1000, .tv_nsec = control->late_ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
        int64_t said[2] = {operation->kind == IO ? transfer(&sent, control, &placement) : set_length(&sent, &placement), moved};
        note_courier(4, "arrived");
        _exit(write(3, said, sizeof said) != sizeof said);
    }
    close(pipes[1]);
    if (operation->kind == IO)
        free(sent.memory);
    while (child > 0 && waitpid(child, NULL, 0) == -1 && errno == EINTR)
        ;
    return pipes[0];
}

/* From post to end. */

static void end(struct operation *operation, int status)
{
    operation->status = status;
    operation->has_ended = true;
    if (operation->courier != -1)
        close(operation->courier);
    operation->courier = -1;
}

/* Whether the servers let it be carried out; `status` is what becomes of it if not. */
static bool is_served(struct operation *operation, struct control *control, int *status)
{
    *control = (struct control){.short_bytes = INT64_MAX, .capacity = INT64_MAX};
    *status = 0;
    if (!operation->file_system)
        return true;
    int server = server_of_operation(operation);
    struct control of_metadata = control_of(operation->file_system, 0);
    *control = control_of(operation->file_system, server);
    bool needs_metadata = operation->kind != IO && operation->kind != STATFS && operation->kind != FLUSH;
    if (control->down || (needs_metadata && of_metadata.down))
        *status = REFUSED;
    else if (control->failure && (!strcmp(control->failing, "any") || !strcmp(control->failing, names[operation->kind])))
        *status = -control->failure;
    return !*status;
}

/* Carries out what is due. */
static void move_on(struct operation *operation)
{
    struct control control;
    int status;
    if (operation->has_ended || now_ns() < operation->due_ns)
        return;
    if (operation->courier != -1) {
        int64_t said[2];
        if (read(operation->courier, said, sizeof said) != sizeof said)
            return;
        compare_memory(operation);
        if (operation->kind == IO)
            *(int64_t *)operation->answer = said[1];
        end(operation, (int)said[0]);
        return;
    }
    bool is_so = is_served(operation, &control, &status);
    if (is_so && control.hung_ms) {
        if (!operation->hung_until_ns)
            operation->hung_until_ns = now_ns() + (uint64_t)control.hung_ms * 1000000;
        if (now_ns() < operation->hung_until_ns)
            return;
        is_so = false;
        status = TIMED_OUT;
    }
    compare_memory(operation);
    end(operation, is_so ? carry_out(operation, &control) : status);
}

/* The caller is told of its end. */
static void free_operation(struct operation *operation)
{
    if (operation->request && operation->request != &byte_request)
        operation->request->users--;
    ended[next_ended++ % REMEMBERED] = operation->id;
    free(operation);
}

static void begin(struct operation *operation)
{
    struct control control;
    int status;
    for (struct operation *other = under_way; other; other = other->next)
        REQUIRE(other->kind != ADD && operation->kind != ADD, "begun while a file system is added, or the other way round");
    note_memory(operation);
    bool is_so = is_served(operation, &control, &status);
    operation->due_ns = now_ns() + (uint64_t)(is_so ? control.delay_ms : REFUSAL_MS) * 1000000;
    operation->may_end_at_once &= is_so && !control.delay_ms && !control.hung_ms && !control.late_ms;
    if (is_so && control.late_ms && (operation->kind == TRUNCATE || (operation->kind == IO && operation->io == IO_WRITE)))
        operation->courier = send_courier(operation, &control);
}

int post(struct operation *operation, int64_t *id, const char *call)
{
    REQUIRE(id, "%s: no place for the operation's number", call);
    begin(operation);
    /* As with what a cache knows. */
    if (operation->may_end_at_once && dice() % 8 == 0) {
        move_on(operation);
        int status = operation->status;
        *id = -1;
        free_operation(operation);
        return status;
    }
    REQUIRE(count_under_way < MAX_ENDED, "more than %d operations are under way", MAX_ENDED);
    do
        operation->id = (int64_t)(dice() >> 1);
    while (operation->id <= 0);
    struct operation **link = &under_way;
    while (*link && dice() % 4)
        link = &(*link)->next;
    operation->next = *link;
    *link = operation;
    if (++count_under_way > peak && operation->file_system)
        note_peak(operation->file_system, peak = count_under_way);
    *id = operation->id;
    return 0;
}

static void move_all_on(void)
{
    for (struct operation *operation = under_way; operation; operation = operation->next)
        move_on(operation);
}

int run_now(struct operation *operation)
{
    begin(operation);
    for (move_on(operation); !operation->has_ended; move_on(operation)) {
        move_all_on();
        usleep(200);
    }
    int status = operation->status;
    free(operation);
    return status;
}

static struct operation **find(int64_t id)
{
    struct operation **link = &under_way;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    if (*link)
        return link;
    for (unsigned at = 0; at < REMEMBERED; at++)
        REQUIRE(ended[at] != id || !id, "operation %lld is over already", (long long)id);
    violation("%lld is no operation", (long long)id);
}

int test_some(int64_t *ids, int *count, void **users, int *statuses, int timeout_ms)
{
    REQUIRE(ids && count && users && statuses, "no place for what is over");
    REQUIRE(*count >= 1 && *count <= MAX_ENDED, "%d operations are asked for, of 1 to %d", *count, MAX_ENDED);
    int asked = *count, found = 0;
    for (int at = 0; at < asked; at++) {
        find(ids[at]);
        for (int other = 0; other < at; other++)
            REQUIRE(ids[other] != ids[at], "operation %lld is asked for twice", (long long)ids[at]);
    }
    uint64_t until = now_ns() + (uint64_t)timeout_ms * 1000000;
    int64_t over[MAX_ENDED];
    for (;;) {
        move_all_on();
        for (int at = 0; at < asked; at++)
            if ((*find(ids[at]))->has_ended)
                over[found++] = ids[at];
        if (found || now_ns() >= until)
            break;
        usleep(100);
    }
    /* In any order, and not always all of them. */
    for (int at = found - 1; at > 0; at--) {
        int other = (int)(dice() % (unsigned)(at + 1));
        int64_t id = over[at];
        over[at] = over[other];
        over[other] = id;
    }
    if (found > 1 && dice() % 4 == 0)
        found = 1 + (int)(dice() % (unsigned)found);
    for (int at = 0; at < found; at++) {
        struct operation **link = find(over[at]), *operation = *link;
        *link = operation->next;
        count_under_way--;
        ids[at] = operation->id;
        users[at] = operation->user;
        statuses[at] = operation->status;
        free_operation(operation);
    }
    *count = found;
    return 0;
}
