/* Two or more ranks pass 25 messages of 1000 ints round in a ring, and 5 more from another place:
 * the program that the stand-alone test of mpiP profiles, because what its profile must say is
 * known. */
#include <mpi.h>
#include <stdio.h>

enum { FIRST = 25, LATER = 5, LENGTH = 1000 };

int main(int argc, char **argv)
{
    static int out[LENGTH], in[LENGTH];
    int rank, size, to, from, i;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    to = (rank + 1) % size;
    from = (rank + size - 1) % size;
    for (i = 0; i < FIRST; i++) {
        if (rank == 0)
            MPI_Send(out, LENGTH, MPI_INT, to, i, MPI_COMM_WORLD);
        MPI_Recv(in, LENGTH, MPI_INT, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(out, LENGTH, MPI_INT, to, i, MPI_COMM_WORLD);
    }
    for (i = 0; i < LATER; i++) {
        if (rank == 0)
            MPI_Send(out, LENGTH, MPI_INT, to, i, MPI_COMM_WORLD);
        MPI_Recv(in, LENGTH, MPI_INT, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(out, LENGTH, MPI_INT, to, i, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%d messages round %d ranks\n", FIRST + LATER, size);
    MPI_Finalize();
    return 0;
}
