/* set_size, preallocate, get_size, delete, delete on close, append mode, groups, modes, errors. */
#include "check.h"

static char data[100000], back[100000];

static int class_of(int code)
{
    int class = 0;
    MPI_Error_class(code, &class);
    return class;
}

/* Rank 0 alone preallocates. Open MPI 4.1 asks for the file's size on every rank before the root writes, and a rank
 * that is late finds the file grown already, leaves out a broadcast and fails in its next call. */
static int preallocate(const char *name, MPI_Offset size)
{
    MPI_File file;
    int code = MPI_SUCCESS;
    if (rank == 0) {
        code = MPI_File_open(MPI_COMM_SELF, (char *)name, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        if (code == MPI_SUCCESS) {
            code = MPI_File_preallocate(file, size);
            int closed = MPI_File_close(&file);
            code = code == MPI_SUCCESS ? closed : code;
        }
    }
    return code;
}

int main(int argc, char **argv)
{
    MPI_Status status;
    MPI_Offset size, position;
    int mode;
    start(&argc, &argv);
    memset(data, 'd', sizeof data);
    MPI_File file = open_file("data", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    TOLD(MPI_File_set_size(file, 1000000));
    TOLD(MPI_File_get_size(file, &size));
    verify("size as set", size == 1000000);
    if (rank == 0)
        MPI_File_write_at(file, 999990, data, 100, MPI_BYTE, &status);
    TOLD(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    TOLD(MPI_File_get_size(file, &size));
    verify("size grown", size == 1000090);
    TOLD(MPI_File_set_size(file, 500));
    TOLD(MPI_File_get_size(file, &size));
    verify("size cut", size == 500);
    TOLD(MPI_File_read_at(file, 490, back, 100, MPI_BYTE, &status));
    verify("ten are left", counted(&status, MPI_BYTE) == 10 && back[0] == 0);
    TOLD(preallocate("data", 700000));
    TOLD(MPI_File_get_size(file, &size));
    verify("preallocated", size == 700000);
    TOLD(preallocate("data", 600000));
    TOLD(MPI_File_get_size(file, &size));
    verify("preallocate cuts nothing", size == 700000);
    TOLD(MPI_File_read_at(file, 600000, back, sizeof back, MPI_BYTE, &status));
    memset(data, 0, sizeof data);
    verify("zeros", counted(&status, MPI_BYTE) == sizeof back && memcmp(back, data, sizeof back) == 0);
    TOLD(MPI_File_get_amode(file, &mode));
    verify("mode", mode == (MPI_MODE_RDWR | MPI_MODE_CREATE));
    MPI_Group group;
    TOLD(MPI_File_get_group(file, &group));
    int members;
    MPI_Group_size(group, &members);
    verify("group", members == ranks);
    MPI_Group_free(&group);
    TOLD(MPI_File_close(&file));

    file = open_file("data", MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL);
    TOLD(MPI_File_get_position(file, &position));
    verify("appending starts at the end", position == 700000);
    verify("a writer cannot read", MPI_File_read_at(file, 0, back, 1, MPI_BYTE, &status) != MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_File_write(file, "appended", 8, MPI_CHAR, &status);
    TOLD(MPI_File_close(&file));
    file = open_file("data", MPI_MODE_RDONLY, MPI_INFO_NULL);
    verify("a reader cannot write", MPI_File_write_at(file, 0, back, 1, MPI_BYTE, &status) != MPI_SUCCESS);
    TOLD(MPI_File_read_at(file, 700000, back, 20, MPI_BYTE, &status));
    verify("appended", counted(&status, MPI_BYTE) == 8 && memcmp(back, "appended", 8) == 0);
    TOLD(MPI_File_close(&file));

    file = open_file("gone", MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL);
    TOLD(MPI_File_write_at_all(file, rank * 1000, data, 1000, MPI_BYTE, &status));
    TOLD(MPI_File_close(&file));
    verify("deleted on close", class_of(MPI_File_open(MPI_COMM_WORLD, "gone", MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) ==
                                   MPI_ERR_NO_SUCH_FILE);
    file = open_file("doomed", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL);
    TOLD(MPI_File_close(&file));
    int right = 1;
    if (rank == 0)
        right = MPI_File_delete("doomed", MPI_INFO_NULL) == MPI_SUCCESS &&
                class_of(MPI_File_delete("doomed", MPI_INFO_NULL)) == MPI_ERR_NO_SUCH_FILE;
    verify("delete, and once only", right);
    return finish();
}
