/* Strided file views (vector, subarray, darray, hindexed, nested with a displacement), independent and collective,
 * with data sieving on and off. The file is at last read flat and every element checked. */
#include "check.h"

#define SIDE 240
#define CELLS (SIDE * SIDE)

static int flat[CELLS], part[CELLS], back[CELLS];

static void fill_part(int count, int version)
{
    for (int i = 0; i < count; i++)
        part[i] = value(i, version * 100 + rank);
}

/* Writes through a view and reads back through it; the parts of all ranks fill the square. */
static void through(const char *what, MPI_Datatype type, int count, MPI_Info info, int collective, int version)
{
    MPI_Status status;
    MPI_Offset skipped = 128;
    MPI_File file = open_file(what, MPI_MODE_RDWR | MPI_MODE_CREATE, info);
    MPI_Type_commit(&type);
    char native[] = "native";
    TOLD(MPI_File_set_view(file, skipped, MPI_INT, type, native, info));
    fill_part(count, version);
    if (collective)
        TOLD(MPI_File_write_all(file, part, count, MPI_INT, &status));
    else
        TOLD(MPI_File_write(file, part, count, MPI_INT, &status));
    verify("count", counted(&status, MPI_INT) == count);
    TOLD(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    memset(back, 0, sizeof back);
    TOLD(MPI_File_seek(file, 0, MPI_SEEK_SET));
    if (collective)
        TOLD(MPI_File_read_all(file, back, count, MPI_INT, &status));
    else
        TOLD(MPI_File_read(file, back, count, MPI_INT, &status));
    verify("what was written", memcmp(back, part, (size_t)count * sizeof(int)) == 0);
    MPI_Offset at, byte;
    TOLD(MPI_File_seek(file, 7, MPI_SEEK_SET));
    TOLD(MPI_File_get_position(file, &at));
    TOLD(MPI_File_get_byte_offset(file, at, &byte));
    TOLD(MPI_File_read_at(file, 7, back, 3, MPI_INT, &status));
    verify("three in the middle", memcmp(back, part + 7, 3 * sizeof(int)) == 0);
    TOLD(MPI_File_set_view(file, byte, MPI_INT, MPI_INT, native, MPI_INFO_NULL));
    TOLD(MPI_File_read_at(file, 0, back, 1, MPI_INT, &status));
    verify("the byte offset of the seventh", back[0] == part[7]);

    MPI_Offset got_skipped;
    MPI_Datatype etype, filetype;
    char representation[MPI_MAX_DATAREP_STRING];
    TOLD(MPI_File_get_view(file, &got_skipped, &etype, &filetype, representation));
    verify("get_view", got_skipped == byte && strcmp(representation, "native") == 0);
    TOLD(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, native, MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_read_at(file, skipped, flat, CELLS, MPI_INT, &status));
    long long sum = 0, expected = 0, mine = 0;
    for (int i = 0; i < CELLS; i++)
        sum += flat[i];
    for (int i = 0; i < count; i++)
        mine += part[i];
    MPI_Allreduce(&mine, &expected, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    verify("the square holds all parts", sum == expected);
    TOLD(MPI_File_close(&file));
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    in_step = 0;
    int count = CELLS / ranks;
    MPI_Datatype type, block;
    MPI_Info sieving, plain;
    MPI_Info_create(&sieving);
    MPI_Info_create(&plain);
    const char *keys[] = {"romio_ds_read", "romio_ds_write", "romio_cb_read", "romio_cb_write"};
    for (int i = 0; i < 4; i++) {
        MPI_Info_set(sieving, keys[i], "enable");
        MPI_Info_set(plain, keys[i], "disable");
    }
    MPI_Info_set(sieving, "ind_rd_buffer_size", "65536");
    MPI_Info_set(sieving, "ind_wr_buffer_size", "32768");
    MPI_Info_set(sieving, "cb_buffer_size", "65536");
    MPI_Info hints[] = {MPI_INFO_NULL, sieving, plain};
    for (int way = 0; way < 6; way++) {
        MPI_Info info = hints[way / 2];
        int collective = way % 2;
        char name[40];
        /* Every rank takes each ranks-th run of five. */
        MPI_Type_vector(count / 5, 5, 5 * ranks, MPI_INT, &block);
        int displacement = rank * 5 * (int)sizeof(int), one = 1;
        MPI_Aint shift = displacement;
        MPI_Type_create_hindexed(1, &one, &shift, block, &type);
        snprintf(name, sizeof name, "vector-%d", way);
        through(name, type, count, info, collective, way);
        MPI_Type_free(&block);

        int sizes[] = {SIDE, SIDE}, parts[] = {SIDE, SIDE / ranks}, begins[] = {0, rank * (SIDE / ranks)};
        MPI_Type_create_subarray(2, sizes, parts, begins, MPI_ORDER_C, MPI_INT, &type);
        snprintf(name, sizeof name, "subarray-%d", way);
        through(name, type, count, info, collective, way);

        int distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK}, arguments[] = {3, MPI_DISTRIBUTE_DFLT_DARG},
            grid[] = {2, ranks / 2};
        MPI_Type_create_darray(ranks, rank, 2, sizes, distributions, arguments, grid, MPI_ORDER_C, MPI_INT, &type);
        snprintf(name, sizeof name, "darray-%d", way);
        through(name, type, count, info, collective, way);

        static int lengths[CELLS];
        static MPI_Aint places[CELLS];
        int runs = 0, taken = 0;
        for (int i = rank * 3; i + 3 <= CELLS && taken < count; i += 3 * ranks, runs++, taken += 3) {
            lengths[runs] = 3;
            places[runs] = (MPI_Aint)i * (MPI_Aint)sizeof(int);
        }
        MPI_Type_create_hindexed(runs, lengths, places, MPI_INT, &type);
        snprintf(name, sizeof name, "hindexed-%d", way);
        through(name, type, taken, info, collective, way);
    }
    MPI_Info_free(&sieving);
    MPI_Info_free(&plain);
    return finish();
}
