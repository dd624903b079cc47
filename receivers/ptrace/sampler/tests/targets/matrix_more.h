/* The calls of the matrix that need more preparation than a descriptor: full pipes and queues, locks that others hold,
 * calls that only a signal ends. `matrix.c` includes this file after the declarations that it needs. */
#include <sys/fanotify.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* `struct futex_waitv` and the number of its system call (linux/futex.h since 5.16), which the headers may lack. */
struct waiter {
    uint64_t value, address;
    uint32_t flags, reserved;
};
enum { FUTEX_WAITV = 449, FUTEX_32_BITS = 2 };

static int full_pipe[2], full_for_file[2], full_for_memory[2], empty_pipe[2], empty_for_copies[2], sink[2];
static int full_socket, datagrams[2], pending, crowded, signals_read, told_of_files, tty_master, tty = -1;
static int locked_file, open_locked_file, small_file;
static int tty_error, told_error, priority_error;
static mqd_t full_mqueue;
static int full_queue, posted;
static pid_t other_child;
static pthread_mutex_t held;
static char more_paths[6][64];
enum { LOCKED, OPEN_LOCKED, SMALL, FIFO, PENDING, CROWDED };

/* Stores the result, so that the function that makes the call keeps its frame: otherwise the call would be a tail
 * call. */
#define KEPT(call)            \
    ({                        \
        long kept_ = (call);  \
        KEEP_FRAME();         \
        kept_;                \
    })
/* 1 for any success: how much was moved, or which number was returned, does not matter. */
#define SOME(call) (KEPT(call) >= 0 ? 1 : -1)

static long call_io_pgetevents(void) {
    struct io_event got;
    if (aio_error)
        return errno = aio_error, ABSENT;
    return KEPT(syscall(SYS_io_pgetevents, aio, 1, 1, &got, &length, NULL));
}
static int futex_word;
static long call_futex_forever(void) {
    return KEPT(syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
}
static long call_futex_waitv(void) {
    static uint32_t word;
    struct waiter waiter = {.address = (uint64_t)(uintptr_t)&word, .flags = FUTEX_32_BITS | FUTEX_PRIVATE_FLAG};
    struct timespec end = later(CLOCK_MONOTONIC);
    long result = syscall(FUTEX_WAITV, &waiter, 1, 0, &end, CLOCK_MONOTONIC);
    return result < 0 && errno == ENOSYS ? ABSENT : result;
}
static long call_futex_lock_pi(void) {
    if (priority_error)
        return errno = priority_error, ABSENT;
    return (errno = pthread_mutex_lock(&held)) ? -1 : 0;
}
static long call_semop(void) {
    struct sembuf wait = {0, -1, 0};
    return semop(posted, &wait, 1);
}
static long call_msgsnd(void) {
    struct {
        long type;
        char text[8];
    } message = {1, "second"};
    return msgsnd(full_queue, &message, sizeof message.text, 0);
}
static long call_mq_timedsend(void) {
    struct timespec end = later(CLOCK_REALTIME);
    return mq_timedsend(full_mqueue, "x", 1, 0, &end);
}
static long call_write_pipe(void) { return SOME(write(full_pipe[1], "x", 1)); }
static long call_send_timeout(void) { return SOME(send(full_socket, "x", 1, 0)); }
static long call_recvmsg(void) {
    char c;
    struct iovec room = {&c, 1};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
    return recvmsg(datagrams[0], &message, 0);
}
static long call_accept4(void) { return SOME(accept4(pending, NULL, NULL, SOCK_CLOEXEC)); }
static struct sockaddr_un address_of(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}
static long call_connect_timeout(void) {
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(more_paths[CROWDED]);
    setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &length_micro, sizeof length_micro);
    return connect(one, (struct sockaddr *)&address, sizeof address);
}
static long call_flock(void) {
    int other = open(more_paths[LOCKED], O_RDWR | O_CLOEXEC);
    return flock(other, LOCK_EX);
}
static long call_ofd_setlkw(void) {
    int other = open(more_paths[OPEN_LOCKED], O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(other, F_OFD_SETLKW, &lock);
}
static long call_open_fifo(void) { return SOME(open(more_paths[FIFO], O_RDONLY | O_CLOEXEC)); }
static long call_waitid(void) {
    siginfo_t info;
    return waitid(P_PID, (id_t)other_child, &info, WEXITED);
}
/* Only a signal ends these calls. */
static long call_pause(void) { return pause(); }
static long call_sigsuspend(void) {
    sigset_t all_others;
    sigfillset(&all_others);
    sigdelset(&all_others, SIGUSR1);
    return sigsuspend(&all_others);
}
static long call_read_signalfd(void) {
    struct signalfd_siginfo info;
    return SOME(read(signals_read, &info, sizeof info));
}
static long call_read_tty(void) {
    char line[16];
    if (tty < 0)
        return errno = tty_error, ABSENT;
    return read(tty, line, sizeof line);
}
static long call_read_fanotify(void) {
    char events[4096];
    if (told_of_files < 0)
        return errno = told_error, ABSENT;
    return SOME(read(told_of_files, events, sizeof events));
}
static long call_splice(void) { return SOME(splice(empty_pipe[0], NULL, sink[1], NULL, 4096, 0)); }
static long call_tee(void) { return SOME(tee(empty_for_copies[0], sink[1], 4096, 0)); }
static long call_vmsplice(void) {
    static char page[4096];
    struct iovec from = {page, sizeof page};
    return SOME(vmsplice(full_for_memory[1], &from, 1, 0));
}
static long call_sendfile(void) {
    off_t offset = 0;
    return SOME(sendfile(full_for_file[1], small_file, &offset, 1));
}

#define MORE_CALLS                                                                                                    \
    CALL(io_pgetevents), CALL(futex_forever), CALL(futex_waitv), CALL(futex_lock_pi), CALL(semop), CALL(msgsnd),      \
        CALL(mq_timedsend), CALL(write_pipe), CALL(send_timeout), CALL(recvmsg), CALL(accept4),                       \
        CALL(connect_timeout), CALL(flock), CALL(ofd_setlkw), CALL(open_fifo), CALL(waitid), CALL(pause),             \
        CALL(sigsuspend), CALL(read_signalfd), CALL(read_tty), CALL(read_fanotify), CALL(splice), CALL(tee),          \
        CALL(vmsplice), CALL(sendfile)

static void nothing(int number) { (void)number; }

/* Fills a pipe or a socket. */
static void fill(int descriptor) {
    static const char page[4096];
    int flags = fcntl(descriptor, F_GETFL);
    must(fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0, "O_NONBLOCK");
    while (write(descriptor, page, sizeof page) > 0) {
    }
    must(errno == EAGAIN && fcntl(descriptor, F_SETFL, flags) == 0, "fill");
}

static int listen_at(const char *path, int waiting) {
    int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(path);
    must(bind(listening, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(listening, waiting) == 0, "listen");
    return listening;
}

static int connect_to(const char *path) {
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(path);
    must(connect(one, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    return one;
}

static void prepare_descriptors(void) {
    int pair[2];
    must(pipe(full_pipe) == 0 && pipe(full_for_file) == 0 && pipe(full_for_memory) == 0, "pipe");
    must(pipe(empty_pipe) == 0 && pipe(empty_for_copies) == 0 && pipe(sink) == 0, "pipe");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0, "socketpair");
    full_socket = pair[0];
    must(setsockopt(full_socket, SOL_SOCKET, SO_SNDTIMEO, &length_micro, sizeof length_micro) == 0, "SO_SNDTIMEO");
    fill(full_pipe[1]);
    fill(full_for_file[1]);
    fill(full_for_memory[1]);
    fill(full_socket);
    /* One connection fits, although the backlog is 0. */
    pending = listen_at(more_paths[PENDING], 1);
    crowded = listen_at(more_paths[CROWDED], 0);
    connect_to(more_paths[CROWDED]);
    tty_master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (tty_master >= 0 && grantpt(tty_master) == 0 && unlockpt(tty_master) == 0)
        tty = open(ptsname(tty_master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    tty_error = tty < 0 ? errno : 0;
}

static void prepare_files(void) {
    locked_file = open(more_paths[LOCKED], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    open_locked_file = open(more_paths[OPEN_LOCKED], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    small_file = open(more_paths[SMALL], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    must(flock(locked_file, LOCK_EX) == 0 && fcntl(open_locked_file, F_OFD_SETLK, &lock) == 0, "locks");
    must(write(small_file, "x", 1) == 1 && mkfifo(more_paths[FIFO], 0600) == 0, "files");
    told_of_files = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC, O_RDONLY);
    if (told_of_files >= 0 && fanotify_mark(told_of_files, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, more_paths[SMALL]) != 0) {
        told_error = errno;
        close(told_of_files);
        told_of_files = -1;
    } else if (told_of_files < 0)
        told_error = errno;
}

static void prepare_queues(void) {
    struct {
        long type;
        char text[8];
    } message = {1, "first"};
    struct msqid_ds limits;
    posted = semget(IPC_PRIVATE, 1, 0600);
    full_queue = msgget(IPC_PRIVATE, 0600);
    must(posted >= 0 && full_queue >= 0 && msgctl(full_queue, IPC_STAT, &limits) == 0, "System V IPC");
    limits.msg_qbytes = sizeof message.text;
    must(msgctl(full_queue, IPC_SET, &limits) == 0, "msgctl");
    must(msgsnd(full_queue, &message, sizeof message.text, 0) == 0, "msgsnd");
    char name[64];
    snprintf(name, sizeof name, "/profbridge-matrix-full-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 64};
    full_mqueue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    must(full_mqueue != (mqd_t)-1 && mq_send(full_mqueue, "x", 1, 0) == 0, "mq_open");
    mq_unlink(name);
}

static pid_t sleep_in_child(int holds_lock);

static void prepare_more(void) {
    static const char *const names[] = {"locked", "open-locked", "small", "fifo", "pending", "crowded"};
    for (int i = 0; i < 6; i++)
        snprintf(more_paths[i], sizeof more_paths[i], "%s/%s", folder, names[i]);
    prepare_descriptors();
    prepare_files();
    prepare_queues();
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    priority_error = pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    if (!priority_error)
        priority_error = pthread_mutex_init(&held, &attributes);
    if (!priority_error)
        priority_error = pthread_mutex_lock(&held);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signals_read = signalfd(-1, &set, SFD_CLOEXEC);
    struct sigaction action = {.sa_handler = nothing};
    must(signals_read >= 0 && sigaction(SIGUSR1, &action, NULL) == 0, "signals");
    other_child = sleep_in_child(0);
}

static void take_page(int from) {
    char page[4096];
    must(read(from, page, sizeof page) > 0, "read");
}

/* Ends the calls of this file that do not end by themselves. */
static void wake_more(struct call *calls, int count) {
    struct {
        long type;
        char text[8];
    } message;
    struct sembuf post = {0, 1, 0};
    struct flock unlock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    union sigval value = {0};
    take_page(full_pipe[0]);
    take_page(full_for_file[0]);
    take_page(full_for_memory[0]);
    must(write(empty_pipe[1], "x", 1) == 1 && write(empty_for_copies[1], "x", 1) == 1, "write");
    must(write(datagrams[1], "x", 1) == 1 && (tty < 0 || write(tty_master, "x\n", 2) == 2), "write");
    must(semop(posted, &post, 1) == 0 && msgrcv(full_queue, &message, 8, 0, 0) == 8, "post");
    must(flock(locked_file, LOCK_UN) == 0 && fcntl(open_locked_file, F_OFD_SETLK, &unlock) == 0, "locks");
    must(close(open(more_paths[SMALL], O_RDONLY | O_CLOEXEC)) == 0, "open");
    must(sigqueue(getpid(), SIGRTMIN, value) == 0 && kill(other_child, SIGKILL) == 0, "kill");
    connect_to(more_paths[PENDING]);
    if (!priority_error)
        pthread_mutex_unlock(&held);
    /* A call that was counted as begun may not wait yet, so these calls are woken again and again until they have
     * returned. */
    int writer = -1;
    for (int left = 1; left;) {
        left = 0;
        for (int i = 0; i < count; i++) {
            long (*which)(void) = calls[i].run;
            int signalled = which == call_pause || which == call_sigsuspend;
            int told = signalled || which == call_open_fifo || which == call_futex_forever;
            if (!told || atomic_load(&calls[i].returned))
                continue;
            left = 1;
            if (signalled)
                pthread_kill(calls[i].thread, SIGUSR1);
            else if (which == call_futex_forever)
                syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
            else if (writer < 0)
                writer = open(more_paths[FIFO], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        }
        usleep(1000);
    }
}

static void remove_more(void) {
    for (int i = 0; i < 6; i++)
        unlink(more_paths[i]);
    semctl(posted, 0, IPC_RMID);
    msgctl(full_queue, IPC_RMID, NULL);
}
