/* Ranks of an MPI program: how they wait for each other and do their I/O. Part of replay_io.c. */
#include <mpi.h>

static void demand(int code, const char *what, const char *path)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fail("%s of %s: %s", what, path, text);
}

static void leave(int status)
{
    int running = 0;
    MPI_Initialized(&running);
    if (running)
        MPI_Abort(MPI_COMM_WORLD, status);
    exit(status);
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

/* Every rank gets the result. */
static void reduce(int64_t *values, int count, enum operation operation)
{
    MPI_Request request;
    MPI_Op op = operation == MAX ? MPI_MAX : operation == MIN ? MPI_MIN : MPI_SUM;
    demand(MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, op, MPI_COMM_WORLD, &request), "MPI_Iallreduce",
           "all ranks");
    wait_quietly(&request);
}

static void start_ranks(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static int end_ranks(int status)
{
    MPI_Finalize();
    return status;
}

typedef MPI_File handle;

/* MPI_COMM_SELF: thirty-two ranks on two cores would spin for seconds in a collective open, and no request changes. */
static handle open_file(const struct file *file, bool exclusively)
{
    handle opened;
    int mode = file->flags & FILE_WRITTEN || exclusively ? MPI_MODE_RDWR | MPI_MODE_CREATE : MPI_MODE_RDONLY;
    demand(MPI_File_open(MPI_COMM_SELF, file->path, mode, MPI_INFO_NULL, &opened), "MPI_File_open", file->path);
    return opened;
}

static void move(handle opened, const struct file *file, int direction, uint64_t offset, char *buffer, uint64_t bytes)
{
    MPI_Status status;
    int moved = 0;
    int code = direction == WRITE
                   ? MPI_File_write_at(opened, (MPI_Offset)offset, buffer, (int)bytes, MPI_BYTE, &status)
                   : MPI_File_read_at(opened, (MPI_Offset)offset, buffer, (int)bytes, MPI_BYTE, &status);
    demand(code, direction == WRITE ? "MPI_File_write_at" : "MPI_File_read_at", file->path);
    MPI_Get_count(&status, MPI_BYTE, &moved);
    if ((uint64_t)moved != bytes)
        fail("%s: %d bytes of %" PRIu64 " %s at %" PRIu64, file->path, moved, bytes,
             direction == WRITE ? "written" : "read", offset);
}

static void close_file(handle *opened, const struct file *file)
{
    demand(MPI_File_close(opened), "MPI_File_close", file->path);
}
