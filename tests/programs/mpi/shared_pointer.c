/* The shared file pointer: write_shared and read_shared by all ranks at once take disjoint pieces, write_ordered
 * goes by rank; seek_shared. MPI libraries keep the pointer in a hidden file or in shared memory, under locks. */
#include "check.h"

#define RECORD 1009
#define ROUNDS 20

static int out[RECORD], in[RECORD];
static char seen[64 * ROUNDS];

int main(int argc, char **argv)
{
    MPI_Status status;
    MPI_Offset position;
    start(&argc, &argv);
    MPI_File file = open_file("shared", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    int good = 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < RECORD; i++)
            out[i] = rank * ROUNDS + round;
        good &= MPI_File_write_shared(file, out, RECORD, MPI_INT, &status) == MPI_SUCCESS;
        good &= counted(&status, MPI_INT) == RECORD;
    }
    verify("write_shared", good);
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_get_position_shared(file, &position));
    verify("shared position", position == (MPI_Offset)ranks * ROUNDS * (MPI_Offset)sizeof out);
    TOLD(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    good = 1;
    for (int round = 0; round < ROUNDS; round++) {
        good &= MPI_File_read_shared(file, in, RECORD, MPI_INT, &status) == MPI_SUCCESS;
        for (int i = 1; i < RECORD; i++)
            good &= in[i] == in[0]; /* a record is whole */
        if (in[0] >= 0 && in[0] < ranks * ROUNDS)
            seen[in[0]]++;
    }
    verify("whole records", good);
    static char all[64 * ROUNDS];
    MPI_Allreduce(seen, all, ranks * ROUNDS, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < ranks * ROUNDS; i++)
        good &= all[i] == 1;
    verify("every record once", good);
    TOLD(MPI_File_close(&file));
    if (rank == 0)
        MPI_File_delete("shared", MPI_INFO_NULL); /* its order is the scheduler's */
    MPI_Barrier(MPI_COMM_WORLD);

    file = open_file("ordered", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    for (int i = 0; i < RECORD; i++)
        out[i] = value((long)rank * RECORD + i, 8);
    int share = RECORD - rank * 10;
    TOLD(MPI_File_write_ordered(file, out, share, MPI_INT, &status));
    TOLD(MPI_File_write_ordered_begin(file, out, share, MPI_INT));
    TOLD(MPI_File_write_ordered_end(file, out, &status));
    TOLD(MPI_File_sync(file));
    TOLD(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    TOLD(MPI_File_read_ordered(file, in, share, MPI_INT, &status));
    verify("read_ordered", memcmp(in, out, (size_t)share * sizeof(int)) == 0);
    TOLD(MPI_File_read_ordered_begin(file, in, share, MPI_INT));
    TOLD(MPI_File_read_ordered_end(file, in, &status));
    verify("read_ordered, split", memcmp(in, out, (size_t)share * sizeof(int)) == 0);
    TOLD(MPI_File_close(&file));
    return finish();
}
