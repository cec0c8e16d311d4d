/* Nonblocking I/O: iwrite_at, iread_at, iwrite, iread, many in flight, and the collective twins (--no-collective
 * leaves those out, --no-past-end the read across the end of the file). ROMIO does these by aio_* calls where memory and file are contiguous. */
#include "check.h"

#define PIECES 16
#define COUNT 7919

static int out[PIECES][COUNT], in[PIECES][COUNT];

int main(int argc, char **argv)
{
    MPI_Request requests[PIECES];
    MPI_Status statuses[PIECES];
    start(&argc, &argv);
    int collective = argc < 2 || strcmp(argv[1], "--no-collective") != 0;
    int past_end = argc < 2 || strcmp(argv[1], "--no-past-end") != 0;
    MPI_File file = open_file("data", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    MPI_Offset piece_bytes = (MPI_Offset)sizeof out[0];
    for (int p = 0; p < PIECES; p++) {
        for (int i = 0; i < COUNT; i++)
            out[p][i] = value(((long)p * ranks + rank) * COUNT + i, 6);
        MPI_File_iwrite_at(file, ((MPI_Offset)p * ranks + rank) * piece_bytes, out[p], COUNT, MPI_INT, &requests[p]);
    }
    TOLD(MPI_Waitall(PIECES, requests, statuses));
    int good = 1;
    for (int p = 0; p < PIECES; p++)
        good &= counted(&statuses[p], MPI_INT) == COUNT;
    verify("all written", good);
    TOLD(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    int neighbour = (rank + 1) % ranks;
    for (int p = 0; p < PIECES; p++)
        MPI_File_iread_at(file, ((MPI_Offset)p * ranks + neighbour) * piece_bytes, in[p], COUNT, MPI_INT, &requests[p]);
    for (int left = PIECES; left > 0; left--) {
        int which;
        MPI_Waitany(PIECES, requests, &which, &statuses[0]);
    }
    good = 1;
    for (int p = 0; p < PIECES; p++)
        for (int i = 0; i < COUNT; i++)
            good &= in[p][i] == value(((long)p * ranks + neighbour) * COUNT + i, 6);
    verify("the neighbour's data", good);
    MPI_Barrier(MPI_COMM_WORLD); /* no rank writes what another still reads */

    TOLD(MPI_File_seek(file, (MPI_Offset)rank * (MPI_Offset)sizeof out, MPI_SEEK_SET));
    TOLD(MPI_File_iwrite(file, out, PIECES * COUNT, MPI_INT, &requests[0]));
    TOLD(MPI_Wait(&requests[0], &statuses[0]));
    TOLD(MPI_File_seek(file, (MPI_Offset)rank * (MPI_Offset)sizeof out, MPI_SEEK_SET));
    memset(in, 0, sizeof in);
    TOLD(MPI_File_iread(file, in, PIECES * COUNT, MPI_INT, &requests[0]));
    int done = 0;
    while (!done)
        MPI_Test(&requests[0], &done, &statuses[0]);
    verify("iwrite, iread", memcmp(in, out, sizeof out) == 0);
    if (past_end) {
        TOLD(MPI_File_iread_at(file, (MPI_Offset)ranks * (MPI_Offset)sizeof out - 8, in, 10, MPI_INT, &requests[0]));
        TOLD(MPI_Wait(&requests[0], &statuses[0]));
        say("of ten, two before the end: %d", counted(&statuses[0], MPI_INT)); /* ROMIO in Open MPI says ten */
    }

    if (collective) {
        MPI_Datatype type;
        int sizes[] = {PIECES * ranks, COUNT}, parts[] = {PIECES, COUNT}, begins[] = {PIECES * rank, 0};
        MPI_Type_create_subarray(2, sizes, parts, begins, MPI_ORDER_C, MPI_INT, &type);
        MPI_Type_commit(&type);
        char native[] = "native";
        TOLD(MPI_File_set_view(file, 0, MPI_INT, type, native, MPI_INFO_NULL));
        TOLD(MPI_File_iwrite_all(file, out, PIECES * COUNT, MPI_INT, &requests[0]));
        TOLD(MPI_Wait(&requests[0], &statuses[0]));
        memset(in, 0, sizeof in);
        TOLD(MPI_File_iread_at_all(file, 0, in, PIECES * COUNT, MPI_INT, &requests[0]));
        TOLD(MPI_Wait(&requests[0], &statuses[0]));
        verify("iwrite_all, iread_at_all", memcmp(in, out, sizeof out) == 0);
        MPI_Type_free(&type);
        /* Interleaved columns: noncontiguous in the file. */
        MPI_Type_vector(COUNT, 1, ranks, MPI_INT, &type);
        MPI_Type_commit(&type);
        TOLD(MPI_File_set_view(file, rank * (MPI_Offset)sizeof(int), MPI_INT, type, native, MPI_INFO_NULL));
        TOLD(MPI_File_iwrite_at_all(file, 0, out[1], COUNT, MPI_INT, &requests[0]));
        TOLD(MPI_Wait(&requests[0], &statuses[0]));
        memset(in, 0, sizeof in);
        TOLD(MPI_File_iread_all(file, in[1], COUNT, MPI_INT, &requests[0]));
        TOLD(MPI_Wait(&requests[0], &statuses[0]));
        verify("strided", memcmp(in[1], out[1], sizeof out[1]) == 0);
        MPI_Type_free(&type);
    }
    TOLD(MPI_File_close(&file));
    return finish();
}
