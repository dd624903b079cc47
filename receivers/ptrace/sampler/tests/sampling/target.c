// A process to be sampled. Says "ready" and its id; answers a "c" with two counters, and does what its kind says on a "g".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static volatile long first, second, paused;
static pthread_t main_thread;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

__attribute__((noinline)) static void spin(long times) {
  for (long i = 0; i < times; i++) sink += i * 7;
}

static void *spin_forever(void *unused) {
  for (;;) spin(1000000);
  return unused;
}

static void *block(void *unused) {
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&never, &mutex);
  return unused;
}

static void *short_waits(void *unused) {
  int poll = epoll_create1(0);
  struct epoll_event event;
  for (;;) {
    struct timespec time = {0, 30000};
    first++;
    if (epoll_pwait2(poll, &event, 1, &time, NULL) < 0 && errno == EINTR) second++;
    spin(20000);
  }
  return unused;
}

static void *read_much(void *unused) {
  size_t size = 64 << 20;
  char *bytes = malloc(size);
  int zero = open("/dev/zero", O_RDONLY);
  for (;;) {
    first++;
    if (read(zero, bytes, size) != (ssize_t)size) second++;
  }
  return unused;
}

static long used(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * 1000000000 + time.tv_nsec;
}

// Works for a millisecond and waits for four.
static void *duty(void *unused) {
  int poll = epoll_create1(0);
  struct epoll_event event;
  for (;;) {
    long before = used();
    while (used() - before < 1000000) spin(2000);
    epoll_wait(poll, &event, 1, 4);
    first++;
  }
  return unused;
}

// When told to, uses a second of processor time with short waits in between, says how much it was, and waits.
static void work(void) {
  char command;
  if (read(0, &command, 1) != 1) _exit(0);
  long before = used();
  while (used() - before < 1000000000) {
    struct timespec time = {0, 30000};
    nanosleep(&time, NULL);
    spin(200000);
  }
  printf("done %ld\n", used() - before);
  fflush(stdout);
  while (read(0, &command, 1) == 1) {
  }
  _exit(0);
}

static void handle(int signal) {
  (void)signal;
  second++;
}

static void *raise_signals(void *unused) {
  union sigval value = {0};
  struct timespec pause = {0, 1000000};
  while (!paused) {
    first++;
    pthread_sigqueue(main_thread, SIGRTMIN + 3, value);
    nanosleep(&pause, NULL);
  }
  paused = 2;
  return unused;
}

static void *nothing(void *unused) { return unused; }

static void *churn(void *unused) {
  for (;;) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, nothing, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    first += 4;
  }
  return unused;
}

static void *brief_work(void *unused) {
  struct timespec time;
  do {
    spin(2000);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  } while (time.tv_nsec < 2000000);
  return unused;
}

// Threads that use two milliseconds of processor time each, one after the other.
static void *brief(void *unused) {
  for (;;) {
    pthread_t thread;
    pthread_create(&thread, NULL, brief_work, NULL);
    pthread_join(thread, NULL);
    first++;
  }
  return unused;
}

static const char *kind, *program;

static void *listen(void *unused) {
  char command;
  while (read(0, &command, 1) == 1) {
    if (command == 'g' && !strcmp(kind, "exec")) execl(program, program, "busy", NULL);
    if (command == 'g') _exit(7);
    if (command == 'c') {
      struct timespec moment = {0, 1000000};
      if (!strcmp(kind, "signals")) {
        paused = 1;
        while (paused == 1 || first != second) nanosleep(&moment, NULL);
      }
      printf("%ld %ld\n", first, second);
      fflush(stdout);
    }
  }
  _exit(0);
  return unused;
}

int main(int count, char **arguments) {
  program = arguments[0];
  kind = count > 1 ? arguments[1] : "busy";
  main_thread = pthread_self();
  pthread_t thread;
  printf("ready %d\n", getpid());
  fflush(stdout);
  if (!strcmp(kind, "busy")) spin_forever(NULL);
  if (!strcmp(kind, "blocked")) {
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, block, NULL);
    listen(NULL);
  }
  if (!strcmp(kind, "work")) work();
  if (!strcmp(kind, "signals")) {
    signal(SIGRTMIN + 3, handle);
    pthread_create(&thread, NULL, raise_signals, NULL);
  }
  pthread_create(&thread, NULL, listen, NULL);
  if (!strcmp(kind, "short_waits")) short_waits(NULL);
  if (!strcmp(kind, "read_much")) read_much(NULL);
  if (!strcmp(kind, "duty")) duty(NULL);
  if (!strcmp(kind, "churn")) churn(NULL);
  if (!strcmp(kind, "brief")) brief(NULL);
  spin_forever(NULL);
}
