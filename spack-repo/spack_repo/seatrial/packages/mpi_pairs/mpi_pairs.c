/* mpi_pairs: several pairs of ranks send at once, and the rate of each pair is measured.
 *
 * Of 2 k ranks, rank i < k starts and rank i + k answers: pair i. The launcher places the ranks:
 * by blocks on two nodes, so that each pair has a rank on either, or all on one node. All pairs
 * leave one barrier and do rounds of one pattern:
 *
 *   latency   a ping-pong of one byte
 *   pingpong  a ping-pong of -s bytes; each direction waits for the other
 *   uni       -w messages of -s bytes one way, then a reply of one byte
 *   bi        -w messages of -s bytes each way, at the same time
 *
 * A pair begins with rounds that are not measured, until all pairs have begun. It measures its
 * rounds until -t ms are over and at least -n are done. Then it goes on with rounds that are not
 * measured, until all pairs have measured theirs: so each is measured while all others send. That
 * is a repetition; -r are printed, one more before them is not.
 *
 * The starting ranks must be on one node: their times are of one clock. They agree by messages
 * among themselves (MPI_Ibarrier), and each answering rank has messages with its own starting rank
 * only: pairs may be on rails that do not reach one another.
 *
 * A message has a pattern of bytes that depends on its pair and its direction. The last round of
 * each repetition is verified whole; a difference ends the program.
 *
 * Exit code: 0; 2 wrong options or an odd number of ranks; 3 a message differs from what was sent,
 * or the starting ranks are on several nodes; 4 no memory, or the table cannot be written. For 3
 * and 4 that is the code of MPI_Abort, which a launcher may replace by its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VERSION "1.0"

enum { WRONG_USE = 2, WRONG_DATA = 3, NO_RESOURCE = 4 };
enum { MORE = 1, LAST, REPLY, FACTS }; /* tags */
enum { MAX_WINDOW = 1024, PAGE = 4096, NAME = 64 };
enum pattern { LATENCY, PINGPONG, UNI, BI, PATTERNS };
static const char *const NAMES[] = {"latency", "pingpong", "uni", "bi"};

struct options {
    long size, window, ms, rounds, repetitions;
};

/* Of a rank. */
struct facts {
    char node[NAME];
    int64_t core; /* the only one that it may use; -1: it may use several */
};

/* Of a pair in a repetition, in ns: it sends from ``begin`` until ``until``, and is measured from
 * ``start`` to ``end``. */
struct times {
    int64_t rounds, begin, start, end, until;
};

static const char USAGE[] =
    "usage: mpi_pairs [-s BYTES] [-w COUNT] [-t MS] [-n COUNT] [-r COUNT]\n"
    "Measures pairs of ranks that send at once. Of 2 k ranks, rank i and rank i + k are a pair.\n"
    "  -s BYTES  large message, 2 to 1073741824 (4194304)\n"
    "  -w COUNT  large messages at once, 1 to 1024 (4)\n"
    "  -t MS     least time of a repetition, 0 to 600000 (100)\n"
    "  -n COUNT  least rounds of a repetition, 1 to 1000000 (1)\n"
    "  -r COUNT  repetitions of each pattern, 1 to 1000 (10)\n"
    "  -h        print this\n";

static int rank, pairs, partner;
static MPI_Comm starters = MPI_COMM_NULL;
static unsigned char *out, *in;
static MPI_Request requests[2 * MAX_WINDOW];
static MPI_Status statuses[2 * MAX_WINDOW];
static uint32_t table_crc;

static void fail(int code, const char *format, ...)
{
    char reason[1024];
    va_list words;

    va_start(words, format);
    vsnprintf(reason, sizeof reason, format, words);
    va_end(words);
    /* In one write: launchers mix what the ranks and MPI_Abort write. */
    fprintf(stderr, "mpi_pairs: rank %d: %s\n", rank, reason);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

static int64_t now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* ---- messages ---- */

/* Byte ``at`` of the message of a pair; ``answer``: of the direction back. */
static unsigned char byte(int pair, int answer, size_t at)
{
    return (unsigned char)(at * 7 + (at >> 8) + (size_t)pair * 31 + (answer ? 101 : 0));
}

static void fill(long size)
{
    for (size_t i = 0; i < (size_t)size; i++)
        out[i] = byte(rank % pairs, rank >= pairs, i);
}

static void verify(const unsigned char *from, long size, const MPI_Status *status)
{
    int count;

    MPI_Get_count(status, MPI_BYTE, &count);
    if (count != size)
        fail(WRONG_DATA, "expected a message of %ld bytes, received %d", size, count);
    for (size_t i = 0; i < (size_t)size; i++)
        if (from[i] != byte(rank % pairs, rank < pairs, i))
            fail(WRONG_DATA, "byte %zu of a message of %ld bytes differs", i, size);
}

static void send(const void *data, long size, int tag)
{
    MPI_Send(data, (int)size, MPI_BYTE, partner, tag, MPI_COMM_WORLD);
}

static void receive(void *data, long size, int tag, MPI_Status *status)
{
    MPI_Recv(data, (int)size, MPI_BYTE, partner, tag, MPI_COMM_WORLD, status);
}

/* One round; returns its tag. ``tag``: MORE or LAST, of the starting rank; the other gets it with
 * the message. The last round is verified. */
static int round_of(enum pattern pattern, long size, long window, int tag)
{
    int starts = rank < pairs, sends = pattern == BI || starts;
    int count = 0, received = 0;
    unsigned char reply = 1;

    if (pattern == LATENCY || pattern == PINGPONG) {
        if (starts)
            send(out, size, tag);
        receive(in, size, MPI_ANY_TAG, statuses);
        if (!starts)
            send(out, size, statuses[0].MPI_TAG);
        received = 1;
    } else {
        if (pattern == BI || !starts)
            for (received = 0; received < window; received++)
                MPI_Irecv(in + received * size, (int)size, MPI_BYTE, partner,
                          MPI_ANY_TAG, MPI_COMM_WORLD, &requests[count++]);
        if (sends)
            for (long i = 0; i < window; i++)
                MPI_Isend(out, (int)size, MPI_BYTE, partner, tag, MPI_COMM_WORLD,
                          &requests[count++]);
        MPI_Waitall(count, requests, statuses);
        if (pattern == UNI && starts)
            receive(&reply, 1, REPLY, MPI_STATUS_IGNORE);
        else if (pattern == UNI)
            send(&reply, 1, REPLY);
    }
    if (!starts)
        tag = statuses[0].MPI_TAG;
    for (int i = 0; tag == LAST && i < received; i++)
        verify(in + i * size, size, &statuses[i]);
    return tag;
}

/* Rounds that are not measured, until all starting ranks have come here. */
static void until_all(enum pattern pattern, long size, long window)
{
    MPI_Request others;
    int all = 0;

    MPI_Ibarrier(starters, &others);
    while (MPI_Test(&others, &all, MPI_STATUS_IGNORE), !all)
        round_of(pattern, size, window, MORE);
}

/* One repetition of a pair. */
static struct times repetition(enum pattern pattern, const struct options *asked)
{
    long size = pattern == LATENCY ? 1 : asked->size;
    struct times made = {0, 0, 0, 0, 0};

    if (rank >= pairs) {
        while (round_of(pattern, size, asked->window, MORE) != LAST)
            ;
        return made;
    }
    MPI_Barrier(starters);
    made.begin = now();
    until_all(pattern, size, asked->window);
    made.start = made.end = now();
    while (made.rounds < asked->rounds || made.end - made.start < asked->ms * 1000000) {
        round_of(pattern, size, asked->window, MORE);
        made.rounds++;
        made.end = now();
    }
    until_all(pattern, size, asked->window);
    made.until = now();
    round_of(pattern, size, asked->window, LAST);
    return made;
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

    *asked = (struct options){4194304, 4, 100, 1, 10};
    *wrong = 0;
    opterr = 0;
    while ((letter = getopt(argc, argv, ":s:w:t:n:r:h")) != -1) {
        switch (letter) {
        case 's': good = number(optarg, 2, 1 << 30, &asked->size); break;
        case 'w': good = number(optarg, 1, MAX_WINDOW, &asked->window); break;
        case 't': good = number(optarg, 0, 600000, &asked->ms); break;
        case 'n': good = number(optarg, 1, 1000000, &asked->rounds); break;
        case 'r': good = number(optarg, 1, 1000, &asked->repetitions); break;
        case 'h': return 1;
        case ':': snprintf(wrong, room, "option -%c needs a value", optopt); return 0;
        default: snprintf(wrong, room, "there is no option -%c", optopt); return 0;
        }
        if (!good) {
            snprintf(wrong, room, "option -%c does not take '%s'", letter, optarg);
            return 0;
        }
    }
    if (optind < argc)
        snprintf(wrong, room, "'%s' is not an option", argv[optind]);
    return 0;
}

/* ---- output ---- */

/* A line of the table, which is part of its checksum (CRC-32, zlib's). */
static void say(const char *format, ...)
{
    char line[1024];
    va_list words;

    va_start(words, format);
    vsnprintf(line, sizeof line, format, words);
    va_end(words);
    fputs(line, stdout);
    table_crc = ~table_crc;
    for (const char *at = line; *at; at++) {
        table_crc ^= (unsigned char)*at;
        for (int bit = 0; bit < 8; bit++)
            table_crc = table_crc >> 1 ^ (table_crc & 1 ? 0xedb88320u : 0);
    }
    table_crc = ~table_crc;
}

/* The first line of the library's name, without what would break a line of the table. */
static void clean(char *to, size_t room, const char *from)
{
    size_t at = 0;

    for (; at + 1 < room && *from && *from != '\n' && *from != ','; from++)
        to[at++] = *from < ' ' || *from > '~' ? ' ' : *from;
    to[at] = 0;
}

static struct facts own_facts(void)
{
    const char *slurm = getenv("SLURMD_NODENAME");
    struct facts own = {"", -1};
    cpu_set_t cores;

    if (slurm && *slurm)
        snprintf(own.node, sizeof own.node, "%s", slurm);
    else
        gethostname(own.node, sizeof own.node - 1);
    if (!sched_getaffinity(0, sizeof cores, &cores) && CPU_COUNT(&cores) == 1)
        for (own.core = 0; !CPU_ISSET((int)own.core, &cores); own.core++)
            ;
    return own;
}

static void print_heading(const struct options *asked, const struct facts *facts)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING], name[120];
    int length;

    MPI_Get_library_version(library, &length);
    clean(name, sizeof name, library);
    say("# mpi_pairs " VERSION ": %d pairs of ranks at once\n", pairs);
    say("# MPI: %s\n", name);
    say("# messages: 1 and %ld bytes, %ld at once\n", asked->size, asked->window);
    say("# repetitions: %ld of at least %ld ms and %ld rounds\n", asked->repetitions, asked->ms,
        asked->rounds);
    for (int pair = 0; pair < pairs; pair++) {
        const struct facts *a = &facts[2 * pair], *b = a + 1;
        say("# pair %d: nodes %s and %s, cores %lld and %lld\n", pair, a->node, b->node,
            (long long)a->core, (long long)b->core);
    }
    say("# Times in ns since the first pair's begin in the repetition.\n");
    say("# pattern repetition pair rounds begin start end until\n");
}

/* Facts of both ranks of each pair, on rank 0. */
static void gather_facts(struct facts *all)
{
    struct facts both[2] = {own_facts(), {"", -1}};

    if (rank >= pairs) {
        send(&both[0], sizeof *both, FACTS);
        return;
    }
    receive(&both[1], sizeof *both, FACTS, MPI_STATUS_IGNORE);
    MPI_Gather(both, sizeof both, MPI_BYTE, all, sizeof both, MPI_BYTE, 0, starters);
    for (int pair = 1; rank == 0 && pair < pairs; pair++)
        if (strcmp(all[2 * pair].node, all[0].node))
            fail(WRONG_DATA, "rank %d is on node %s and not on %s, as rank 0: their clocks differ",
                 pair, all[2 * pair].node, all[0].node);
}

static void print_repetition(enum pattern pattern, long number, const struct times *all)
{
    int64_t first = all[0].begin;

    for (int pair = 1; pair < pairs; pair++)
        if (all[pair].begin < first)
            first = all[pair].begin;
    for (int pair = 0; pair < pairs; pair++)
        say("%s %ld %d %lld %lld %lld %lld %lld\n", NAMES[pattern], number, pair,
            (long long)all[pair].rounds, (long long)(all[pair].begin - first),
            (long long)(all[pair].start - first), (long long)(all[pair].end - first),
            (long long)(all[pair].until - first));
}

static void *memory(size_t bytes)
{
    void *made = NULL;

    if (posix_memalign(&made, PAGE, bytes))
        fail(NO_RESOURCE, "no memory for %zu bytes", bytes);
    memset(made, 0, bytes);
    return made;
}

/* A communicator of the starting ranks. Only these take part: no message goes to another pair. */
static void connect_starters(void)
{
    int range[1][3] = {{0, pairs - 1, 1}};
    MPI_Group world, group;

    if (rank >= pairs)
        return;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &starters);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

static void run(const struct options *asked)
{
    struct facts *facts = memory(2 * (size_t)pairs * sizeof *facts);
    struct times *all = memory((size_t)pairs * sizeof *all);

    out = memory((size_t)asked->size);
    in = memory((size_t)(asked->size * asked->window));
    fill(asked->size);
    connect_starters();
    gather_facts(facts);
    if (rank == 0)
        print_heading(asked, facts);
    for (int pattern = 0; pattern < PATTERNS; pattern++)
        for (long i = -1; i < asked->repetitions; i++) {
            struct times own = repetition(pattern, asked);
            if (rank < pairs)
                MPI_Gather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, 0, starters);
            if (rank == 0 && i >= 0)
                print_repetition(pattern, i, all);
        }
    if (rank == 0)
        printf("# crc32 %08x\n", (unsigned)table_crc);
    if (fflush(stdout) || ferror(stdout))
        fail(NO_RESOURCE, "cannot write the table");
    if (starters != MPI_COMM_NULL)
        MPI_Comm_free(&starters);
}

int main(int argc, char **argv)
{
    struct options asked;
    char wrong[256];
    int help, ranks, code = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    pairs = ranks / 2;
    partner = rank < pairs ? rank + pairs : rank - pairs;
    help = read_options(argc, argv, &asked, wrong, sizeof wrong);
    if (!help && !*wrong && (ranks < 2 || ranks % 2))
        snprintf(wrong, sizeof wrong, "expected an even number of ranks, started with %d", ranks);
    if (*wrong) {
        if (rank == 0)
            fprintf(stderr, "mpi_pairs: %s\n%s", wrong, USAGE);
        code = WRONG_USE;
    } else if (help) {
        if (rank == 0)
            fputs(USAGE, stdout);
    } else {
        run(&asked);
    }
    MPI_Finalize();
    return code;
}
