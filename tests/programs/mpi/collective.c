/* Collective I/O: at_all, all, ordered sizes that differ by rank (none at all on one), split collectives, hints for
 * aggregators and stripes, noncontiguous memory. */
#include "check.h"

#define COUNT 30011

static int out[COUNT * 2], in[COUNT * 2];

static void every_way(MPI_Info info, const char *name)
{
    MPI_Status status;
    MPI_File file = open_file(name, MPI_MODE_RDWR | MPI_MODE_CREATE, info);
    MPI_Offset mine = (MPI_Offset)rank * COUNT * (MPI_Offset)sizeof(int);
    for (int i = 0; i < COUNT; i++)
        out[i] = value((long)rank * COUNT + i, 3);
    TOLD(MPI_File_write_at_all(file, mine, out, COUNT, MPI_INT, &status));
    TOLD(MPI_File_read_at_all(file, mine, in, COUNT, MPI_INT, &status));
    verify("at_all", memcmp(in, out, COUNT * sizeof(int)) == 0 && counted(&status, MPI_INT) == COUNT);

    /* Ranks of unequal share; the last has nothing to do but take part. */
    int share = rank == ranks - 1 ? 0 : COUNT / (rank + 1);
    TOLD(MPI_File_seek(file, mine, MPI_SEEK_SET));
    for (int i = 0; i < share; i++)
        out[i] = value((long)rank * COUNT + i, 4);
    TOLD(MPI_File_write_all(file, out, share, MPI_INT, &status));
    TOLD(MPI_File_seek(file, mine, MPI_SEEK_SET));
    memset(in, 0, sizeof in);
    TOLD(MPI_File_read_all(file, in, COUNT, MPI_INT, &status));
    verify("unequal shares", memcmp(in, out, COUNT * sizeof(int)) == 0);

    TOLD(MPI_File_write_at_all_begin(file, mine, out, COUNT, MPI_INT));
    TOLD(MPI_File_write_at_all_end(file, out, &status));
    memset(in, 0, sizeof in);
    TOLD(MPI_File_read_at_all_begin(file, mine, in, COUNT, MPI_INT));
    TOLD(MPI_File_read_at_all_end(file, in, &status));
    verify("split at_all", memcmp(in, out, COUNT * sizeof(int)) == 0);
    TOLD(MPI_File_seek(file, mine, MPI_SEEK_SET));
    TOLD(MPI_File_write_all_begin(file, out, COUNT, MPI_INT));
    TOLD(MPI_File_write_all_end(file, out, &status));
    TOLD(MPI_File_seek(file, mine, MPI_SEEK_SET));
    memset(in, 0, sizeof in);
    TOLD(MPI_File_read_all_begin(file, in, COUNT, MPI_INT));
    TOLD(MPI_File_read_all_end(file, in, &status));
    verify("split all", memcmp(in, out, COUNT * sizeof(int)) == 0);

    /* Every second element of memory to contiguous places of the file, and the other way round. */
    MPI_Datatype comb;
    MPI_Type_vector(COUNT, 1, 2, MPI_INT, &comb);
    MPI_Type_commit(&comb);
    for (int i = 0; i < COUNT * 2; i++)
        out[i] = value((long)rank * COUNT * 2 + i, 5);
    TOLD(MPI_File_write_at_all(file, mine, out, 1, comb, &status));
    TOLD(MPI_File_read_at_all(file, mine, in, COUNT, MPI_INT, &status));
    int good = 1;
    for (int i = 0; i < COUNT; i++)
        good &= in[i] == out[2 * i];
    verify("from strided memory", good);
    memset(in, 0, sizeof in);
    TOLD(MPI_File_read_at(file, mine, in, 1, comb, &status));
    good = 1;
    for (int i = 0; i < COUNT; i++)
        good &= in[2 * i] == out[2 * i] && in[2 * i + 1] == 0;
    verify("to strided memory", good);
    MPI_Type_free(&comb);

    MPI_Info used;
    TOLD(MPI_File_get_info(file, &used));
    MPI_Info_free(&used);
    TOLD(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    every_way(MPI_INFO_NULL, "plain");
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "striping_unit", "65536");
    MPI_Info_set(info, "striping_factor", "4");
    MPI_Info_set(info, "cb_nodes", "2");
    MPI_Info_set(info, "cb_buffer_size", "131072");
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    every_way(info, "hinted");
    MPI_Info_free(&info);
    return finish();
}
