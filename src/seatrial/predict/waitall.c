/* Loaded into a simulation by LD_PRELOAD: waits for many requests one after the other.
 *
 * SimGrid 3.32 waits for the first of those that are left, again and again, and each time asks all of
 * them. A question about an eager message that has arrived searches the list of all eager messages
 * under way, of all ranks. With 128 ranks that all send to all, that is 10^10 steps and more for one
 * MPI_Alltoall (docs/dev/predictions.md). Later versions have a set in place of the list.
 *
 * The functions are simgrid::smpi::Request::waitall and wait, which SimGrid's collective operations
 * call. Where a version has others, this one is not called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

#define WAITALL _ZN7simgrid4smpi7Request7waitallEiPPS1_P10MPI_Status
#define WAIT _ZN7simgrid4smpi7Request4waitEPPS1_P10MPI_Status
#define NAME(symbol) NAME_OF(symbol)
#define NAME_OF(symbol) #symbol

enum { MANY = 64 }; /* requests; fewer are waited for as SimGrid does */

int WAITALL(int count, MPI_Request *requests, MPI_Status *status)
{
    int (*all)(int, MPI_Request *, MPI_Status *) = dlsym(RTLD_NEXT, NAME(WAITALL));
    int (*one)(MPI_Request *, MPI_Status *) = dlsym(RTLD_NEXT, NAME(WAIT));

    if (count < MANY || status != MPI_STATUSES_IGNORE || !one)
        return all(count, requests, status);
    int result = MPI_SUCCESS;
    for (int i = 0; i < count; i++) {
        int error = requests[i] == MPI_REQUEST_NULL ? MPI_SUCCESS : one(&requests[i], MPI_STATUS_IGNORE);
        if (result == MPI_SUCCESS)
            result = error;
    }
    return result;
}
