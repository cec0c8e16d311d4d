/* Contiguous independent I/O by explicit offsets and by individual pointers; what a rank wrote another one reads. */
#include "check.h"

#define COUNT 50021

static int out[COUNT], in[COUNT];

int main(int argc, char **argv)
{
    MPI_Status status;
    start(&argc, &argv);
    MPI_File file = open_file("data", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    for (int i = 0; i < COUNT; i++)
        out[i] = value((long)rank * COUNT + i, 0);
    MPI_Offset mine = (MPI_Offset)rank * COUNT * (MPI_Offset)sizeof(int);
    TOLD(MPI_File_write_at(file, mine, out, COUNT, MPI_INT, &status));
    verify("wrote all", counted(&status, MPI_INT) == COUNT);
    TOLD(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_sync(file));

    int neighbour = (rank + 1) % ranks;
    MPI_Offset its = (MPI_Offset)neighbour * COUNT * (MPI_Offset)sizeof(int);
    TOLD(MPI_File_read_at(file, its, in, COUNT, MPI_INT, &status));
    int good = counted(&status, MPI_INT) == COUNT;
    for (int i = 0; i < COUNT; i++)
        good &= in[i] == value((long)neighbour * COUNT + i, 0);
    verify("the neighbour's data", good);

    TOLD(MPI_File_seek(file, mine, MPI_SEEK_SET));
    for (int i = 0; i < COUNT; i++)
        out[i] = value((long)rank * COUNT + i, 1);
    for (int i = 0; i < COUNT; i += 1000)
        MPI_File_write(file, out + i, i + 1000 <= COUNT ? 1000 : COUNT - i, MPI_INT, &status);
    MPI_Offset position;
    TOLD(MPI_File_get_position(file, &position));
    verify("position after the writes", position == mine + (MPI_Offset)sizeof out);
    TOLD(MPI_File_seek(file, -(MPI_Offset)sizeof out, MPI_SEEK_CUR));
    TOLD(MPI_File_read(file, in, COUNT, MPI_INT, &status));
    verify("own data", memcmp(in, out, sizeof out) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_seek(file, 0, MPI_SEEK_END));
    TOLD(MPI_File_get_position(file, &position));
    verify("the end", position == (MPI_Offset)ranks * (MPI_Offset)sizeof out);
    TOLD(MPI_File_read(file, in, 1, MPI_INT, &status));
    verify("nothing after the end", counted(&status, MPI_INT) == 0);
    TOLD(MPI_File_read_at(file, position - 6, in, 10, MPI_BYTE, &status));
    verify("six bytes before the end", counted(&status, MPI_BYTE) == 6);
    TOLD(MPI_File_close(&file));

    file = open_file("data", MPI_MODE_RDONLY, MPI_INFO_NULL);
    TOLD(MPI_File_read_at(file, mine, in, COUNT, MPI_INT, &status));
    verify("own data after reopening", memcmp(in, out, sizeof out) == 0);
    TOLD(MPI_File_close(&file));
    MPI_File none;
    int code = MPI_File_open(MPI_COMM_WORLD, "none", MPI_MODE_RDONLY, MPI_INFO_NULL, &none), class = 0;
    MPI_Error_class(code, &class);
    verify("no such file", class == MPI_ERR_NO_SUCH_FILE);
    code = MPI_File_open(MPI_COMM_WORLD, "data", MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL, &none);
    MPI_Error_class(code, &class);
    verify("file exists", code != MPI_SUCCESS);
    return finish();
}
