/* Atomic mode: overlapping writes of all ranks leave one rank's data whole, and a read sees nothing half written. */
#include "check.h"

#define BYTES 300007

static unsigned char out[BYTES], in[BYTES];

static int whole(void)
{
    for (int i = 1; i < BYTES; i++)
        if (in[i] != in[0])
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Status status;
    start(&argc, &argv);
    MPI_File file = open_file("data", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    int atomic = 0, good = 1;
    TOLD(MPI_File_set_atomicity(file, 1));
    TOLD(MPI_File_get_atomicity(file, &atomic));
    verify("atomic", atomic);
    if (rank == 0) {
        memset(out, 200, sizeof out);
        MPI_File_write_at(file, 5, out, BYTES, MPI_BYTE, &status);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    memset(out, 'A' + rank, sizeof out);
    for (int round = 0; round < 15; round++) {
        if (rank % 2 == 0)
            good &= MPI_File_write_at(file, 5, out, BYTES, MPI_BYTE, &status) == MPI_SUCCESS;
        good &= MPI_File_read_at(file, 5, in, BYTES, MPI_BYTE, &status) == MPI_SUCCESS;
        good &= counted(&status, MPI_BYTE) == BYTES && whole();
    }
    verify("reads are whole", good);
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_write_at_all(file, 5, out, BYTES, MPI_BYTE, &status));
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_read_at_all(file, 5, in, BYTES, MPI_BYTE, &status));
    verify("one rank's data", whole() && in[0] >= 'A' && in[0] < 'A' + ranks);
    TOLD(MPI_File_set_atomicity(file, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) { /* who came last is the scheduler's choice */
        memset(out, 'z', sizeof out);
        MPI_File_write_at(file, 5, out, BYTES, MPI_BYTE, &status);
    }
    TOLD(MPI_File_close(&file));
    return finish();
}
