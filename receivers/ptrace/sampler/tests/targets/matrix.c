/* `matrix MILLISECONDS [ROUNDS]`: makes 54 blocking system calls (all kinds of signal(7), "Interruption of system calls
 * and library functions by signal handlers") at once, each in its own thread, after a line of input. With ROUNDS each
 * thread first computes for that many rounds, so that it is running when it begins its call. Each call is printed as
 * `NAME RESULT ERRNO MILLISECONDS`; a call that this machine does not have as `NAME absent ERRNO 0`. */
#include "common.h"
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static int64_t length_nano;
static uint64_t rounds;
static struct timespec length;
static struct timeval length_micro;

/* What the waker uses to end calls, after the time. */
static int pipe_ends[2], sockets[2], event, epoll_event, notify, queue;
static sem_t semaphore;
static pid_t child, holder;
static int lock_file;
static char folder[] = "/tmp/profbridge-matrix-XXXXXX";
static char lock_path[64], watched_path[64];

/* The result of a call that this machine does not have; errno has the reason. */
enum { ABSENT = -2 };

struct call {
    const char *name;
    long (*run)(void);
    long result;
    int error;
    int64_t nano;
    /* The thread that makes the call, and whether the call has returned. */
    pthread_t thread;
    atomic_int returned;
};

static struct timespec later(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    int64_t nano = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + length_nano;
    return (struct timespec){nano / 1000000000, nano % 1000000000};
}

/* Creates an epoll instance, before the time of the call that waits for it is measured. */
static int new_epoll(int watched) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    must(epoll >= 0, "epoll_create1");
    if (watched >= 0) {
        struct epoll_event wanted = {.events = EPOLLIN};
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, watched, &wanted) == 0, "epoll_ctl");
    }
    return epoll;
}

static int epoll_quiet, epoll_loud, receiving, listening, semaphores, timer, idle_pipe[2];
static aio_context_t aio;
static int ring = -1, ring_error, aio_error;
static mqd_t mqueue;
static char mqueue_name[64];

static long call_epoll_wait(void) {
    struct epoll_event got;
    return epoll_wait(epoll_quiet, &got, 1, (int)(length_nano / 1000000));
}
static long call_epoll_wait_forever(void) {
    struct epoll_event got;
    return epoll_wait(epoll_loud, &got, 1, -1);
}
static long call_epoll_pwait2(void) {
    struct epoll_event got;
    return syscall(SYS_epoll_pwait2, epoll_quiet, &got, 1, &length, NULL, 8);
}
static long call_recv_timeout(void) {
    char c;
    return recv(receiving, &c, 1, 0);
}
static long call_accept_timeout(void) { return accept(listening, NULL, NULL); }
static long call_semtimedop(void) {
    struct sembuf wait = {0, -1, 0};
    return semtimedop(semaphores, &wait, 1, &length);
}
static long call_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &length);
}
static long call_io_getevents(void) {
    struct io_event got;
    if (aio_error)
        return errno = aio_error, ABSENT;
    return syscall(SYS_io_getevents, aio, 1, 1, &got, &length);
}
static long call_io_uring_enter(void) {
    if (ring < 0)
        return errno = ring_error, ABSENT;
    struct __kernel_timespec timeout = {length.tv_sec, length.tv_nsec};
    struct io_uring_getevents_arg argument = {.ts = (uint64_t)(uintptr_t)&timeout};
    return syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
}
static long call_nanosleep(void) { return nanosleep(&length, NULL); }
static long call_clock_nanosleep(void) {
    struct timespec end = later(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
}
static long call_read_pipe(void) {
    char c;
    return read(pipe_ends[0], &c, 1);
}
static long call_read_socket(void) {
    char c;
    return read(sockets[0], &c, 1);
}
static long call_read_eventfd(void) {
    uint64_t value;
    return read(event, &value, 8);
}
static long call_read_timerfd(void) {
    struct itimerspec set = {.it_value = length};
    uint64_t value;
    must(timerfd_settime(timer, 0, &set, NULL) == 0, "timerfd_settime");
    return read(timer, &value, 8);
}
static long call_read_inotify(void) {
    char buffer[4096];
    return read(notify, buffer, sizeof buffer) > 0 ? 1 : -1;
}
static long call_poll(void) {
    struct pollfd wanted = {idle_pipe[0], POLLIN, 0};
    return poll(&wanted, 1, (int)(length_nano / 1000000));
}
static long call_ppoll(void) {
    struct pollfd wanted = {idle_pipe[0], POLLIN, 0};
    return ppoll(&wanted, 1, &length, NULL);
}
static long call_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(idle_pipe[0], &set);
    struct timeval timeout = length_micro;
    return select(idle_pipe[0] + 1, &set, NULL, NULL, &timeout);
}
static long call_pselect(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(idle_pipe[0], &set);
    return pselect(idle_pipe[0] + 1, &set, NULL, NULL, &length, NULL);
}
static long call_futex_relative(void) {
    static int word;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &length, NULL, 0);
}
static long call_futex_absolute(void) {
    static int word;
    struct timespec end = later(CLOCK_MONOTONIC);
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &end, NULL, FUTEX_BITSET_MATCH_ANY);
}
static long call_cond_timedwait(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec end = later(CLOCK_REALTIME);
    pthread_mutex_lock(&mutex);
    errno = pthread_cond_timedwait(&condition, &mutex, &end);
    return errno ? -1 : 0;
}
static long call_sem_wait(void) { return sem_wait(&semaphore); }
static long call_sem_timedwait(void) {
    static sem_t nobody;
    struct timespec end = later(CLOCK_REALTIME);
    return sem_timedwait(&nobody, &end);
}
static long call_msgrcv(void) {
    struct {
        long type;
        char text[8];
    } message;
    return msgrcv(queue, &message, sizeof message.text, 0, 0);
}
static long call_setlkw(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(lock_file, F_SETLKW, &lock);
}
static long call_waitpid(void) { return waitpid(child, NULL, 0) == child ? 0 : -1; }
static long call_mq_timedreceive(void) {
    char buffer[64];
    struct timespec end = later(CLOCK_REALTIME);
    return mq_timedreceive(mqueue, buffer, sizeof buffer, NULL, &end);
}

#include "matrix_more.h"

#define CALL(which) {.name = #which, .run = call_##which}
static struct call calls[] = {
    CALL(epoll_wait),    CALL(epoll_wait_forever), CALL(epoll_pwait2),   CALL(recv_timeout), CALL(accept_timeout),
    CALL(semtimedop),    CALL(sigtimedwait),       CALL(io_getevents),   CALL(io_uring_enter), CALL(nanosleep),
    CALL(clock_nanosleep), CALL(read_pipe),        CALL(read_socket),    CALL(read_eventfd), CALL(read_timerfd),
    CALL(read_inotify),  CALL(poll),               CALL(ppoll),          CALL(select),       CALL(pselect),
    CALL(futex_relative), CALL(futex_absolute),    CALL(cond_timedwait), CALL(sem_wait),     CALL(sem_timedwait),
    CALL(msgrcv),        CALL(setlkw),             CALL(waitpid),        CALL(mq_timedreceive),
    MORE_CALLS,
};
enum { CALLS = sizeof calls / sizeof calls[0] };
_Static_assert(CALLS == 54, "the matrix has 54 calls");
static pthread_barrier_t together;
/* The number of calls that have begun: the waker's time starts when all have begun, so that the calls which it ends
 * last long enough even if their thread started late. */
static atomic_int begun;

static void *run(void *argument) {
    struct call *call = argument;
    pthread_barrier_wait(&together);
    burn(rounds);
    errno = 0;
    int64_t start = now_nano();
    atomic_fetch_add(&begun, 1);
    call->result = call->run();
    call->error = call->result < 0 ? errno : 0;
    call->nano = now_nano() - start;
    atomic_store(&call->returned, 1);
    return NULL;
}

/* Starts a child that sleeps. It must neither hold the descriptors that end the parent's waits, nor outlive the
 * parent. */
static pid_t sleep_in_child(int holds_lock) {
    int told[2];
    must(pipe(told) == 0, "pipe");
    pid_t parent = getpid(), made = fork();
    must(made >= 0, "fork");
    if (made == 0) {
        if (holds_lock) {
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            must(fcntl(lock_file, F_SETLK, &lock) == 0, "F_SETLK");
        }
        must(write(told[1], "x", 1) == 1, "write");
        /* The waker kills the child; it ends by itself if the parent has ended. */
        while (getppid() == parent)
            usleep(50000);
        _exit(0);
    }
    char c;
    must(read(told[0], &c, 1) == 1, "read");
    close(told[0]);
    close(told[1]);
    return made;
}

static void prepare(void) {
    must(mkdtemp(folder) != NULL, "mkdtemp");
    snprintf(lock_path, sizeof lock_path, "%s/lock", folder);
    snprintf(watched_path, sizeof watched_path, "%s/watched", folder);
    lock_file = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(lock_file >= 0, "open");
    must(pipe(pipe_ends) == 0 && pipe(idle_pipe) == 0, "pipe");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    event = eventfd(0, EFD_CLOEXEC);
    epoll_event = eventfd(0, EFD_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    notify = inotify_init1(IN_CLOEXEC);
    epoll_quiet = new_epoll(-1);
    epoll_loud = new_epoll(epoll_event);
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    receiving = pair[0];
    listening = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
    must(bind(listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(listening, 1) == 0, "bind");
    prepare_more();
    /* Called after the sockets were created, since these are files of this folder, too. */
    must(inotify_add_watch(notify, folder, IN_CREATE) >= 0, "inotify_add_watch");
    must(setsockopt(receiving, SOL_SOCKET, SO_RCVTIMEO, &length_micro, sizeof length_micro) == 0, "SO_RCVTIMEO");
    must(setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &length_micro, sizeof length_micro) == 0, "SO_RCVTIMEO");
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    must(semaphores >= 0 && queue >= 0, "System V IPC");
    must(sem_init(&semaphore, 0, 0) == 0, "sem_init");
    if (syscall(SYS_io_setup, 8, &aio) != 0)
        aio_error = errno;
    struct io_uring_params parameters = {0};
    ring = (int)syscall(SYS_io_uring_setup, 8, &parameters);
    ring_error = ring < 0 ? errno : 0;
    snprintf(mqueue_name, sizeof mqueue_name, "/profbridge-matrix-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 64};
    mqueue = mq_open(mqueue_name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    must(mqueue != (mqd_t)-1, "mq_open");
    mq_unlink(mqueue_name);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    /* SIGCHLD would interrupt no call, since it is ignored, except while `pthread_kill` of the waker blocks all signals
     * for a moment: then the kernel looks for another thread to receive it. */
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    holder = sleep_in_child(1);
    child = sleep_in_child(0);
}

static void wake(void) {
    struct {
        long type;
        char text[8];
    } message = {1, "done"};
    uint64_t one = 1;
    must(write(pipe_ends[1], "x", 1) == 1 && write(sockets[1], "x", 1) == 1, "write");
    must(write(event, &one, 8) == 8 && write(epoll_event, &one, 8) == 8, "write");
    must(close(open(watched_path, O_CREAT | O_WRONLY, 0600)) == 0, "create");
    must(sem_post(&semaphore) == 0 && msgsnd(queue, &message, 8, 0) == 0, "post");
    kill(child, SIGKILL);
    kill(holder, SIGKILL);
}

/* Waits for the duration of the calls, and ends those that do not end by themselves. */
static void await_and_wake(void) {
    while (atomic_load(&begun) < CALLS)
        usleep(1000);
    struct timespec end = later(CLOCK_MONOTONIC);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) {
    }
    wake();
    wake_more(calls, CALLS);
}

/* Called when all calls have returned: removes the objects on which they waited, and prints their results. */
static void clean_up_and_say(void) {
    waitpid(holder, NULL, 0);
    semctl(semaphores, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    unlink(lock_path);
    unlink(watched_path);
    char socket_path[80];
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    unlink(socket_path);
    remove_more();
    rmdir(folder);
    for (int i = 0; i < CALLS; i++) {
        struct call *call = &calls[i];
        char text[128];
        if (call->result == ABSENT)
            snprintf(text, sizeof text, "%s absent %d 0", call->name, call->error);
        else
            snprintf(text, sizeof text, "%s %ld %d %.3f", call->name, call->result, call->error, (double)call->nano / 1e6);
        say(text);
    }
    say("done");
}

int main(int count, char **arguments) {
    must(count >= 2, "usage: matrix MILLISECONDS [ROUNDS]");
    length_nano = atoll(arguments[1]) * 1000000;
    rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    length = (struct timespec){length_nano / 1000000000, length_nano % 1000000000};
    length_micro = (struct timeval){length.tv_sec, length.tv_nsec / 1000};
    prepare();
    pthread_barrier_init(&together, NULL, CALLS + 1);
    for (int i = 0; i < CALLS; i++)
        calls[i].thread = start_thread(run, &calls[i], 128 << 10);
    say("ready");
    char line[64];
    await_line(line, sizeof line);
    pthread_barrier_wait(&together);
    await_and_wake();
    for (int i = 0; i < CALLS; i++)
        pthread_join(calls[i].thread, NULL);
    clean_up_and_say();
    return 0;
}
