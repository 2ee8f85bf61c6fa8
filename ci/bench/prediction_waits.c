/* Loaded into the ranks of Open MPI by LD_PRELOAD: a rank that waits for messages leaves the
 * processor. Open MPI asks the kernel for messages again and again, with a time limit of 0. With 64
 * ranks on two cores, those that wait take the time of those that compute. Here the kernel keeps a
 * rank until a message is there, so that the ranks need no more time than their work. For MCA
 * opal_event_include=epoll, and for programs that wait and do not test. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/epoll.h>

enum { MOST_MS = 5 }; /* so often a rank looks for what is no message */

int epoll_wait(int epoll, struct epoll_event *events, int most, int ms)
{
    /* libevent asks until there are no more: what it has got may be what the rank waits for. */
    static __thread int got;
    if (ms != 0)
        return epoll_pwait(epoll, events, most, ms, NULL);
    got = epoll_pwait(epoll, events, most, got > 0 ? 0 : MOST_MS, NULL);
    return got;
}
