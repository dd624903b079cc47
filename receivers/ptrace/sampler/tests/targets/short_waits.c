/* `short_waits`: three threads that alternately compute and wait for short times, by system calls that are not
 * restarted after a stop: epoll_wait, recv with a timeout, sigtimedwait. Each line of input is answered with
 *     calls COUNT interrupted COUNT
 * where an interrupted call is one that failed with EINTR. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/socket.h>

static volatile uint64_t calls[3], interrupted[3];

#define COUNTED(which, call)                                                                                                          \
    do {                                                                                                                              \
        errno = 0;                                                                                                                    \
        if ((call) < 0 && errno == EINTR)                                                                                             \
            interrupted[which]++;                                                                                                     \
        calls[which]++;                                                                                                               \
        burn(3000);                                                                                                                   \
    } while (1)

static void *polls(void *unused) {
    int epoll = epoll_create1(0);
    struct epoll_event got;
    COUNTED(0, epoll_wait(epoll, &got, 1, 2));
    return unused;
}

static void *receives(void *unused) {
    int pair[2];
    char c;
    struct timeval timeout = {0, 3000};
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    must(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0, "SO_RCVTIMEO");
    COUNTED(1, recv(pair[0], &c, 1, 0));
    return unused;
}

static void *signals(void *unused) {
    sigset_t set;
    struct timespec timeout = {0, 5000000};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    COUNTED(2, sigtimedwait(&set, NULL, &timeout));
    return unused;
}

int main(void) {
    start_thread(polls, NULL, 0);
    start_thread(receives, NULL, 0);
    start_thread(signals, NULL, 0);
    say("ready");
    for (;;) {
        char line[64], text[128];
        await_line(line, sizeof line);
        snprintf(text, sizeof text, "calls %llu interrupted %llu", (unsigned long long)(calls[0] + calls[1] + calls[2]),
                 (unsigned long long)(interrupted[0] + interrupted[1] + interrupted[2]));
        say(text);
    }
}
