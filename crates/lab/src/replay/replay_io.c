/* The program of `stripewise replay`: does the requests that a script gives each rank, and tells how long they took. It knows
 * nothing of Stripewise and runs redirected or not. Compiled with an MPI's compiler it does its I/O by MPI_File_read_at and
 * MPI_File_write_at; with -DWITHOUT_MPI its ranks are processes that it forks, and do theirs by pread and pwrite.
 *
 * Script, of 64-bit words of this machine: magic, ranks, files, phases; for each file its size, flags, the length of its path
 * and the path, padded to a word; for each rank the position of its first record in the script and the number of its records.
 * A record is two words: kind (4 bits), file (28 bits), bytes (32 bits); offset or nanoseconds. crates/lab/src/replay/script.rs
 * writes it.
 *
 * Data (--verify): the 8-byte word at word offset i of file f holds a value of (f, i) alone, so ranks that write the same
 * place write the same bytes, whatever the order, and a reader can tell every misplaced byte. Offsets and sizes may be any.
 *
 * Time. All ranks start at one agreed instant (one host: CLOCK_MONOTONIC is the same for all) and nothing here waits by
 * spinning, which would starve the sleepers of a machine with fewer cores than ranks. Barriers cut the run into stages. A
 * stage lasts from the begin of the first request in it, of whichever rank, to the end of the last: computing before a burst
 * is not its time, computing between two requests is. Making and comparing data is inside it and printed as verify_s.
 * Latencies go into a histogram of 64 buckets an octave: percentiles are the upper ends of their buckets, at most 1.6 % above.
 *
 * Phases (--mark COMMAND): rank 0 runs the command at the begin of every phase but the first, the phase's number behind it,
 * while the other ranks go on. That time is the phase's.
 *
 * Slices (--slice NS): how many bytes of requests ended in each slice of that many nanoseconds since the agreed start.
 *
 * Prints one JSON line. Exit status: 0 done, 1 wrong data, 2 an error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31594C5045525753) /* "SWREPLY1" */
#define WORD_STEP UINT64_C(0xD1342543DE82EF95)
#define FILE_STEP UINT64_C(0x9E3779B97F4A7C15)
#define START_DELAY_NS INT64_C(250000000)
#define POLL_SHORTEST_NS 100000
#define POLL_LONGEST_NS 2000000
#define CHUNK_BYTES (UINT64_C(4) << 20)
#define OCTAVE_BITS 6
#define SLICES_MOST (UINT64_C(1) << 20)
#define BUCKETS (64 << OCTAVE_BITS)

enum { READ, WRITE, DIRECTIONS };
enum { KIND_READ, KIND_WRITE, KIND_THINK, KIND_UNTIL, KIND_BARRIER, KIND_PHASE };
enum { FILE_READ = 1, FILE_WRITTEN = 2, FILE_PREPARE = 4, FILE_REMOVE = 8 };

struct file {
    uint64_t size_bytes, flags;
    char *path;
};

struct record {
    unsigned kind;
    uint32_t file;
    uint64_t bytes, where;
};

/* Stage i of the run; arrays, so that each is reduced at once. Times are from the agreed start. */
struct stages {
    uint64_t count;
    int64_t *begin_ns; /* INT64_MAX: nothing done */
    int64_t *end_ns, *bytes[DIRECTIONS];
    uint32_t *phase;
};

static int rank, ranks;
static bool verifying;
static const char *mark_command; /* NULL: phases are not marked */
static int64_t slice_ns;         /* 0: bytes are not told by time */
static uint64_t file_count, phase_count;
static struct file *files;
static const uint64_t *records;
static uint64_t record_count, largest_bytes;

static void leave(int status);

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "replay_io: rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    leave(2);
}

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes ? bytes : 1) != 0)
        fail("no memory for %zu bytes", bytes);
    return memory;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(int64_t instant_ns)
{
    struct timespec instant = {.tv_sec = instant_ns / 1000000000, .tv_nsec = instant_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &instant, NULL) == EINTR)
        ;
}

/* ---- ranks: what they tell each other -------------------------------------------------------------------------- */

enum operation { MAX, MIN, SUM };

#ifdef WITHOUT_MPI
#include "ranks_posix.h"
#else
#include "ranks_mpi.h"
#endif

static int64_t reduced(int64_t value, enum operation operation)
{
    reduce(&value, 1, operation);
    return value;
}

/* ---- the script ------------------------------------------------------------------------------------------------ */

static struct record record_at(uint64_t index)
{
    uint64_t head = records[2 * index];
    return (struct record){.kind = head & 15, .file = head >> 4 & 0xFFFFFFF, .bytes = head >> 32,
                           .where = records[2 * index + 1]};
}

/* Words of the script; `map_script` runs before the ranks are started, so its faults name no rank but 0. */
static const uint64_t *script;
static uint64_t script_words, index_word;

static uint64_t word(uint64_t at)
{
    if (at >= script_words)
        fail("the script ends too early");
    return script[at];
}

static void map_script(const char *path)
{
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (opened < 0 || fstat(opened, &status) != 0)
        fail("script %s: %s", path, strerror(errno));
    script_words = (uint64_t)status.st_size / 8;
    script = script_words ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, opened, 0) : MAP_FAILED;
    if (script == MAP_FAILED || word(0) != MAGIC)
        fail("%s is not a script of this version", path);
    close(opened);
    file_count = word(2);
    phase_count = word(3);
    files = allocate(file_count * sizeof *files);
    uint64_t at = 4;
    for (uint64_t i = 0; i < file_count; i++) {
        uint64_t length = word(at + 2);
        files[i] = (struct file){.size_bytes = word(at), .flags = word(at + 1), .path = allocate(length + 1)};
        word(at + 2 + (length + 7) / 8);
        memcpy(files[i].path, script + at + 3, length);
        files[i].path[length] = 0;
        at += 3 + (length + 7) / 8;
    }
    index_word = at;
}

static void find_records(void)
{
    if (word(1) != (uint64_t)ranks)
        fail("the script is for %" PRIu64 " ranks, these are %d", word(1), ranks);
    uint64_t first = word(index_word + 2 * (uint64_t)rank);
    record_count = word(index_word + 2 * (uint64_t)rank + 1);
    if (record_count)
        word(first + 2 * record_count - 1);
    records = script + first;
    for (uint64_t i = 0; i < record_count; i++) {
        struct record record = record_at(i);
        if (record.kind <= KIND_WRITE && record.bytes > largest_bytes)
            largest_bytes = record.bytes;
    }
}

/* ---- the data -------------------------------------------------------------------------------------------------- */

static uint64_t pattern_word(uint64_t file, uint64_t index)
{
    uint64_t value = (file + 1) * FILE_STEP + index * WORD_STEP;
    return value ^ (value >> 32);
}

/* `words` lies in memory as the file's words do: the data begin `offset % 8` bytes within it. */
static void fill(uint64_t *words, uint64_t file, uint64_t offset, uint64_t bytes)
{
    uint64_t count = (offset % 8 + bytes + 7) / 8, first = (file + 1) * FILE_STEP + offset / 8 * WORD_STEP;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = first + i * WORD_STEP;
        words[i] = value ^ (value >> 32);
    }
}

/* Whether what was read is right; says where not. */
static bool verify(const uint64_t *words, uint64_t file, uint64_t offset, uint64_t bytes)
{
    uint64_t skipped = offset % 8, whole_begin = skipped ? 1 : 0, whole_end = (skipped + bytes) / 8;
    uint64_t first = (file + 1) * FILE_STEP + offset / 8 * WORD_STEP, difference = 0;
    for (uint64_t i = whole_begin; i < whole_end; i++) {
        uint64_t value = first + i * WORD_STEP;
        difference |= words[i] ^ value ^ (value >> 32);
    }
    const unsigned char *found = (const unsigned char *)words + skipped;
    bool edges = skipped || (skipped + bytes) % 8;
    if (!difference && !edges)
        return true;
    for (uint64_t i = 0; i < bytes; i++) {
        if (!difference && i >= 8 && i + 8 < bytes)
            i = bytes - 8; /* only the edges are left to look at */
        uint64_t expected = pattern_word(file, (offset + i) / 8);
        unsigned char byte = ((const unsigned char *)&expected)[(offset + i) % 8];
        if (found[i] != byte) {
            fprintf(stderr, "replay_io: rank %d: wrong data in %s at byte %" PRIu64 ": found %02x, expected %02x\n",
                    rank, files[file].path, offset + i, found[i], byte);
            return false;
        }
    }
    return true;
}

/* ---- latencies ------------------------------------------------------------------------------------------------- */

static int64_t latencies[DIRECTIONS][BUCKETS];

static int bucket_of(uint64_t ns)
{
    int shift = ns >> (OCTAVE_BITS + 1) ? 63 - __builtin_clzll(ns) - OCTAVE_BITS : 0;
    return (shift << OCTAVE_BITS) + (int)(ns >> shift);
}

/* The upper end of a bucket. */
static double bucket_s(int bucket)
{
    int shift = bucket >> OCTAVE_BITS > 1 ? (bucket >> OCTAVE_BITS) - 1 : 0;
    uint64_t low = (uint64_t)(bucket - (shift << OCTAVE_BITS)) << shift;
    return (double)(low + (UINT64_C(1) << shift)) / 1e9;
}

static double percentile(const int64_t *counts, int64_t total, double share)
{
    int64_t seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += counts[i];
        if (seen > 0 && (double)seen >= share * (double)total)
            return bucket_s(i);
    }
    return 0;
}

/* ---- bytes over time --------------------------------------------------------------------------------------------- */

static int64_t *slice_bytes;
static uint64_t slice_count, slice_room;

/* Room for so many slices, those that are new with nothing in them. */
static void have_slices(uint64_t count)
{
    if (count > SLICES_MOST)
        fail("%" PRIu64 " slices of time are too many; make them longer", count);
    if (count > slice_room) {
        uint64_t room = slice_room ? slice_room : 64;
        while (room < count)
            room *= 2;
        slice_bytes = realloc(slice_bytes, room * sizeof *slice_bytes);
        if (!slice_bytes)
            fail("no memory for %" PRIu64 " slices of time", room);
        memset(slice_bytes + slice_room, 0, (room - slice_room) * sizeof *slice_bytes);
        slice_room = room;
    }
    slice_count = count > slice_count ? count : slice_count;
}

static void count_in_slice(int64_t ended_ns, uint64_t bytes)
{
    uint64_t slice = ended_ns > 0 ? (uint64_t)(ended_ns / slice_ns) : 0;
    have_slices(slice + 1);
    slice_bytes[slice] += (int64_t)bytes;
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

static char *buffer; /* of words that lie as the file's do */
static int64_t verify_ns;

/* Every rank writes its share of the files that are read before they are written. */
static void prepare(void)
{
    uint64_t *words = allocate(CHUNK_BYTES + 16);
    for (uint64_t i = 0; i < file_count; i++) {
        if (!(files[i].flags & FILE_PREPARE))
            continue;
        uint64_t chunks = (files[i].size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
        handle opened = open_file(&files[i], true);
        for (uint64_t chunk = (uint64_t)rank; chunk < chunks; chunk += (uint64_t)ranks) {
            uint64_t offset = chunk * CHUNK_BYTES, left = files[i].size_bytes - offset;
            uint64_t bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
            fill(words, i, offset, bytes);
            move(opened, &files[i], WRITE, offset, (char *)words, bytes);
        }
        close_file(&opened, &files[i]);
    }
    free(words);
    barrier();
}

static bool do_request(const struct record *record, handle opened, struct stages *stages, uint64_t stage,
                       int64_t start_ns)
{
    int direction = record->kind == KIND_WRITE ? WRITE : READ;
    char *data = buffer + (verifying ? record->where % 8 : 0);
    int64_t begun_ns = now_ns();
    if (verifying && direction == WRITE)
        fill((uint64_t *)buffer, record->file, record->where, record->bytes);
    int64_t filled_ns = now_ns();
    move(opened, &files[record->file], direction, record->where, data, record->bytes);
    int64_t moved_ns = now_ns();
    bool good = true;
    if (verifying && direction == READ)
        good = verify((uint64_t *)buffer, record->file, record->where, record->bytes);
    int64_t ended_ns = now_ns();
    verify_ns += filled_ns - begun_ns + ended_ns - moved_ns;
    latencies[direction][bucket_of((uint64_t)(moved_ns - filled_ns))]++;
    stages->bytes[direction][stage] += (int64_t)record->bytes;
    if (begun_ns - start_ns < stages->begin_ns[stage])
        stages->begin_ns[stage] = begun_ns - start_ns;
    stages->end_ns[stage] = ended_ns - start_ns;
    if (slice_ns)
        count_in_slice(moved_ns - start_ns, record->bytes);
    return good;
}

static struct stages make_stages(void)
{
    struct stages stages = {.count = 1};
    for (uint64_t i = 0; i < record_count; i++) {
        unsigned kind = record_at(i).kind;
        stages.count += kind == KIND_BARRIER || kind == KIND_PHASE;
    }
    if (stages.count > INT32_MAX)
        fail("%" PRIu64 " barriers are too many", stages.count);
    size_t bytes = stages.count * sizeof(int64_t);
    int64_t **arrays[] = {&stages.begin_ns, &stages.end_ns, &stages.bytes[READ], &stages.bytes[WRITE]};
    for (int i = 0; i < 4; i++)
        memset(*arrays[i] = allocate(bytes), 0, bytes);
    stages.phase = allocate(stages.count * sizeof *stages.phase);
    stages.phase[0] = 0;
    for (uint64_t i = 0; i < stages.count; i++)
        stages.begin_ns[i] = INT64_MAX;
    return stages;
}

static void mark(uint32_t phase)
{
    size_t room = strlen(mark_command) + 16;
    char *command = allocate(room);
    snprintf(command, room, "%s %" PRIu32, mark_command, phase);
    if (system(command) != 0)
        fail("`%s` failed", command);
    free(command);
}

static bool run(const handle *opened, struct stages *stages, int64_t start_ns)
{
    uint64_t stage = 0;
    bool good = true;
    for (uint64_t i = 0; i < record_count; i++) {
        struct record record = record_at(i);
        switch (record.kind) {
        case KIND_READ:
        case KIND_WRITE:
            good &= do_request(&record, opened[record.file], stages, stage, start_ns);
            break;
        case KIND_THINK:
            sleep_until(now_ns() + (int64_t)record.where);
            break;
        case KIND_UNTIL:
            sleep_until(start_ns + (int64_t)record.where);
            break;
        default:
            barrier();
            stages->phase[stage + 1] = stages->phase[stage] + (record.kind == KIND_PHASE);
            stage++;
            if (record.kind == KIND_PHASE && mark_command && rank == 0)
                mark(stages->phase[stage]);
        }
    }
    return good;
}

struct sums {
    int64_t ns, ns_of[DIRECTIONS], bytes[DIRECTIONS];
};

static void add(struct sums *sums, const struct stages *stages, uint64_t stage)
{
    if (stages->begin_ns[stage] == INT64_MAX)
        return;
    int64_t ns = stages->end_ns[stage] - stages->begin_ns[stage];
    sums->ns += ns;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        int64_t bytes = stages->bytes[direction][stage];
        sums->bytes[direction] += bytes;
        sums->ns_of[direction] += bytes ? ns : 0;
    }
}

static void print_direction(const char *name, const struct sums *sums, int direction, const int64_t *counts)
{
    double seconds = (double)sums->ns_of[direction] / 1e9;
    printf("\"%s\":{\"bytes\":%" PRId64 ",\"seconds\":%.6f,\"bandwidth_mb_s\":%.3f", name, sums->bytes[direction],
           seconds, seconds > 0 ? (double)sums->bytes[direction] / 1e6 / seconds : 0);
    if (counts) {
        int64_t total = 0;
        for (int i = 0; i < BUCKETS; i++)
            total += counts[i];
        printf(",\"requests\":%" PRId64 ",\"latency_p50_s\":%.9f,\"latency_p95_s\":%.9f,\"latency_p99_s\":%.9f", total,
               percentile(counts, total, 0.50), percentile(counts, total, 0.95), percentile(counts, total, 0.99));
    }
    putchar('}');
}

/* When the first request of each phase began; of one without requests, when the next one's did. */
static void print_slices(const struct stages *stages, int64_t start_ns)
{
    printf("\"slices\":{\"started_ns\":%" PRId64 ",\"slice_s\":%.9f,\"phases_s\":[", start_ns, (double)slice_ns / 1e9);
    for (uint64_t phase = 0; phase < phase_count; phase++) {
        int64_t begin_ns = INT64_MAX;
        for (uint64_t i = 0; i < stages->count; i++)
            if (stages->phase[i] >= phase && stages->begin_ns[i] < begin_ns)
                begin_ns = stages->begin_ns[i];
        printf("%s%.6f", phase ? "," : "", begin_ns == INT64_MAX ? 0 : (double)begin_ns / 1e9);
    }
    fputs("],\"bytes\":[", stdout);
    for (uint64_t i = 0; i < slice_count; i++)
        printf("%s%" PRId64, i ? "," : "", slice_bytes[i]);
    fputs("]},", stdout);
}

/* All ranks take part, rank 0 prints. */
static void report(struct stages *stages, int64_t start_ns, int64_t skew_ns, int64_t lateness_ns, bool good)
{
    struct sums *phases = allocate(phase_count * sizeof *phases), all = {0};
    memset(phases, 0, phase_count * sizeof *phases);
    int64_t last_ns = 0;
    reduce(stages->begin_ns, (int)stages->count, MIN);
    reduce(stages->end_ns, (int)stages->count, MAX);
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        reduce(stages->bytes[direction], (int)stages->count, SUM);
        reduce(latencies[direction], BUCKETS, SUM);
    }
    for (uint64_t i = 0; i < stages->count; i++) {
        last_ns = stages->end_ns[i] > last_ns ? stages->end_ns[i] : last_ns;
        add(&all, stages, i);
        if (stages->phase[i] < phase_count)
            add(&phases[stages->phase[i]], stages, i);
    }
    int64_t verify_sum_ns = reduced(verify_ns, SUM);
    if (slice_ns) {
        have_slices((uint64_t)reduced((int64_t)slice_count, MAX));
        reduce(slice_bytes, (int)slice_count, SUM);
    }
    if (rank != 0)
        return;
    printf("{\"ranks\":%d,\"seconds\":%.6f,", ranks, (double)last_ns / 1e9);
    print_direction("read", &all, READ, latencies[READ]);
    putchar(',');
    print_direction("write", &all, WRITE, latencies[WRITE]);
    printf(",\"phases\":[");
    for (uint64_t i = 0; i < phase_count; i++) {
        printf("%s{\"seconds\":%.6f,", i ? "," : "", (double)phases[i].ns / 1e9);
        print_direction("read", &phases[i], READ, NULL);
        putchar(',');
        print_direction("write", &phases[i], WRITE, NULL);
        putchar('}');
    }
    fputs("],", stdout);
    if (slice_ns)
        print_slices(stages, start_ns);
    printf("\"start_skew_s\":%.6f,\"lateness_s\":%.6f,\"verify_s\":%.6f,\"verified\":%s}\n", (double)skew_ns / 1e9,
           (double)lateness_ns / 1e9, (double)verify_sum_ns / 1e9 / ranks,
           !verifying ? "null" : good ? "true" : "false");
    fflush(stdout);
}

static void open_all(handle *opened, bool *used)
{
    for (uint64_t i = 0; i < record_count; i++) {
        struct record record = record_at(i);
        if (record.kind > KIND_WRITE || used[record.file])
            continue;
        opened[record.file] = open_file(&files[record.file], false);
        used[record.file] = true;
    }
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--verify"))
            verifying = true;
        else if (!strcmp(argv[i], "--mark") && i + 1 < argc)
            mark_command = argv[++i];
        else if (!strcmp(argv[i], "--slice") && i + 1 < argc)
            slice_ns = strtoll(argv[++i], NULL, 10);
        else
            path = argv[i];
    }
    if (!path || slice_ns < 0) {
        fputs("usage: replay_io SCRIPT [--verify] [--mark COMMAND] [--slice NS]\n", stderr);
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1);
#ifdef WITHOUT_MPI
    map_script(path);
    forked_ranks = (int)word(1);
    start_ranks(&argc, &argv);
#else
    start_ranks(&argc, &argv);
    map_script(path);
#endif
    find_records();
    handle *opened = allocate(file_count * sizeof *opened);
    bool *used = allocate(file_count * sizeof *used);
    memset(used, 0, file_count * sizeof *used);
    buffer = allocate(largest_bytes + 16);
    memset(buffer, 'S', largest_bytes + 16);
    struct stages stages = make_stages();

    prepare();
    open_all(opened, used);
    barrier();
    int64_t start_ns = reduced(now_ns(), MAX) + START_DELAY_NS;
    sleep_until(start_ns);
    int64_t late_ns = now_ns() - start_ns;
    bool good = run(opened, &stages, start_ns);
    barrier();
    good = reduced(!good, MAX) == 0;
    int64_t latest_ns = reduced(late_ns, MAX), earliest_ns = reduced(late_ns, MIN);
    report(&stages, start_ns, latest_ns - earliest_ns, latest_ns, good);
    for (uint64_t i = 0; i < file_count; i++)
        if (used[i])
            close_file(&opened[i], &files[i]);
    barrier();
    for (uint64_t i = 0; i < file_count && rank == 0; i++)
        if (files[i].flags & FILE_REMOVE && unlink(files[i].path) != 0)
            fprintf(stderr, "replay_io: %s stays: %s\n", files[i].path, strerror(errno));
    return end_ranks(good ? 0 : 1);
}
