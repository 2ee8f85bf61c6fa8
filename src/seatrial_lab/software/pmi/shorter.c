/* A library to preload into programs of MPICH that Slurm starts with its PMI server.

   Slurm's server says that a value may have 1024 characters, but takes requests of at most 1024
   characters with command and key. MPICH over UCX fills values to the limit, depending on what
   was in its memory before (github.com/pmodels/mpich issue 6924), and then ends with
   "value not properly terminated in client request". Here the answer is made to say 900. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static const char ANSWER[] = "cmd=maxes ", SAID[] = "vallen_max=1024", MEANT[] = "vallen_max=900";

ssize_t read(int file, void *buffer, size_t size)
{
    static ssize_t (*next)(int, void *, size_t);
    if (!next)
        next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    ssize_t got = next(file, buffer, size);
    if (got > (ssize_t)sizeof ANSWER && !memcmp(buffer, ANSWER, sizeof ANSWER - 1)) {
        char *end = (char *)buffer + got;
        char *found = memmem(buffer, got, SAID, sizeof SAID - 1);
        if (found) {
            char *rest = found + sizeof SAID - 1;
            memcpy(found, MEANT, sizeof MEANT - 1);
            memmove(found + sizeof MEANT - 1, rest, end - rest);
            got -= sizeof SAID - sizeof MEANT;
        }
    }
    return got;
}
