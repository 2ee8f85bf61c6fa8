/*
 * What the clocks of a guest's processors show, measured from inside: clocks TEST [ARGUMENTS].
 *
 *   spin A B N      threads on processors A and B pass N messages through memory; both spin
 *   wake A B N      the same through pipes; both sleep
 *   lock A B N      threads on A and B read their clocks under one lock, N times each; both spin
 *   serve PORT      answer the datagrams of send
 *   send HOST PORT N BYTES   send N datagrams of 16 to 9000 bytes to serve, one after the other
 *   stream HOST PORT N NS    send N datagrams to collect, NS apart, without sleeping
 *   collect PORT N  receive from N senders without sleeping; fails after 10 s without a datagram
 *   interrupt A B C N NS   threads on A and B interrupt one on C N times each, NS apart: A by a
 *                   signal, B by a memory barrier; all spin
 *   list FOLDER     look at each file below a folder
 *   timer A NS N    processor A sleeps to N deadlines, NS apart
 *   repeat N        cost of rep stosb over N bytes, and of N instructions
 *   devices A N     processor A reads the ACPI timer N times beside its own counter
 *
 * Times are of the time stamp counter, in ns: the guest's processors count 1 GHz. Prints
 * "name value" lines. A message with a stamp later than its arrival counts as early.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ftw.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define PM_TIMER 0x608 /* port of the ACPI timer of QEMU's q35 */
#define PM_HZ 3579545
#define SECOND 1000000000ll
#define MOST_BYTES 9000

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void run_on(int processor)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        fail("sched_setaffinity");
    }
}

static int64_t now(void)
{
    unsigned processor;

    return (int64_t)__rdtscp(&processor);
}

/* Samples of one kind: their number, their sum, least, largest and how many are below 0 */
struct samples {
    long number, early;
    int64_t sum, least, largest;
};

static void add(struct samples *s, int64_t value)
{
    if (!s->number || value < s->least) {
        s->least = value;
    }
    if (!s->number || value > s->largest) {
        s->largest = value;
    }
    s->number++;
    s->sum += value;
    s->early += value < 0;
}

static void print(const char *name, const struct samples *s)
{
    printf("%s_number %ld\n%s_early %ld\n%s_least_ns %ld\n%s_mean_ns %ld\n%s_largest_ns %ld\n",
           name, s->number, name, s->early, name, (long)s->least, name,
           (long)(s->number ? s->sum / s->number : 0), name, (long)s->largest);
}

struct side {
    int processor, first, in, out;
    long number;
    struct samples samples;
};

static _Alignas(64) volatile struct {
    int64_t stamp;
    long turn;
} shared[2];

static void *spin(void *argument)
{
    struct side *side = argument;
    int mine = !side->first;

    run_on(side->processor);
    for (long n = 1; n <= side->number; n++) {
        if (side->first || n > 1) {
            shared[mine].stamp = now();
            shared[mine].turn = side->first ? n : n - 1;
        }
        while (shared[!mine].turn < n) {
        }
        add(&side->samples, now() - shared[!mine].stamp);
    }
    shared[mine].stamp = now();
    shared[mine].turn = side->number;
    return NULL;
}

static void *sleep_in_read(void *argument)
{
    struct side *side = argument;
    int64_t stamp;

    run_on(side->processor);
    for (long n = 0; n < side->number; n++) {
        for (int step = 0; step < 2; step++) {
            if (step == !side->first) {
                stamp = now();
                if (write(side->out, &stamp, sizeof stamp) != sizeof stamp) {
                    fail("write");
                }
            } else {
                if (read(side->in, &stamp, sizeof stamp) != sizeof stamp) {
                    fail("read");
                }
                add(&side->samples, now() - stamp);
            }
        }
    }
    return NULL;
}

static struct {
    volatile char held;
    volatile int ready; /* threads that have begun */
    int reader; /* of the last reading: first or not */
    int64_t time;
} last = {.reader = -1};

/* The samples are the times since the last reading, if it was the other thread's. */
static void *read_under_lock(void *argument)
{
    struct side *side = argument;

    run_on(side->processor);
    __atomic_add_fetch(&last.ready, 1, __ATOMIC_SEQ_CST);
    while (last.ready < 2) {
    }
    for (long n = 0; n < side->number; n++) {
        while (__atomic_test_and_set(&last.held, __ATOMIC_ACQUIRE)) {
        }
        int64_t time = now();
        if (last.reader == !side->first) {
            add(&side->samples, time - last.time);
        }
        last.reader = side->first;
        last.time = time;
        __atomic_clear(&last.held, __ATOMIC_RELEASE);
        /* The other one's chance. A pause instruction would end the turn of an emulated processor. */
        for (volatile int wait = 0; wait < 50; wait++) {
        }
    }
    return NULL;
}

static void pass_messages(void *(*body)(void *), int a, int b, long number)
{
    int there[2], back[2];
    pthread_t threads[2];

    if (pipe(there) || pipe(back)) {
        fail("pipe");
    }
    struct side sides[2] = {
        {.processor = a, .first = 1, .in = back[0], .out = there[1], .number = number},
        {.processor = b, .first = 0, .in = there[0], .out = back[1], .number = number},
    };
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, body, &sides[i])) {
            fail("pthread_create");
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    print("there", &sides[1].samples);
    print("back", &sides[0].samples);
}

static int datagram_socket(void)
{
    int s = socket(AF_INET, SOCK_DGRAM, 0);

    if (s < 0) {
        fail("socket");
    }
    return s;
}

static void spin_until(int64_t time)
{
    while (now() < time) {
    }
}

static void connect_to(int s, const char *host, int port)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port)};

    if (inet_pton(AF_INET, host, &there.sin_addr) != 1 ||
        connect(s, (struct sockaddr *)&there, sizeof there)) {
        fail(host);
    }
}

/* A datagram: when it was sent, and in the answer also the age of what it answers */
static union {
    int64_t pair[2];
    char bytes[MOST_BYTES];
} datagram;

static int bound_socket(int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    int s = datagram_socket();

    if (bind(s, (struct sockaddr *)&here, sizeof here)) {
        fail("bind");
    }
    return s;
}

/* Answer each datagram with its age and as many bytes, and end after an empty one. */
static void serve(int port)
{
    struct sockaddr_in from;
    int s = bound_socket(port);
    int64_t *pair = datagram.pair;

    for (;;) {
        socklen_t length = sizeof from;
        ssize_t size = recvfrom(s, pair, MOST_BYTES, 0, (struct sockaddr *)&from, &length);
        pair[0] = now() - pair[0];
        if (size <= 0) {
            return;
        }
        pair[1] = now();
        sendto(s, pair, size, 0, (struct sockaddr *)&from, length);
    }
}

static void send_datagrams(const char *host, int port, long number, long bytes)
{
    struct samples ages[2] = {0};
    struct timeval limit = {.tv_sec = 5};
    int s = datagram_socket();
    int64_t *pair = datagram.pair;

    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connect_to(s, host, port);
    for (long n = 0; n < number; n++) {
        pair[0] = now();
        if (send(s, pair, bytes, 0) < 0 || recv(s, pair, MOST_BYTES, 0) <= 0) {
            fail("datagram");
        }
        add(&ages[1], now() - pair[1]);
        add(&ages[0], pair[0]);
    }
    send(s, pair, 0, 0);
    print("there", &ages[0]);
    print("back", &ages[1]);
}

/* An empty datagram, after all others have arrived, ends it. */
static void stream(const char *host, int port, long number, long apart)
{
    int s = datagram_socket();
    int64_t stamp, begun;

    connect_to(s, host, port);
    begun = now();
    for (long n = 0; n < number; n++) {
        spin_until(begun + n * apart);
        stamp = now();
        if (send(s, &stamp, sizeof stamp, 0) < 0) {
            fail("send");
        }
    }
    spin_until(now() + SECOND / 100);
    send(s, &stamp, 0, 0);
}

static void collect(int port, int senders)
{
    struct samples ages = {0};
    int s = bound_socket(port);
    int64_t stamp, heard = now();

    while (senders) {
        ssize_t size = recv(s, &stamp, sizeof stamp, MSG_DONTWAIT);
        int64_t time = now();
        if (size >= 0) {
            heard = time;
        } else if (time - heard > 10 * SECOND) {
            fputs("no datagram for 10 s\n", stderr);
            exit(1);
        }
        if (size > 0) {
            add(&ages, time - stamp);
        }
        senders -= size == 0;
    }
    print("stream", &ages);
}

static struct {
    pthread_t thread;
    int processor;
    volatile int ready, ended;
    volatile long signals;
} receiver;

struct sender {
    int processor;
    void (*interrupt)(void);
    long number, apart;
};

static void take_signal(int number)
{
    (void)number;
    receiver.signals++;
}

static void *be_interrupted(void *unused)
{
    (void)unused;
    run_on(receiver.processor);
    receiver.ready = 1;
    while (receiver.ended < 2) {
    }
    return NULL;
}

/* One at a time: of two that wait the receiver's processor takes one. */
static void send_signal(void)
{
    long before = receiver.signals;

    pthread_kill(receiver.thread, SIGUSR1);
    while (receiver.signals == before) {
    }
}

static void barrier(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU,
                receiver.processor)) {
        fail("membarrier");
    }
}

static void *interrupt_receiver(void *argument)
{
    struct sender *sender = argument;
    int64_t begun;

    run_on(sender->processor);
    begun = now();
    for (long n = 0; n < sender->number; n++) {
        spin_until(begun + n * sender->apart);
        sender->interrupt();
    }
    __atomic_add_fetch(&receiver.ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void interrupt(int a, int b, int c, long number, long apart)
{
    struct sigaction action = {.sa_handler = take_signal};
    /* not in step */
    struct sender senders[2] = {{a, send_signal, number, apart}, {b, barrier, number, apart + 100}};
    pthread_t threads[2];

    receiver.processor = c;
    sigaction(SIGUSR1, &action, NULL);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) ||
        pthread_create(&receiver.thread, NULL, be_interrupted, NULL)) {
        fail("interrupt");
    }
    while (!receiver.ready) {
    }
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, interrupt_receiver, &senders[i])) {
            fail("pthread_create");
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_join(receiver.thread, NULL);
}

static long listed;

static int count(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)path, (void)status, (void)type, (void)place;
    listed++;
    return 0;
}

static void list(const char *folder)
{
    int64_t begun = now();

    if (nftw(folder, count, 16, FTW_PHYS)) {
        fail(folder);
    }
    printf("listed_number %ld\nlisted_mean_ns %ld\n", listed, (long)((now() - begun) / listed));
}

static void sleep_to_deadlines(int processor, long step, long number)
{
    struct samples late = {0};
    struct timespec start, when, woken;

    run_on(processor);
    prctl(PR_SET_TIMERSLACK, 1);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long n = 1; n <= number; n++) {
        int64_t at = start.tv_nsec + n * step;
        when.tv_sec = start.tv_sec + at / SECOND;
        when.tv_nsec = at % SECOND;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
        clock_gettime(CLOCK_MONOTONIC, &woken);
        add(&late, (woken.tv_sec - when.tv_sec) * SECOND + woken.tv_nsec - when.tv_nsec);
    }
    print("late", &late);
}

static void repeat(long number)
{
    char *memory = malloc(number), *place = memory;
    int64_t begun;
    long left = number;

    memset(memory, 1, number); /* its pages are there */
    begun = now();
    asm volatile("rep stosb" : "+D"(place), "+c"(left) : "a"(0) : "memory");
    printf("repeated_ns %ld\n", (long)(now() - begun));
    begun = now();
    for (left = number / 2; left;) {
        asm volatile("dec %0" : "+r"(left));
    }
    printf("instructions_ns %ld\n", (long)(now() - begun));
}

static void read_devices(int processor, long number)
{
    struct samples differences = {0};
    uint32_t first, count;
    int64_t begun;

    run_on(processor);
    if (iopl(3)) {
        fail("iopl");
    }
    first = inl(PM_TIMER) & 0xffffff;
    begun = now();
    for (long n = 0; n < number; n++) {
        int64_t before = now() - begun;
        count = ((inl(PM_TIMER) & 0xffffff) - first) & 0xffffff;
        add(&differences, (int64_t)count * SECOND / PM_HZ - before);
    }
    print("device", &differences);
}

int main(int argc, char **argv)
{
    const char *test = argc > 1 ? argv[1] : "";
    long number[5] = {0};

    for (int i = 0; i < 5 && i + 2 < argc; i++) {
        number[i] = atol(argv[i + 2]);
    }
    if (!strcmp(test, "spin") && argc == 5) {
        pass_messages(spin, number[0], number[1], number[2]);
    } else if (!strcmp(test, "wake") && argc == 5) {
        pass_messages(sleep_in_read, number[0], number[1], number[2]);
    } else if (!strcmp(test, "lock") && argc == 5) {
        pass_messages(read_under_lock, number[0], number[1], number[2]);
    } else if (!strcmp(test, "serve") && argc == 3) {
        serve(number[0]);
    } else if (!strcmp(test, "send") && argc == 6 && number[3] >= 16 && number[3] <= MOST_BYTES) {
        send_datagrams(argv[2], number[1], number[2], number[3]);
    } else if (!strcmp(test, "stream") && argc == 6) {
        stream(argv[2], number[1], number[2], number[3]);
    } else if (!strcmp(test, "collect") && argc == 4) {
        collect(number[0], number[1]);
    } else if (!strcmp(test, "interrupt") && argc == 7) {
        interrupt(number[0], number[1], number[2], number[3], number[4]);
    } else if (!strcmp(test, "list") && argc == 3) {
        list(argv[2]);
    } else if (!strcmp(test, "timer") && argc == 5) {
        sleep_to_deadlines(number[0], number[1], number[2]);
    } else if (!strcmp(test, "repeat") && argc == 3) {
        repeat(number[0]);
    } else if (!strcmp(test, "devices") && argc == 4) {
        read_devices(number[0], number[1]);
    } else {
        fputs("see the top of clocks.c\n", stderr);
        return 2;
    }
    return 0;
}
