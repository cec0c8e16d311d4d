/* The MPI program of the demo: many small independent requests to one shared file, as H2DP's modified IOR makes them
 * (section 5.2.1). It knows nothing of Stripewise and is never rebuilt for it.
 *
 * Requests. A file of `--size` bytes is cut into K = size / region regions; bytes beyond the last whole region are
 * not asked for. The regions are put in an order by a shuffle of seed `--seed`; the k-th of that order (from 0) has
 * weight 1 / (k + 1)^a. Every rank makes `--requests` requests of its own: a region by weight, then one of its
 * region / request aligned slots, all alike. The write pass and the read pass of one run make the same requests. The
 * sequence is defined, number by number, in crates/trace/src/workload.rs, which makes the same one; a test there
 * compares `--print-requests` with it.
 *
 * Data. The 8-byte word at word offset i holds a value of (i, epoch) alone, so ranks that write the same place at the
 * same time write the same bytes, and a reader can tell every epoch and every misplaced byte. `--create` writes
 * epoch 0, a write pass writes `--epoch`. A read pass after a write pass demands that epoch of every byte it
 * reads; a read pass alone accepts any one epoch up to `--epoch` in every block of `--grain` bytes. A write pass alone
 * is followed by an untimed read of all that it wrote. `--check` reads the whole file.
 *
 * Time. All ranks start at one agreed instant (one host: CLOCK_MONOTONIC is the same for all) and nothing here waits
 * by spinning, which would starve the sleepers of a machine with fewer cores than ranks. A pass takes from
 * the agreed instant to the end of the last rank. Comparing and generating data is inside it and printed as verify_s.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define GOLDEN_GAMMA UINT64_C(0x9E3779B97F4A7C15)
#define WORD_STEP UINT64_C(0xD1342543DE82EF95)
#define START_DELAY_NS INT64_C(250000000)
#define POLL_SHORTEST_NS 100000
#define POLL_LONGEST_NS 2000000
#define SEQUENTIAL_CHUNK_BYTES (UINT64_C(4) << 20)
#define EPOCHS_MAX 64

struct options {
    const char *path;
    const char *json_path;
    uint64_t size_bytes, region_bytes, request_bytes, grain_bytes;
    uint64_t requests, seed, epoch, print_requests, print_ranks;
    double zipf_exponent;
    bool create, check, write, read, verify, alone;
};

static int rank, ranks;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "zipf_io: rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    int running = 0;
    MPI_Initialized(&running);
    if (running)
        MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static void demand(int code, const char *what, const char *path)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fail("%s of %s: %s", what, path, text);
}

static void *allocate(size_t bytes)
{
    /* Page aligned: O_DIRECT back ends and the comparison's vector loads both like it. */
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes ? bytes : 1) != 0)
        fail("no memory for %zu bytes", bytes);
    return memory;
}

/* ---- the request sequence -------------------------------------------------------------------------------------- */

static uint64_t next_word(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += GOLDEN_GAMMA);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t rank_stream(uint64_t seed, uint64_t of_rank)
{
    uint64_t state = seed + (of_rank + 1) * UINT64_C(0xD1B54A32D192ED03);
    return next_word(&state);
}

struct pattern {
    const struct options *options;
    uint64_t regions;
    uint64_t *order;    /* order[k]: the region of popularity k */
    uint64_t *limits;   /* limits[k]: popularities up to k, of 2^32 */
};

static struct pattern make_pattern(const struct options *options)
{
    struct pattern pattern = {.options = options, .regions = options->size_bytes / options->region_bytes};
    pattern.order = allocate(pattern.regions * sizeof *pattern.order);
    pattern.limits = allocate(pattern.regions * sizeof *pattern.limits);
    double *sums = allocate(pattern.regions * sizeof *sums), sum = 0;
    for (uint64_t k = 0; k < pattern.regions; k++) {
        pattern.order[k] = k;
        sum += 1 / pow((double)k + 1, options->zipf_exponent);
        sums[k] = sum;
    }
    for (uint64_t k = 0; k < pattern.regions; k++)
        pattern.limits[k] = (uint64_t)floor(sums[k] / sum * 0x1p32);
    pattern.limits[pattern.regions - 1] = UINT64_C(1) << 32;
    free(sums);
    uint64_t state = options->seed;
    for (uint64_t k = pattern.regions - 1; k > 0; k--) {
        uint64_t other = next_word(&state) % (k + 1);
        uint64_t kept = pattern.order[k];
        pattern.order[k] = pattern.order[other];
        pattern.order[other] = kept;
    }
    return pattern;
}

static uint64_t next_offset(const struct pattern *pattern, uint64_t *state)
{
    const struct options *options = pattern->options;
    uint64_t draw = next_word(state) >> 32;
    uint64_t low = 0, high = pattern->regions - 1; /* the first k whose limit exceeds the draw */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (pattern->limits[middle] > draw)
            high = middle;
        else
            low = middle + 1;
    }
    uint64_t slot = next_word(state) % (options->region_bytes / options->request_bytes);
    return pattern->order[low] * options->region_bytes + slot * options->request_bytes;
}

/* ---- the data -------------------------------------------------------------------------------------------------- */

static uint64_t epoch_key(uint64_t epoch)
{
    uint64_t state = epoch;
    return next_word(&state);
}

/* An addition per word and a fold of the high half into the low one: compilers make vectors of both, so that filling
 * and comparing run at the speed of memory. */
static void fill(uint64_t *words, uint64_t count, uint64_t offset_bytes, uint64_t epoch)
{
    uint64_t first = epoch_key(epoch) + offset_bytes / 8 * WORD_STEP;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = first + i * WORD_STEP;
        words[i] = value ^ (value >> 32);
    }
}

static bool equals(const uint64_t *words, uint64_t count, uint64_t offset_bytes, uint64_t epoch)
{
    uint64_t first = epoch_key(epoch) + offset_bytes / 8 * WORD_STEP;
    uint64_t difference = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = first + i * WORD_STEP;
        difference |= words[i] ^ value ^ (value >> 32);
    }
    return difference == 0;
}

/* The epoch whose first word stands here, or -1. */
static int64_t epoch_of(uint64_t word, uint64_t offset_bytes, uint64_t from, uint64_t to)
{
    for (uint64_t epoch = from; epoch <= to; epoch++)
        if (equals(&word, 1, offset_bytes, epoch))
            return (int64_t)epoch;
    return -1;
}

/* True if every grain of the buffer holds one whole epoch of from..to; counts[e] += the grains of epoch e. */
static bool verify(const char *buffer, uint64_t bytes, uint64_t offset_bytes, uint64_t grain_bytes, uint64_t from,
                   uint64_t to, uint64_t *counts)
{
    for (uint64_t done = 0, length; done < bytes; done += length) {
        uint64_t at = offset_bytes + done;
        length = grain_bytes - at % grain_bytes;
        if (length > bytes - done)
            length = bytes - done;
        const uint64_t *words = (const uint64_t *)(buffer + done);
        int64_t epoch = from == to ? (int64_t)from : epoch_of(words[0], at, from, to);
        if (epoch >= 0 && equals(words, length / 8, at, (uint64_t)epoch)) {
            if (counts)
                counts[epoch]++;
            continue;
        }
        uint64_t i = 0;
        while (epoch >= 0 && equals(words + i, 1, at + i * 8, (uint64_t)epoch))
            i++;
        int64_t there = epoch_of(words[i], at + i * 8, 0, EPOCHS_MAX);
        fprintf(stderr,
                "zipf_io: rank %d: wrong data at byte %" PRIu64 ": found %016" PRIx64 " (epoch %" PRId64
                "), expected epoch %" PRId64 " of %" PRIu64 "..%" PRIu64 " (-1: none)\n",
                rank, at + i * 8, words[i], there, epoch, from, to);
        return false;
    }
    return true;
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void wait_quietly(MPI_Request *request)
{
    struct timespec interval = {.tv_nsec = POLL_SHORTEST_NS};
    for (int done = 0;;) {
        demand(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test", "a collective");
        if (done)
            return;
        nanosleep(&interval, NULL);
        if (interval.tv_nsec < POLL_LONGEST_NS)
            interval.tv_nsec *= 2;
    }
}

static void barrier(void)
{
    MPI_Request request;
    demand(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier", "all ranks");
    wait_quietly(&request);
}

static int64_t reduce_max(int64_t value)
{
    int64_t result;
    MPI_Request request;
    demand(MPI_Iallreduce(&value, &result, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, &request), "MPI_Iallreduce",
           "all ranks");
    wait_quietly(&request);
    return result;
}

static int64_t reduce_sum(int64_t value)
{
    int64_t result;
    MPI_Request request;
    demand(MPI_Iallreduce(&value, &result, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request), "MPI_Iallreduce",
           "all ranks");
    wait_quietly(&request);
    return result;
}

/* Sleeps until an instant that all ranks agree on, and returns it. */
static int64_t start_together(void)
{
    int64_t start_ns = reduce_max(now_ns()) + START_DELAY_NS;
    struct timespec start = {.tv_sec = start_ns / 1000000000, .tv_nsec = start_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL) != 0)
        ;
    return start_ns;
}

/* ---- the passes ------------------------------------------------------------------------------------------------ */

static void move(MPI_File file, const struct options *options, bool writing, uint64_t offset, char *buffer,
                 uint64_t bytes)
{
    MPI_Status status;
    int moved = 0;
    int code = writing ? MPI_File_write_at(file, (MPI_Offset)offset, buffer, (int)bytes, MPI_BYTE, &status)
                       : MPI_File_read_at(file, (MPI_Offset)offset, buffer, (int)bytes, MPI_BYTE, &status);
    demand(code, writing ? "MPI_File_write_at" : "MPI_File_read_at", options->path);
    MPI_Get_count(&status, MPI_BYTE, &moved);
    if ((uint64_t)moved != bytes)
        fail("%s: %d bytes of %" PRIu64 " %s at %" PRIu64, options->path, moved, bytes, writing ? "written" : "read",
             offset);
}

static void report(const struct options *options, const char *line)
{
    if (rank != 0)
        return;
    puts(line);
    fflush(stdout);
    if (!options->json_path)
        return;
    FILE *json = fopen(options->json_path, "a");
    if (!json || fprintf(json, "%s\n", line) < 0 || fclose(json) != 0)
        fail("cannot append to %s", options->json_path);
}

/* One pass over this rank's requests. Epochs other than from..to in what is read are wrong. */
static bool run_requests(MPI_File file, const struct pattern *pattern, bool writing, uint64_t from, uint64_t to,
                         char *buffer, int64_t *verify_ns)
{
    const struct options *options = pattern->options;
    uint64_t state = rank_stream(options->seed, (uint64_t)rank);
    bool good = true;
    for (uint64_t i = 0; i < options->requests; i++) {
        uint64_t offset = next_offset(pattern, &state);
        int64_t begun_ns = now_ns();
        if (writing)
            fill((uint64_t *)buffer, options->request_bytes / 8, offset, to);
        int64_t filled_ns = now_ns();
        move(file, options, writing, offset, buffer, options->request_bytes);
        int64_t moved_ns = now_ns();
        if (!writing && options->verify && good)
            good = verify(buffer, options->request_bytes, offset, options->grain_bytes, from, to, NULL);
        *verify_ns += filled_ns - begun_ns + now_ns() - moved_ns;
    }
    return good;
}

static bool timed_pass(MPI_File file, const struct pattern *pattern, bool writing, uint64_t from, uint64_t to,
                       char *buffer)
{
    const struct options *options = pattern->options;
    int64_t verify_ns = 0;
    barrier();
    int64_t agreed_ns = start_together();
    int64_t begun_ns = now_ns();
    bool good = run_requests(file, pattern, writing, from, to, buffer, &verify_ns);
    int64_t ended_ns = now_ns();

    int64_t taken_ns = reduce_max(ended_ns) - agreed_ns;
    int64_t lateness_ns = reduce_max(begun_ns - agreed_ns);
    int64_t earliest_ns = -reduce_max(-(begun_ns - agreed_ns));
    int64_t verify_sum_ns = reduce_sum(verify_ns);
    if (writing && options->verify && !options->read) {
        demand(MPI_File_sync(file), "MPI_File_sync", options->path);
        barrier();
        demand(MPI_File_sync(file), "MPI_File_sync", options->path);
        good = run_requests(file, pattern, false, to, to, buffer, &verify_ns);
    }
    bool all_good = reduce_max(!good) == 0;
    uint64_t bytes = (uint64_t)ranks * options->requests * options->request_bytes;
    char line[1024];
    snprintf(line, sizeof line,
             "{\"op\":\"%s\",\"ranks\":%d,\"size_bytes\":%" PRIu64 ",\"region_bytes\":%" PRIu64
             ",\"request_bytes\":%" PRIu64 ",\"requests_per_rank\":%" PRIu64 ",\"zipf\":%g,\"seed\":%" PRIu64
             ",\"epoch\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"seconds\":%.6f,\"bandwidth_mb_s\":%.3f"
             ",\"start_skew_s\":%.6f,\"lateness_s\":%.6f,\"verify_s\":%.6f,\"verified\":%s}",
             writing ? "write" : "read", ranks, options->size_bytes, options->region_bytes, options->request_bytes,
             options->requests, options->zipf_exponent, options->seed, options->epoch, bytes, (double)taken_ns / 1e9,
             (double)bytes / 1e6 / ((double)taken_ns / 1e9), (double)(lateness_ns - earliest_ns) / 1e9,
             (double)lateness_ns / 1e9, (double)verify_sum_ns / 1e9 / ranks,
             options->verify && all_good ? "true" : "false");
    report(options, line);
    return all_good;
}

/* Every rank walks its own contiguous share of the file: writes epoch 0, or reads and counts epochs. */
static bool sequential_pass(MPI_File file, const struct options *options, bool writing, char *buffer)
{
    uint64_t grain = options->grain_bytes;
    uint64_t grains = (options->size_bytes + grain - 1) / grain;
    uint64_t begin = grains * (uint64_t)rank / (uint64_t)ranks * grain;
    uint64_t end = grains * (uint64_t)(rank + 1) / (uint64_t)ranks * grain;
    if (end > options->size_bytes)
        end = options->size_bytes;
    uint64_t counts[EPOCHS_MAX + 1] = {0};
    bool good = true;
    for (uint64_t offset = begin; offset < end; offset += SEQUENTIAL_CHUNK_BYTES) {
        uint64_t bytes = end - offset < SEQUENTIAL_CHUNK_BYTES ? end - offset : SEQUENTIAL_CHUNK_BYTES;
        if (writing)
            fill((uint64_t *)buffer, bytes / 8, offset, 0);
        move(file, options, writing, offset, buffer, bytes);
        if (!writing && !verify(buffer, bytes, offset, grain, 0, options->epoch, counts))
            good = false;
    }
    barrier();
    bool all_good = reduce_max(!good) == 0;
    char line[2048];
    int length = snprintf(line, sizeof line, "{\"op\":\"%s\",\"ranks\":%d,\"bytes\":%" PRIu64, writing ? "create" : "check",
                          ranks, options->size_bytes);
    if (!writing) {
        length += snprintf(line + length, sizeof line - (size_t)length, ",\"blocks_of_epoch\":[");
        for (uint64_t epoch = 0; epoch <= options->epoch; epoch++)
            length += snprintf(line + length, sizeof line - (size_t)length, "%s%" PRId64, epoch ? "," : "",
                               reduce_sum((int64_t)counts[epoch]));
        snprintf(line + length, sizeof line - (size_t)length, "],\"verified\":%s}", all_good ? "true" : "false");
    } else {
        snprintf(line + length, sizeof line - (size_t)length, "}");
    }
    report(options, line);
    return all_good;
}

/* ---- the command line ------------------------------------------------------------------------------------------ */

static const char usage[] =
    "usage: mpiexec -n RANKS zipf_io FILE [options]\n"
    "  --size BYTES         size of the file (1GiB); sizes take KiB, MiB, GiB\n"
    "  --region BYTES       unit of popularity (4MiB)\n"
    "  --request BYTES      size of a request (64KiB), a multiple of 8\n"
    "  --requests N         requests of each rank in each pass (256)\n"
    "  --op read|write|both|none   passes to time (both: write, then read); none with --create or --check only\n"
    "  --zipf A             exponent (0.8); 0 is uniform\n"
    "  --seed N             of the order of regions and of every rank's requests (1)\n"
    "  --epoch N            version of the data that writes write and the highest that reads accept (1), at most 64\n"
    "  --grain BYTES        block that holds one epoch (the request, at most 64KiB)\n"
    "  --comm world|self    who opens the file together (world); self spares an oversubscribed MPICH seconds of the\n"
    "                       spinning in its collective open, and changes no request\n"
    "  --no-verify          do not compare what is read\n"
    "  --create             first write epoch 0 over the whole file\n"
    "  --check              last read the whole file and count the blocks of every epoch\n"
    "  --json FILE          append the result lines to FILE too\n"
    "  --print-requests N --ranks R   print `rank offset` of the first N requests of R ranks, without MPI, and end\n"
    "exit: 0 done, 1 wrong data, 2 an error\n";

static uint64_t parse_number(const char *option, const char *text, bool size)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    int shift = !size || !*end                            ? 0
                : !strcmp(end, "KiB") || !strcmp(end, "k") ? 10
                : !strcmp(end, "MiB") || !strcmp(end, "m") ? 20
                : !strcmp(end, "GiB") || !strcmp(end, "g") ? 30
                                                           : -1;
    if (end == text || *text == '-' || shift < 0 || (!size && *end) || value > UINT64_MAX >> shift)
        fail("--%s %s: not a %s", option, text, size ? "size such as 64KiB" : "number");
    return value << shift;
}

static double parse_exponent(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 8))
        fail("--zipf %s: not a number from 0 to 8", text);
    return value;
}

static void check_options(struct options *o)
{
    if (!o->path && !o->print_requests) {
        fputs(usage, stderr);
        exit(2);
    }
    if (o->request_bytes == 0 || o->request_bytes % 8 || o->request_bytes > INT32_MAX)
        fail("--request %" PRIu64 ": want a multiple of 8 below 2GiB", o->request_bytes);
    if (o->region_bytes % 8 || o->region_bytes < o->request_bytes)
        fail("--region %" PRIu64 ": want a multiple of 8 that holds a request", o->region_bytes);
    if (o->size_bytes < o->region_bytes || o->size_bytes % 8)
        fail("--size %" PRIu64 ": want a multiple of 8 of at least one region", o->size_bytes);
    if (o->grain_bytes == 0)
        o->grain_bytes = o->request_bytes < 65536 ? o->request_bytes : 65536;
    if (o->grain_bytes % 8 || o->request_bytes % o->grain_bytes)
        fail("--grain %" PRIu64 ": want a multiple of 8 that divides the request", o->grain_bytes);
    if (o->epoch > EPOCHS_MAX)
        fail("--epoch %" PRIu64 ": want at most %d", o->epoch, EPOCHS_MAX);
}

static struct options parse_options(int argc, char **argv)
{
    struct options o = {.size_bytes = UINT64_C(1) << 30, .region_bytes = 4 << 20, .request_bytes = 64 << 10,
                        .requests = 256, .seed = 1, .epoch = 1, .print_ranks = 1, .zipf_exponent = 0.8,
                        .write = true, .read = true, .verify = true};
    enum { SIZE = 1, REGION, REQUEST, REQUESTS, OP, ZIPF, SEED, EPOCH, GRAIN, VERIFY, NO_VERIFY, CREATE, CHECK, JSON,
           COMM, PRINT, RANKS, HELP };
    static const struct option table[] = {
        {"size", 1, 0, SIZE}, {"region", 1, 0, REGION}, {"request", 1, 0, REQUEST}, {"requests", 1, 0, REQUESTS},
        {"op", 1, 0, OP}, {"zipf", 1, 0, ZIPF}, {"seed", 1, 0, SEED}, {"epoch", 1, 0, EPOCH}, {"grain", 1, 0, GRAIN},
        {"verify", 0, 0, VERIFY}, {"no-verify", 0, 0, NO_VERIFY}, {"create", 0, 0, CREATE}, {"check", 0, 0, CHECK},
        {"json", 1, 0, JSON}, {"comm", 1, 0, COMM}, {"print-requests", 1, 0, PRINT}, {"ranks", 1, 0, RANKS},
        {"help", 0, 0, HELP}, {0, 0, 0, 0}};
    for (int index = 0, option; (option = getopt_long(argc, argv, "", table, &index)) != -1;) {
        const char *name = table[index].name;
        switch (option) {
        case SIZE: o.size_bytes = parse_number(name, optarg, true); break;
        case REGION: o.region_bytes = parse_number(name, optarg, true); break;
        case REQUEST: o.request_bytes = parse_number(name, optarg, true); break;
        case GRAIN: o.grain_bytes = parse_number(name, optarg, true); break;
        case REQUESTS: o.requests = parse_number(name, optarg, false); break;
        case SEED: o.seed = parse_number(name, optarg, false); break;
        case EPOCH: o.epoch = parse_number(name, optarg, false); break;
        case PRINT: o.print_requests = parse_number(name, optarg, false); break;
        case RANKS: o.print_ranks = parse_number(name, optarg, false); break;
        case ZIPF: o.zipf_exponent = parse_exponent(optarg); break;
        case VERIFY: o.verify = true; break;
        case NO_VERIFY: o.verify = false; break;
        case CREATE: o.create = true; break;
        case CHECK: o.check = true; break;
        case JSON: o.json_path = optarg; break;
        case COMM:
            o.alone = !strcmp(optarg, "self");
            if (!o.alone && strcmp(optarg, "world"))
                fail("--comm %s: want world or self", optarg);
            break;
        case HELP: fputs(usage, stdout); exit(0);
        case OP:
            o.write = !strcmp(optarg, "write") || !strcmp(optarg, "both");
            o.read = !strcmp(optarg, "read") || !strcmp(optarg, "both");
            if (!o.write && !o.read && strcmp(optarg, "none"))
                fail("--op %s: want read, write, both or none", optarg);
            break;
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc)
        o.path = argv[optind++];
    if (optind < argc)
        fail("unexpected argument %s", argv[optind]);
    check_options(&o);
    return o;
}

static void print_requests(const struct pattern *pattern)
{
    for (uint64_t of_rank = 0; of_rank < pattern->options->print_ranks; of_rank++) {
        uint64_t state = rank_stream(pattern->options->seed, of_rank);
        for (uint64_t i = 0; i < pattern->options->print_requests; i++)
            printf("%" PRIu64 " %" PRIu64 "\n", of_rank, next_offset(pattern, &state));
    }
}

int main(int argc, char **argv)
{
    struct options options = parse_options(argc, argv);
    struct pattern pattern = make_pattern(&options);
    if (options.print_requests) {
        print_requests(&pattern);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    prctl(PR_SET_TIMERSLACK, 1UL);

    bool writes = options.create || options.write;
    MPI_File file;
    demand(MPI_File_open(options.alone ? MPI_COMM_SELF : MPI_COMM_WORLD, options.path,
                         (writes ? MPI_MODE_RDWR : MPI_MODE_RDONLY) | (options.create ? MPI_MODE_CREATE : 0),
                         MPI_INFO_NULL, &file),
           "MPI_File_open", options.path);
    uint64_t buffer_bytes =
        options.request_bytes > SEQUENTIAL_CHUNK_BYTES ? options.request_bytes : SEQUENTIAL_CHUNK_BYTES;
    char *buffer = allocate(buffer_bytes);
    memset(buffer, 0, buffer_bytes); /* touched before the clock runs */

    bool good = true;
    if (options.create)
        good &= sequential_pass(file, &options, true, buffer);
    if (options.write)
        good &= timed_pass(file, &pattern, true, options.epoch, options.epoch, buffer);
    if (options.write && options.read) {
        demand(MPI_File_sync(file), "MPI_File_sync", options.path);
        barrier();
        demand(MPI_File_sync(file), "MPI_File_sync", options.path);
    }
    if (options.read)
        good &= timed_pass(file, &pattern, false, options.write ? options.epoch : 0, options.epoch, buffer);
    if (options.check)
        good &= sequential_pass(file, &options, false, buffer);

    barrier();
    demand(MPI_File_close(&file), "MPI_File_close", options.path);
    barrier();
    MPI_Finalize();
    return good ? 0 : 1;
}
