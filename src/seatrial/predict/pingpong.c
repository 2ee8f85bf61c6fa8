/* Half of the round trip between ranks 0 and 1 for each size of the command line, in the simulated
 * network: "BYTES SECONDS" a line. seatrial predict compares it with what the trial measured. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRIPS = 4 };

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++) {
        int size = atoi(argv[i]);
        char *message = calloc((size_t)size, 1);
        if (!message)
            MPI_Abort(MPI_COMM_WORLD, 1);
        double start = 0;
        for (int trip = -1; trip < TRIPS; trip++) { /* the first is not counted */
            if (trip == 0)
                start = MPI_Wtime();
            if (rank == 0)
                MPI_Send(message, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(message, size, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(message, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
        if (rank == 0)
            printf("%d %.12g\n", size, (MPI_Wtime() - start) / 2 / TRIPS);
        free(message);
    }
    MPI_Finalize();
    return 0;
}
