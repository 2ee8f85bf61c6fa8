/* Which tests an hpcc binary runs, chosen at run time: HPCC_TESTS=HPL,SingleDGEMM.
 *
 * hpcc itself always runs all 15. Its main calls each test through one function; the linker
 * (-Wl,--wrap=NAME) sends those calls here, and hpcc's own sources stay as they are. A test that
 * was not asked for reports -1, as hpcc does for any test that did not run. Without HPCC_TESTS
 * all tests run. A name that is none of the tests ends the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TESTS(X) \
    X(MPIRandomAccess, HPCC_MPIRandomAccess) \
    X(StarRandomAccess, HPCC_StarRandomAccess) \
    X(SingleRandomAccess, HPCC_SingleRandomAccess) \
    X(MPIRandomAccess_LCG, HPCC_MPIRandomAccess_LCG) \
    X(StarRandomAccess_LCG, HPCC_StarRandomAccess_LCG) \
    X(SingleRandomAccess_LCG, HPCC_SingleRandomAccess_LCG) \
    X(PTRANS, PTRANS) \
    X(StarDGEMM, HPCC_StarDGEMM) \
    X(SingleDGEMM, HPCC_SingleDGEMM) \
    X(StarSTREAM, HPCC_StarStream) \
    X(SingleSTREAM, HPCC_SingleStream) \
    X(MPIFFT, HPCC_MPIFFT) \
    X(StarFFT, HPCC_StarFFT) \
    X(SingleFFT, HPCC_SingleFFT)

static int same(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && !strncmp(word, name, length);
}

static int is_test(const char *word, size_t length)
{
#define X(name, function) || same(word, length, #name)
    return same(word, length, "HPL") || same(word, length, "LatencyBandwidth") TESTS(X);
#undef X
}

static int wanted(const char *name)
{
    const char *word = getenv("HPCC_TESTS");
    int found = !word || !*word;
    while (word && *word) {
        size_t length = strcspn(word, ",");
        if (!is_test(word, length)) {
            fprintf(stderr, "hpcc: HPCC_TESTS: no test is named %.*s\n", (int)length, word);
            exit(2);
        }
        found |= same(word, length, name);
        word += length;
        word += *word == ',';
    }
    return found;
}

#define X(name, function) \
    int __real_##function(void *params); \
    int __wrap_##function(void *params) \
    { \
        return wanted(#name) ? __real_##function(params) : 0; \
    }
TESTS(X)
#undef X

void __real_main_bench_lat_bw(void *params);
void __wrap_main_bench_lat_bw(void *params)
{
    if (wanted("LatencyBandwidth"))
        __real_main_bench_lat_bw(params);
}

int __real_HPL_main(int argc, char **argv, void *result, int *failure);
int __wrap_HPL_main(int argc, char **argv, void *result, int *failure)
{
    return wanted("HPL") ? __real_HPL_main(argc, argv, result, failure) : 0;
}
