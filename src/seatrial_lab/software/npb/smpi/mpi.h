/* Lets SimGrid's copies of NPB's IS and EP build with an ordinary MPI: what SimGrid adds to MPI
 * is defined as what the original benchmark does at that place. */
#include <mpi.h>
#define TRACE_smpi_set_category(category) ((void)0)
#define SMPI_SHARED_MALLOC(size) malloc(size)
#define SMPI_SHARED_FREE(data) free(data)
#define SMPI_SAMPLE_GLOBAL(start, end, step, iterations, threshold) for (start; end; step)
