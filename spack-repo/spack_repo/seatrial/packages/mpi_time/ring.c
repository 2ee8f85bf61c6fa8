/* A program whose calls are known, for the stand-alone test: 25 messages of 4 B around a ring. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, ranks, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 25; i++) {
        if (rank == 0)
            MPI_Send(&token, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
        MPI_Recv(&token, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(&token, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}
