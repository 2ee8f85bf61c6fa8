/* comms: how long MPI_Send, MPI_Isend and MPI_Recv take between two ranks, by message size.
 *
 * The method is that of ParkBench's comms1: a ping-pong of blocking calls, each of which is timed,
 * on both ranks. (No source of comms1 is to be had; this is no copy of it.) For each size there
 * are two parts, with R repetitions each:
 *
 *   ping-pong   rank 1 sends, rank 0 sends, rank 1 sends, each in answer to the message before and
 *               each by MPI_Send. Timed are, on each rank, one MPI_Send and the MPI_Recv that
 *               follows it at once: together they are one round trip. A rank fills and verifies
 *               its messages between the repetitions. So that no time holds any of that, the first
 *               message only sets the pace, and neither rank verifies before rank 0 has the last.
 *   ready       a rank sends by MPI_Isend, which is timed, and then one byte that says so. The
 *               other rank takes that byte, waits until MPI_Iprobe sees the message and for one
 *               more round trip of that size (at most READY_WAIT_NS), and times MPI_Recv. Then the
 *               ranks change places. A message below the eager limit is then on the receiving
 *               node, and the time is the processor's cost of a receive. A larger one waits on
 *               the sending node for its receive, so the time holds its transfer: the curve has
 *               a step at the limit.
 *
 * Each time holds one reading of the clock, whose cost the table states; it is not subtracted.
 * Medians of MPI_Send may differ by rank: rank 1's follows the receive of one byte, rank 0's the
 * receive of a whole message.
 *
 * A message's bytes depend on its size, its repetition and its place in it. Each is verified
 * whole; the first difference ends the program.
 *
 * Standard output is a table of medians. With -o FILE every time is written to a file, in the byte
 * order of the machine:
 *
 *   struct header   128 bytes, see below
 *   uint64          sizes in bytes, header.sizes of them, ascending
 *   uint64          times in ns: [size][rank][call][repetition], calls as in enum call
 *   uint32          CRC-32 (zlib's) of all bytes before
 *
 * Memory of a rank: 4 messages of the largest size and 100 bytes a repetition.
 *
 * Exit code: 0; 2 wrong options or not two ranks; 3 a message differs from what was sent; 4 no
 * memory, no clock, or the file cannot be written. For 3 and 4 that is the code of MPI_Abort,
 * which a launcher may replace by its own.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VERSION "1.0"
#define CLOCK CLOCK_MONOTONIC
#define CLOCK_NAME "CLOCK_MONOTONIC"

enum call { SEND, RECV, ISEND, READY, CALLS };
enum { RANKS = 2, MESSAGES = 5, WRONG_USE = 2, WRONG_DATA = 3, NO_RESOURCE = 4 };
enum { GO = 1, DATA, DONE, SENT, TIMES, FACTS, START }; /* tags */
enum { MAX_SIZES = 1024, CLOCK_ROUNDS = 200, CLOCK_READINGS = 1000, PAGE = 4096 };
static const int64_t READY_WAIT_NS = 1000000, START_NS = 200000000;

struct header {
    char magic[8];       /* COMMSRAW */
    uint32_t byte_order; /* 0x01020304 as the machine writes it */
    uint32_t version;    /* of this format: 1 */
    uint32_t bytes;      /* of this header: 128 */
    uint32_t sizes, repetitions, warmup;
    uint32_t smallest, largest, per_decade;
    uint32_t ranks, calls; /* 2, 4 */
    uint32_t zero;
    double resolution_ns; /* as clock_getres says */
    double step_ns[RANKS]; /* smallest difference of two readings in a row */
    double cost_ns[RANKS]; /* of one reading, the least mean of 1000 */
    char clock[32];        /* name, filled with zeros */
};
_Static_assert(sizeof(struct header) == 128, "the header has no padding");

struct options {
    long smallest, largest, per_decade, repetitions, warmup;
    const char *file;
};

static const char USAGE[] =
    "usage: comms [-l BYTES] [-u BYTES] [-p COUNT] [-r COUNT] [-w COUNT] [-o FILE]\n"
    "Times MPI_Send, MPI_Isend and MPI_Recv between two ranks. Start it with exactly two.\n"
    "  -l BYTES  smallest message, 1 to 1073741824 (1)\n"
    "  -u BYTES  largest message, -l to 1073741824 (10000000)\n"
    "  -p COUNT  sizes per decade, evenly spaced by logarithm, 1 to 100 (6)\n"
    "  -r COUNT  repetitions of each size, 1 to 100000 (200)\n"
    "  -w COUNT  repetitions before them that are not counted, 1 to 100000 (10)\n"
    "  -o FILE   write every time to FILE (format: comms.c); without it, none is kept\n"
    "  -h        print this\n";

static int rank;
static unsigned char *out[2], *in[2];
static uint64_t *times[RANKS][CALLS]; /* rank 1 has only its own */
static uint32_t table_crc;

static void fail(int code, const char *format, ...)
{
    char reason[1024];
    va_list words;

    va_start(words, format);
    vsnprintf(reason, sizeof reason, format, words);
    va_end(words);
    /* In one write: launchers mix what the ranks and MPI_Abort write. */
    fprintf(stderr, "comms: rank %d: %s\n", rank, reason);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

static inline int64_t now(void)
{
    struct timespec at;

    clock_gettime(CLOCK, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static uint32_t crc32(uint32_t crc, const void *data, size_t length)
{
    static uint32_t table[256];
    const unsigned char *byte = data;

    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            table[i] = value;
        }
    crc = ~crc;
    while (length--)
        crc = crc >> 8 ^ table[(crc ^ *byte++) & 0xff];
    return ~crc;
}

/* A line of the table, which is part of its checksum. */
static void say(const char *format, ...)
{
    char line[1024];
    va_list words;

    va_start(words, format);
    vsnprintf(line, sizeof line, format, words);
    va_end(words);
    table_crc = crc32(table_crc, line, strlen(line));
    fputs(line, stdout);
}

static void write_file(FILE *file, const char *name, uint32_t *crc, const void *data, size_t length)
{
    *crc = crc32(*crc, data, length);
    if (fwrite(data, 1, length, file) != length)
        fail(NO_RESOURCE, "cannot write %s: %s", name, strerror(errno));
}

/* ---- messages ---- */

/* First word of a message. Each byte of it differs from that of the 255 messages before. */
static uint64_t seed(size_t size, long repetition, int message)
{
    uint64_t place = (uint64_t)(repetition * MESSAGES + message) & 0xff;

    return size * UINT64_C(0xd6e8feb86659fd93) ^ place * UINT64_C(0x0101010101010101);
}

static const uint64_t STEP = UINT64_C(0x9e3779b97f4a7c15);

static void fill(unsigned char *to, size_t size, long repetition, int message)
{
    uint64_t word = seed(size, repetition, message);
    size_t at = 0;

    for (; at + sizeof word <= size; at += sizeof word, word += STEP)
        memcpy(to + at, &word, sizeof word);
    memcpy(to + at, &word, size - at);
}

static void verify(const unsigned char *from, size_t size, long repetition, int message,
                   MPI_Status *status)
{
    uint64_t word = seed(size, repetition, message), there, differs = 0;
    size_t at = 0;
    int count;

    MPI_Get_count(status, MPI_BYTE, &count);
    if (count < 0 || (size_t)count != size)
        fail(WRONG_DATA, "repetition %ld of %zu bytes: expected a message of %zu bytes, received %d",
             repetition, size, size, count);
    for (; at + sizeof word <= size; at += sizeof word, word += STEP) {
        memcpy(&there, from + at, sizeof there);
        differs |= there ^ word;
    }
    if (!differs && !memcmp(from + at, &word, size - at))
        return;
    word = seed(size, repetition, message);
    for (at = 0; at < size; at++) {
        unsigned char expected;
        if (at && at % sizeof word == 0)
            word += STEP;
        memcpy(&expected, (unsigned char *)&word + at % sizeof word, 1);
        if (from[at] != expected)
            fail(WRONG_DATA,
                 "repetition %ld of %zu bytes: byte %zu was sent as 0x%02x and received as 0x%02x",
                 repetition, size, at, expected, from[at]);
    }
}

/* ---- what is measured ---- */

static void send(const void *data, size_t size, int tag)
{
    MPI_Send(data, (int)size, MPI_BYTE, 1 - rank, tag, MPI_COMM_WORLD);
}

static void receive(void *data, size_t size, int tag, MPI_Status *status)
{
    MPI_Recv(data, (int)size, MPI_BYTE, 1 - rank, tag, MPI_COMM_WORLD, status);
}

/* Messages of one byte for START_NS: an MPI may connect two ranks by and by, UCX for example. */
static void connect_ranks(void)
{
    int64_t start = now();
    char more = 1;

    while (more)
        if (rank == 0) {
            more = now() - start < START_NS;
            send(&more, 1, START);
            receive(&more, 1, START, MPI_STATUS_IGNORE);
        } else {
            receive(&more, 1, START, MPI_STATUS_IGNORE);
            send(&more, 1, START);
        }
}

/* One repetition of the ping-pong; returns the round trip in ns. ``keep`` is where to put its
 * times; below 0 nowhere. */
static int64_t ping_pong(size_t size, long repetition, long keep)
{
    MPI_Status first, second;
    int64_t start, between, end;
    char turn = 0;

    if (rank == 0) {
        fill(out[0], size, repetition, 1);
        send(&turn, 1, GO);
        receive(in[0], size, DATA, &first);
        start = now();
        send(out[0], size, DATA);
        between = now();
        receive(in[1], size, DATA, &second);
        end = now();
        send(&turn, 1, DONE);
        verify(in[0], size, repetition, 0, &first);
        verify(in[1], size, repetition, 2, &second);
    } else {
        fill(out[0], size, repetition, 0);
        fill(out[1], size, repetition, 2);
        receive(&turn, 1, GO, MPI_STATUS_IGNORE);
        start = now();
        send(out[0], size, DATA);
        between = now();
        receive(in[0], size, DATA, &first);
        end = now();
        send(out[1], size, DATA);
        receive(&turn, 1, DONE, MPI_STATUS_IGNORE);
        verify(in[0], size, repetition, 1, &first);
    }
    if (keep >= 0) {
        times[rank][SEND][keep] = (uint64_t)(between - start);
        times[rank][RECV][keep] = (uint64_t)(end - between);
    }
    return end - start;
}

static void ready_send(size_t size, long repetition, int message, long keep)
{
    MPI_Request request;
    int64_t start, end;
    char sent = 0;

    fill(out[0], size, repetition, message);
    start = now();
    MPI_Isend(out[0], (int)size, MPI_BYTE, 1 - rank, DATA, MPI_COMM_WORLD, &request);
    end = now();
    send(&sent, 1, SENT);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (keep >= 0)
        times[rank][ISEND][keep] = (uint64_t)(end - start);
}

static void ready_receive(size_t size, long repetition, int message, long keep, int64_t wait)
{
    MPI_Status status;
    int64_t start, end;
    int there = 0;
    char sent;

    receive(&sent, 1, SENT, MPI_STATUS_IGNORE);
    start = now();
    do
        MPI_Iprobe(1 - rank, DATA, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    while (!there || now() - start < wait);
    start = now();
    receive(in[0], size, DATA, &status);
    end = now();
    verify(in[0], size, repetition, message, &status);
    if (keep >= 0)
        times[rank][READY][keep] = (uint64_t)(end - start);
}

static void measure(size_t size, const struct options *asked)
{
    int64_t wait = READY_WAIT_NS;

    for (long i = -asked->warmup; i < asked->repetitions; i++) {
        int64_t turn = ping_pong(size, i + asked->warmup, i);
        if (i < 0 && turn < wait)
            wait = turn;
    }
    for (long i = -asked->warmup; i < asked->repetitions; i++) {
        long repetition = i + asked->warmup;
        if (rank == 0) {
            ready_send(size, repetition, 3, i);
            ready_receive(size, repetition, 4, i, wait);
        } else {
            ready_receive(size, repetition, 3, i, wait);
            ready_send(size, repetition, 4, i);
        }
    }
}

/* ---- clock ---- */

struct clock {
    double resolution_ns, step_ns, cost_ns;
    char node[64];
};

/* Words of ``text``, without control characters, cut to ``room``. */
static void clean(char *to, size_t room, const char *text)
{
    size_t length = 0;

    for (; *text && *text != '\n' && length + 1 < room; text++) {
        char c = *text > ' ' && *text < 127 ? *text : ' ';
        if (c != ' ' || (length && to[length - 1] != ' '))
            to[length++] = c;
    }
    while (length && to[length - 1] == ' ')
        length--;
    to[length] = 0;
}

static void read_clock(struct clock *found)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    struct timespec resolution;
    int64_t first, last, at, step = INT64_MAX, cost = INT64_MAX;
    int length;

    memset(found, 0, sizeof *found);
    if (clock_getres(CLOCK, &resolution))
        fail(NO_RESOURCE, "this system has no " CLOCK_NAME);
    /* The quickest of many rounds, in which no other process had the processor. */
    for (int round = 0; round < CLOCK_ROUNDS || step == INT64_MAX; round++) {
        first = last = now();
        for (int i = 0; i < CLOCK_READINGS; i++, last = at) {
            at = now();
            if (at > last && at - last < step)
                step = at - last;
        }
        if (last - first < cost)
            cost = last - first;
    }
    found->resolution_ns = (double)resolution.tv_sec * 1e9 + (double)resolution.tv_nsec;
    found->step_ns = (double)step;
    found->cost_ns = (double)cost / CLOCK_READINGS;
    MPI_Get_processor_name(name, &length);
    clean(found->node, sizeof found->node, name);
}

/* ---- options and sizes ---- */

/* Whether ``text`` is a whole number from low to high. */
static int number(const char *text, long low, long high, long *value)
{
    char *end;

    *value = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *value >= low && *value <= high;
}

/* Options, or what is wrong with them in ``wrong``; the result is 1 for -h. */
static int read_options(int argc, char **argv, struct options *asked, char *wrong, size_t room)
{
    const long top = 1L << 30;
    int letter, good;

    *asked = (struct options){1, 10000000, 6, 200, 10, NULL};
    *wrong = 0;
    opterr = 0;
    while ((letter = getopt(argc, argv, ":l:u:p:r:w:o:h")) != -1) {
        good = 1;
        switch (letter) {
        case 'l': good = number(optarg, 1, top, &asked->smallest); break;
        case 'u': good = number(optarg, 1, top, &asked->largest); break;
        case 'p': good = number(optarg, 1, 100, &asked->per_decade); break;
        case 'r': good = number(optarg, 1, 100000, &asked->repetitions); break;
        case 'w': good = number(optarg, 1, 100000, &asked->warmup); break;
        case 'o': good = *optarg != 0; asked->file = optarg; break;
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
    else if (asked->smallest > asked->largest)
        snprintf(wrong, room, "the smallest message (-l %ld) is larger than the largest (-u %ld)",
                 asked->smallest, asked->largest);
    return 0;
}

/* smallest x 10^(i / per_decade), rounded, each once; the largest is the last. */
static unsigned schedule(const struct options *asked, uint64_t *sizes)
{
    uint64_t largest = (uint64_t)asked->largest, size;
    unsigned count = 0;

    for (long i = 0;; i++) {
        double exponent = (double)i / (double)asked->per_decade;
        size = (uint64_t)floor((double)asked->smallest * pow(10, exponent) + 0.5);
        if (size >= largest)
            break;
        if (!count || size > sizes[count - 1])
            sizes[count++] = size;
    }
    sizes[count++] = largest;
    return count;
}

/* ---- output ---- */

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* In us; sorts. */
static double median(uint64_t *values, long count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (double)(values[(count - 1) / 2] + values[count / 2]) / 2e3;
}

static void print_row(uint64_t size, long count, uint64_t *round[RANKS])
{
    double middle[RANKS];

    for (int who = 0; who < RANKS; who++)
        middle[who] = median(round[who], count);
    say("%10llu %11.4f %13.4f %13.4f", (unsigned long long)size, 2 * (double)size / middle[0],
        middle[0], middle[1]);
    for (int call = 0; call < CALLS; call++)
        for (int who = 0; who < RANKS; who++)
            say(" %13.4f", median(times[who][call], count));
    say("\n");
    fflush(stdout);
}

static void print_heading(const struct options *asked, unsigned count, const struct clock *clocks)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING], name[120];
    int length;

    MPI_Get_library_version(library, &length);
    clean(name, sizeof name, library);
    say("# comms " VERSION ": times of MPI_Send, MPI_Isend and MPI_Recv between two ranks\n");
    say("# MPI: %s\n", name);
    for (int who = 0; who < RANKS; who++)
        say("# rank %d: node %s, clock " CLOCK_NAME " of %.0f ns, smallest step %.0f ns, "
            "one reading costs %.1f ns\n",
            who, clocks[who].node, clocks[who].resolution_ns, clocks[who].step_ns,
            clocks[who].cost_ns);
    say("# sizes: %u from %ld to %ld bytes, %ld per decade\n", count, asked->smallest,
        asked->largest, asked->per_decade);
    say("# repetitions: %ld of each size, after %ld that are not counted\n", asked->repetitions,
        asked->warmup);
    say("# Medians in us by rank; a round trip is MPI_Send and the MPI_Recv after it; ready is an\n"
        "# MPI_Recv whose message is there. MB/s is 10^6 bytes in half of rank 0's round trip.\n");
    say("#%9s %11s %13s %13s", "bytes", "MB/s", "round trip 0", "round trip 1");
    for (int call = 0; call < CALLS; call++)
        for (int who = 0; who < RANKS; who++)
            say(" %11s %d", (const char *[]){"send", "recv", "isend", "ready"}[call], who);
    say("\n");
}

static void *memory(size_t count, size_t each)
{
    void *found = NULL;

    if (posix_memalign(&found, PAGE, count * each))
        fail(NO_RESOURCE, "no memory for %zu x %zu bytes", count, each);
    memset(found, 0, count * each);
    return found;
}

static FILE *start_file(const struct options *asked, const uint64_t *sizes, unsigned count,
                        const struct clock *clocks, uint32_t *crc)
{
    struct header header = {
        "COMMSRAW", 0x01020304, 1, sizeof header, count, (uint32_t)asked->repetitions,
        (uint32_t)asked->warmup, (uint32_t)asked->smallest, (uint32_t)asked->largest,
        (uint32_t)asked->per_decade, RANKS, CALLS, 0, clocks[0].resolution_ns,
        {clocks[0].step_ns, clocks[1].step_ns}, {clocks[0].cost_ns, clocks[1].cost_ns}, CLOCK_NAME,
    };
    FILE *file = fopen(asked->file, "wb");

    if (!file)
        fail(NO_RESOURCE, "cannot open %s: %s", asked->file, strerror(errno));
    write_file(file, asked->file, crc, &header, sizeof header);
    write_file(file, asked->file, crc, sizes, count * sizeof *sizes);
    return file;
}

static void end_file(FILE *file, const char *name, uint32_t crc)
{
    uint32_t ignored = 0;

    write_file(file, name, &ignored, &crc, sizeof crc);
    if (fclose(file))
        fail(NO_RESOURCE, "cannot write %s: %s", name, strerror(errno));
}

static void run(const struct options *asked)
{
    uint64_t sizes[MAX_SIZES], *round[RANKS], *all;
    size_t count = (size_t)asked->repetitions;
    unsigned different = schedule(asked, sizes);
    struct clock clocks[RANKS];
    FILE *file = NULL;
    uint32_t crc = 0;

    for (int i = 0; i < 2; i++) {
        out[i] = memory((size_t)asked->largest, 1);
        in[i] = memory((size_t)asked->largest, 1);
        round[i] = memory(count, sizeof **round);
    }
    all = memory(count * RANKS * CALLS, sizeof *all);
    for (size_t i = 0; i < RANKS * CALLS; i++)
        times[i / CALLS][i % CALLS] = all + i * count;
    read_clock(&clocks[rank]);
    if (rank == 1) {
        send(&clocks[1], sizeof *clocks, FACTS);
    } else {
        receive(&clocks[1], sizeof *clocks, FACTS, MPI_STATUS_IGNORE);
        if (asked->file)
            file = start_file(asked, sizes, different, clocks, &crc);
        print_heading(asked, different, clocks);
    }
    connect_ranks();
    for (unsigned i = 0; i < different; i++) {
        measure(sizes[i], asked);
        if (rank == 1) {
            MPI_Send(times[1][0], (int)count * CALLS, MPI_UINT64_T, 0, TIMES, MPI_COMM_WORLD);
            continue;
        }
        MPI_Recv(times[1][0], (int)count * CALLS, MPI_UINT64_T, 1, TIMES, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        if (file)
            write_file(file, asked->file, &crc, all, count * RANKS * CALLS * sizeof *all);
        for (size_t j = 0; j < count; j++)
            for (int who = 0; who < RANKS; who++)
                round[who][j] = times[who][SEND][j] + times[who][RECV][j];
        print_row(sizes[i], asked->repetitions, round);
    }
    if (file)
        end_file(file, asked->file, crc);
    if (rank == 0)
        printf("# crc32 %08x\n", (unsigned)table_crc);
    if (fflush(stdout) || ferror(stdout))
        fail(NO_RESOURCE, "cannot write the table");
}

int main(int argc, char **argv)
{
    struct options asked;
    char wrong[256];
    int help, ranks, code = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    help = read_options(argc, argv, &asked, wrong, sizeof wrong);
    if (!help && !*wrong && ranks != RANKS)
        snprintf(wrong, sizeof wrong, "expected two ranks, started with %d", ranks);
    if (*wrong) {
        if (rank == 0)
            fprintf(stderr, "comms: %s\n%s", wrong, USAGE);
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
