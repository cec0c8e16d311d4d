/* MPI-IO calls at known places; tests/mpi.rs knows them. Four ranks, one file. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) do { if ((call) != MPI_SUCCESS) { fprintf(stderr, "%s\n", #call); MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)

int main(int argc, char **argv)
{
    static double values[10000];
    int rank;
    MPI_File file;
    MPI_Request request;
    MPI_Datatype strided;
    CHECK(MPI_Init(&argc, &argv));
    CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK(MPI_File_open(MPI_COMM_WORLD, "shared", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    CHECK(MPI_File_write_at(file, rank * 8000, values, 1000, MPI_DOUBLE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_seek(file, rank * 800, MPI_SEEK_SET));
    CHECK(MPI_File_read(file, values, 100, MPI_DOUBLE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at_all(file, rank * 400, values, 50, MPI_DOUBLE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_iwrite_at(file, 100000 + rank * 80, values, 10, MPI_DOUBLE, &request));
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(MPI_Type_vector(10, 1, 4, MPI_DOUBLE, &strided));
    CHECK(MPI_Type_commit(&strided));
    CHECK(MPI_File_set_view(file, 200000 + rank * 8, MPI_DOUBLE, strided, "native", MPI_INFO_NULL));
    CHECK(MPI_File_write_all(file, values, 10, MPI_DOUBLE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        CHECK(MPI_File_delete("shared", MPI_INFO_NULL));
    CHECK(MPI_Finalize());
    return 0;
}
