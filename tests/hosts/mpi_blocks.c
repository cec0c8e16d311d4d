/* Every rank writes its blocks of one shared file and reads all of them: `mpi_blocks PATH`.
 *
 * Blocks of the ranks alternate and are of an odd length, so that ranks share pages. After sync, barrier and sync every rank
 * compares every byte. Rank 0 prints each rank's host and the word "ok". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 3001, BLOCKS = 100 };

static void check(int result, const char *what)
{
    if (result == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(result, text, &length);
    fprintf(stderr, "%s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static char byte_of(int block, int at)
{
    return (char)(block * 31 + at * 7 + 1);
}

int main(int argc, char **argv)
{
    int rank, ranks, length;
    char name[MPI_MAX_PROCESSOR_NAME] = "", block[BLOCK_BYTES];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(name, &length);
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    for (int i = 0; i < BLOCKS; i++) {
        int number = i * ranks + rank;
        for (int at = 0; at < BLOCK_BYTES; at++)
            block[at] = byte_of(number, at);
        check(MPI_File_write_at(file, (MPI_Offset)number * BLOCK_BYTES, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    }
    check(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    check(MPI_File_sync(file), "sync");
    /* One collective call: ranks that share a core wait for each other by polling. */
    char *all = malloc((size_t)ranks * BLOCKS * BLOCK_BYTES);
    check(MPI_File_read_at_all(file, 0, all, ranks * BLOCKS * BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    for (int at = 0; at < ranks * BLOCKS * BLOCK_BYTES; at++)
        if (all[at] != byte_of(at / BLOCK_BYTES, at % BLOCK_BYTES)) {
            fprintf(stderr, "rank %d on %s: byte %d is wrong\n", rank, name, at);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    free(all);
    check(MPI_File_close(&file), "close");
    char *names = malloc((size_t)ranks * sizeof name);
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int of = 0; rank == 0 && of < ranks; of++)
        printf("%s ", names + (size_t)of * sizeof name);
    if (rank == 0)
        puts("ok");
    fflush(stdout);
    free(names);
    MPI_Finalize();
    return 0;
}
