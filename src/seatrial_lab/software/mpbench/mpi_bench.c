/* mpi_bench: MPI by message size, by the method of MPBench, where MPBench itself cannot be had.
 *
 * MPBench is a part of LLCBench, which no package registry has. This program does what Mucci,
 * London and Thurman, "The MPBench Report" (1998), describe, takes MPBench's options and prints
 * its table, so that the same check runs with either. It has none of MPBench's code. The first
 * rank is the master, the last one the slave. One mode is chosen:
 *
 *   -l  gap            the master sends COUNT messages one after the other: us for each MPI_Send.
 *                      The slave answers when it has all; that is not in the time.
 *   -r  round trip     a message there and back, COUNT times: transactions per second
 *   -b  bandwidth      as -l, with the slave's answer in the time: KB/s of 1024 B
 *   -d  bidirectional  both send and receive at the same time, COUNT times: KB/s, both directions
 *   -c  broadcast      COUNT times MPI_Bcast of the first rank, then an answer of the last: KB/s
 *   -y  reduce         MPI_Reduce of the sum of doubles (of floats below 8 B) to the first rank,
 *                      then an answer of the last: KB/s
 *   -z  allreduce      MPI_Allreduce likewise: KB/s
 *   -a  all-to-all     MPI_Alltoall; BYTES is the whole buffer of a rank: KB/s
 *
 * Each row is "BYTES FIGURE", a size for each power of two from 4 B to 2^LOG, printed REPEATS
 * times. Before the first row of a size the mode runs once with one message, which is not timed.
 * The last message of each row of -l, -r, -b and -d is compared with what was sent.
 *
 * Exit code: 0; 2 wrong options or one rank; 3 a message differs from what was sent; 4 no memory, or
 * the table cannot be written. For 3 and 4 that is the code of MPI_Abort, which a launcher may
 * replace by its own.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VERSION "1.0"

enum { WRONG_USE = 2, WRONG_DATA = 3, NO_RESOURCE = 4 };
enum { DATA = 1, ANSWER };
enum { LEAST_LOG = 2, MOST_LOG = 30, ANSWER_BYTES = 4 };

struct options {
    int mode;
    long count, repeats, log;
};

static const char USAGE[] =
    "usage: mpi_bench -l|-r|-b|-d|-c|-y|-z|-a [-i COUNT] [-e REPEATS] [-m LOG] [-x 0]\n"
    "Measures MPI between the first and the last rank, or of all, by message size.\n"
    "  -l, -r, -b, -d  gap, round trip, bandwidth, bandwidth of both directions\n"
    "  -c, -y, -z, -a  broadcast, reduce, allreduce, all-to-all\n"
    "  -i COUNT    messages or calls of a row, 1 to 1000000 (100)\n"
    "  -e REPEATS  rows of each size, 1 to 1000 (1)\n"
    "  -m LOG      the largest message has 2^LOG bytes, 2 to 30 (16)\n"
    "  -x 0        no sizes between powers of two\n"
    "  -h          print this\n";

static int rank, ranks;
static char *out, *in;

static void fail(int code, const char *format, ...)
{
    char reason[256];
    va_list words;

    va_start(words, format);
    vsnprintf(reason, sizeof reason, format, words);
    va_end(words);
    /* In one write: launchers mix what the ranks and MPI_Abort write. */
    fprintf(stderr, "mpi_bench: rank %d: %s\n", rank, reason);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* ---- messages ---- */

static int master(void) { return rank == 0; }
static int slave(void) { return rank == ranks - 1; }
static int other(void) { return master() ? ranks - 1 : 0; }

static void send(long bytes, int tag)
{
    MPI_Send(out, (int)bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD);
}

static void receive(long bytes, int tag)
{
    MPI_Recv(in, (int)bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Byte ``at`` of what a rank sends. */
static char byte(int from, long at)
{
    return (char)(at * 7 + (at >> 8) + from * 31 + 1);
}

/* What has come differs from row to row, so that a message that did not come is seen. */
static void verify(long bytes)
{
    for (long at = 0; at < bytes; at++)
        if (in[at] != byte(other(), at))
            fail(WRONG_DATA, "byte %ld of a message of %ld bytes differs", at, bytes);
    memset(in, 0, (size_t)bytes);
}

static void answer(void)
{
    if (slave())
        send(ANSWER_BYTES, ANSWER);
    else if (master())
        receive(ANSWER_BYTES, ANSWER);
}

/* ---- modes: each returns the seconds of COUNT messages or calls, on the master ---- */

static double one_way(long count, long bytes, int until_answered)
{
    double begin = now(), end;

    for (long i = 0; i < count; i++)
        if (master())
            send(bytes, DATA);
        else if (slave())
            receive(bytes, DATA);
    end = now();
    answer();
    if (until_answered)
        end = now();
    if (slave())
        verify(bytes);
    return end - begin;
}

static double round_trips(long count, long bytes)
{
    double begin = now(), end;

    for (long i = 0; i < count; i++) {
        if (master())
            send(bytes, DATA);
        if (master() || slave())
            receive(bytes, DATA);
        if (slave())
            send(bytes, DATA);
    }
    end = now();
    if (master() || slave())
        verify(bytes);
    return end - begin;
}

static double both_ways(long count, long bytes)
{
    double begin = now(), end;
    MPI_Request both[2];

    if (!master() && !slave())
        return 0;
    for (long i = 0; i < count; i++) {
        MPI_Irecv(in, (int)bytes, MPI_BYTE, other(), DATA, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(out, (int)bytes, MPI_BYTE, other(), DATA, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    }
    end = now();
    verify(bytes);
    return end - begin;
}

static double collective(int mode, long count, long bytes)
{
    MPI_Datatype type = bytes < (long)sizeof(double) ? MPI_FLOAT : MPI_DOUBLE;
    int width, items, part = (int)(bytes / ranks);
    double begin;

    MPI_Type_size(type, &width);
    items = (int)(bytes / width);
    begin = now();
    for (long i = 0; i < count; i++)
        switch (mode) {
        case 'c': MPI_Bcast(out, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD); break;
        case 'y': MPI_Reduce(out, in, items, type, MPI_SUM, 0, MPI_COMM_WORLD); break;
        case 'z': MPI_Allreduce(out, in, items, type, MPI_SUM, MPI_COMM_WORLD); break;
        default: MPI_Alltoall(out, part, MPI_BYTE, in, part, MPI_BYTE, MPI_COMM_WORLD);
        }
    answer();
    return now() - begin;
}

static double seconds(int mode, long count, long bytes)
{
    switch (mode) {
    case 'l': return one_way(count, bytes, 0);
    case 'b': return one_way(count, bytes, 1);
    case 'r': return round_trips(count, bytes);
    case 'd': return both_ways(count, bytes);
    default: return collective(mode, count, bytes);
    }
}

/* What a row has, of a time that is above zero. */
static double figure(int mode, long count, long bytes, double time)
{
    switch (mode) {
    case 'l': return 1e6 * time / (double)count;
    case 'r': return (double)count / time;
    case 'd': return 2.0 * (double)bytes * (double)count / 1024 / time;
    default: return (double)bytes * (double)count / 1024 / time;
    }
}

/* ---- options ---- */

static int number(const char *text, long least, long most, long *to)
{
    char *end;

    errno = 0;
    *to = strtol(text, &end, 10);
    return !errno && end != text && !*end && *to >= least && *to <= most;
}

/* 1 where help is asked for. ``wrong``: a reason, or empty. */
static int read_options(int argc, char **argv, struct options *asked, char *wrong, size_t room)
{
    int letter, good;
    long between;

    *asked = (struct options){0, 100, 1, 16};
    *wrong = 0;
    opterr = 0;
    while ((letter = getopt(argc, argv, ":lrbdcyzai:e:m:x:h")) != -1) {
        good = 1;
        switch (letter) {
        case 'i': good = number(optarg, 1, 1000000, &asked->count); break;
        case 'e': good = number(optarg, 1, 1000, &asked->repeats); break;
        case 'm': good = number(optarg, LEAST_LOG, MOST_LOG, &asked->log); break;
        case 'x': good = number(optarg, 0, 0, &between); break;
        case 'h': return 1;
        case ':': snprintf(wrong, room, "option -%c needs a value", optopt); return 0;
        case '?': snprintf(wrong, room, "there is no option -%c", optopt); return 0;
        default:
            if (asked->mode && asked->mode != letter) {
                snprintf(wrong, room, "-%c and -%c: one mode at a time", asked->mode, letter);
                return 0;
            }
            asked->mode = letter;
        }
        if (!good) {
            snprintf(wrong, room, "option -%c does not take '%s'", letter, optarg);
            return 0;
        }
    }
    if (optind < argc)
        snprintf(wrong, room, "'%s' is not an option", argv[optind]);
    else if (!asked->mode)
        snprintf(wrong, room, "no mode is chosen");
    return 0;
}

static void *memory(size_t bytes)
{
    void *made = NULL;

    if (posix_memalign(&made, 4096, bytes))
        fail(NO_RESOURCE, "no memory for %zu bytes", bytes);
    memset(made, 0, bytes);
    return made;
}

static void run(const struct options *asked)
{
    long largest = 1L << asked->log;

    out = memory((size_t)largest);
    in = memory((size_t)largest);
    /* A sum of doubles of any pattern would take the processor's slow paths. */
    if (strchr("lrbd", asked->mode))
        for (long at = 0; at < largest; at++)
            out[at] = byte(rank, at);
    for (long bytes = 1L << LEAST_LOG; bytes <= largest; bytes *= 2) {
        seconds(asked->mode, 1, bytes);
        for (long i = 0; i < asked->repeats; i++) {
            double time;
            MPI_Barrier(MPI_COMM_WORLD);
            time = seconds(asked->mode, asked->count, bytes);
            if (master())
                printf("%ld %f\n", bytes, figure(asked->mode, asked->count, bytes, time));
        }
    }
    if (fflush(stdout) || ferror(stdout))
        fail(NO_RESOURCE, "cannot write the table");
}

int main(int argc, char **argv)
{
    struct options asked;
    char wrong[256];
    int help, code = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    help = read_options(argc, argv, &asked, wrong, sizeof wrong);
    if (!help && !*wrong && ranks < 2)
        snprintf(wrong, sizeof wrong, "expected two ranks or more, started with %d", ranks);
    if (help) {
        if (master())
            fputs(USAGE, stdout);
    } else if (*wrong) {
        code = WRONG_USE;
        if (master())
            fprintf(stderr, "mpi_bench: %s\n%s", wrong, USAGE);
    } else {
        run(&asked);
    }
    MPI_Finalize();
    return code;
}
