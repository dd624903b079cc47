/* `transfers SECONDS`: a line of input starts one thread that makes 24 system calls in turn, each of which works in the kernel for milliseconds and
 * moves many MiB: on /dev/zero, files, pipes and sockets, and by copying within the kernel. What it sends is taken, and what it receives is sent,
 * by threads of their own. Once the time has passed and each call was made at least three times, it says for each
 *     NAME calls COUNT short COUNT failed COUNT
 * where a short call moved less than it was asked to, then `done`, and takes the next line. A call that this machine does not offer has no calls. */
#include "common.h"
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { SIZE = 32 << 20, RANDOM = 4 << 20, LEAST = 3 };

static char *bytes;
static int zero, file, other, pipe_end, unix_out, tcp_out, unix_in, tcp_in;

static void *take(void *from) {
    char *taken = malloc(1 << 20);
    while (read((int)(intptr_t)from, taken, 1 << 20) > 0) {
    }
    return NULL;
}

/* Sends for ever: what is received next always comes. */
static void *give(void *to) {
    char *given = calloc(1, 1 << 20);
    while (write((int)(intptr_t)to, given, 1 << 20) > 0) {
    }
    return NULL;
}

static void tcp_pair(int pair[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listening, (struct sockaddr *)&address, length) == 0 && listen(listening, 1) == 0, "bind");
    must(getsockname(listening, (struct sockaddr *)&address, &length) == 0, "getsockname");
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(pair[0], (struct sockaddr *)&address, length) == 0, "connect");
    pair[1] = accept(listening, NULL, NULL);
    must(pair[1] >= 0, "accept");
    close(listening);
}

static int connected(int tcp, void *(*peer)(void *)) {
    int pair[2];
    if (tcp)
        tcp_pair(pair);
    else
        must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    start_thread(peer, (void *)(intptr_t)pair[1], 0);
    return pair[0];
}

static struct iovec *halves(void) {
    static struct iovec two[2];
    two[0] = (struct iovec){bytes, SIZE / 2};
    two[1] = (struct iovec){bytes + SIZE / 2, SIZE / 2};
    return two;
}

static struct msghdr message(void) { return (struct msghdr){.msg_iov = halves(), .msg_iovlen = 2}; }

static ssize_t call_read_zero(void) { return read(zero, bytes, SIZE); }
static ssize_t call_readv_zero(void) { return readv(zero, halves(), 2); }
static ssize_t call_pread_zero(void) { return pread(zero, bytes, SIZE, 0); }
static ssize_t call_read_file(void) { return lseek(file, 0, SEEK_SET) == 0 ? read(file, bytes, SIZE) : -1; }
static ssize_t call_pread_file(void) { return pread(file, bytes, SIZE, 0); }
static ssize_t call_readv_file(void) { return lseek(file, 0, SEEK_SET) == 0 ? readv(file, halves(), 2) : -1; }
static ssize_t call_preadv_file(void) { return preadv(file, halves(), 2, 0); }
static ssize_t call_write_file(void) { return lseek(file, 0, SEEK_SET) == 0 ? write(file, bytes, SIZE) : -1; }
static ssize_t call_pwrite_file(void) { return pwrite(file, bytes, SIZE, 0); }
static ssize_t call_writev_file(void) { return lseek(file, 0, SEEK_SET) == 0 ? writev(file, halves(), 2) : -1; }
static ssize_t call_pwritev_file(void) { return pwritev(file, halves(), 2, 0); }
static ssize_t call_write_pipe(void) { return write(pipe_end, bytes, SIZE); }
static ssize_t call_writev_pipe(void) { return writev(pipe_end, halves(), 2); }
static ssize_t call_send_unix(void) { return send(unix_out, bytes, SIZE, 0); }
static ssize_t call_sendmsg_unix(void) {
    struct msghdr sent = message();
    return sendmsg(unix_out, &sent, 0);
}
static ssize_t call_send_tcp(void) { return send(tcp_out, bytes, SIZE, 0); }
static ssize_t call_recv_unix(void) { return recv(unix_in, bytes, SIZE, MSG_WAITALL); }
static ssize_t call_recvmsg_unix(void) {
    struct msghdr received = message();
    return recvmsg(unix_in, &received, MSG_WAITALL);
}
static ssize_t call_recv_tcp(void) { return recv(tcp_in, bytes, SIZE, MSG_WAITALL); }
static ssize_t call_sendfile_socket(void) {
    off_t offset = 0;
    return sendfile(unix_out, file, &offset, SIZE);
}
static ssize_t call_sendfile_file(void) {
    off_t offset = 0;
    return lseek(other, 0, SEEK_SET) == 0 ? sendfile(other, file, &offset, SIZE) : -1;
}
static ssize_t call_copy_file_range(void) {
    loff_t from = 0, to = 0;
    return copy_file_range(file, &from, other, &to, SIZE, 0);
}
static ssize_t call_getrandom(void) { return getrandom(bytes, RANDOM, 0); }
static ssize_t call_populate(void) {
    void *fresh = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return -1;
    int result = madvise(fresh, SIZE, MADV_POPULATE_WRITE), error = errno;
    munmap(fresh, SIZE);
    errno = error;
    return result == 0 ? SIZE : -1;
}

#define CALL(which) {.name = #which, .run = call_##which, .wanted = SIZE}
static struct {
    const char *name;
    ssize_t (*run)(void);
    ssize_t wanted;
    uint64_t calls, shorter, failed;
    int absent;
} calls[] = {
    CALL(read_zero),     CALL(readv_zero),    CALL(pread_zero),      CALL(read_file),   CALL(pread_file),  CALL(readv_file),
    CALL(preadv_file),   CALL(write_file),    CALL(pwrite_file),     CALL(writev_file), CALL(pwritev_file), CALL(write_pipe),
    CALL(writev_pipe),   CALL(send_unix),     CALL(sendmsg_unix),    CALL(send_tcp),    CALL(recv_unix),   CALL(recvmsg_unix),
    CALL(recv_tcp),      CALL(sendfile_socket), CALL(sendfile_file), CALL(copy_file_range), CALL(getrandom), CALL(populate),
};
enum { CALLS = sizeof calls / sizeof calls[0] };
_Static_assert(CALLS == 24, "there are 24 calls");

static void prepare(void) {
    int ends[2];
    bytes = malloc(SIZE);
    memset(bytes, 1, SIZE);
    zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    file = memfd_create("file", MFD_CLOEXEC);
    other = memfd_create("other", MFD_CLOEXEC);
    must(zero >= 0 && file >= 0 && other >= 0 && write(file, bytes, SIZE) == SIZE, "files");
    must(pipe(ends) == 0, "pipe");
    start_thread(take, (void *)(intptr_t)ends[0], 0);
    pipe_end = ends[1];
    unix_out = connected(0, take);
    tcp_out = connected(1, take);
    unix_in = connected(0, give);
    tcp_in = connected(1, give);
}

static void *work(void *until) {
    for (int64_t end = *(int64_t *)until, rounds = 0; rounds < LEAST || now_nano() < end; rounds++)
        for (int i = 0; i < CALLS; i++) {
            if (calls[i].absent)
                continue;
            ssize_t moved = calls[i].run();
            if (moved < 0 && (errno == ENOSYS || errno == EINVAL || errno == EXDEV || errno == EOPNOTSUPP)) {
                calls[i].absent = 1;
                continue;
            }
            calls[i].calls++;
            calls[i].failed += moved < 0;
            calls[i].shorter += moved >= 0 && moved != calls[i].wanted;
        }
    return NULL;
}

int main(int count, char **arguments) {
    must(count == 2, "usage: transfers SECONDS");
    double seconds = atof(arguments[1]);
    for (int i = 0; i < CALLS; i++)
        if (calls[i].run == call_getrandom)
            calls[i].wanted = RANDOM;
    prepare();
    say("ready");
    for (;;) {
        char line[64], text[160];
        await_line(line, sizeof line);
        int64_t until = now_nano() + (int64_t)(seconds * 1e9);
        pthread_join(start_thread(work, &until, 0), NULL);
        for (int i = 0; i < CALLS; i++) {
            snprintf(text, sizeof text, "%s calls %llu short %llu failed %llu", calls[i].name, (unsigned long long)calls[i].calls,
                     (unsigned long long)calls[i].shorter, (unsigned long long)calls[i].failed);
            say(text);
            calls[i].calls = calls[i].shorter = calls[i].failed = 0;
        }
        say("done");
    }
}
