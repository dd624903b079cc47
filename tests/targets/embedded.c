// Runs the Pythons whose libraries its arguments name, each in a thread of its own and none before a while has passed,
// and in each a second interpreter. No headers of any Python are needed.

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return found;
}

static void *python(void *path) {
    // The libraries have equal names for everything, so each one sees its own only.
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    void (*initialize)(int) = (void (*)(int))function(library, "Py_InitializeEx");
    int (*run)(const char *) = (int (*)(const char *))function(library, "PyRun_SimpleString");
    void *(*interpreter)(void) = (void *(*)(void))function(library, "Py_NewInterpreter");
    const char *(*version)(void) = (const char *(*)(void))function(library, "Py_GetVersion");
    int minor = 0;
    sscanf(version(), "3.%d", &minor);
    char text[256];
    initialize(0);
    snprintf(text, sizeof text, "import time\ndef first_%d():\n    time.sleep(1.5)\nfirst_%d()\n", minor, minor);
    if (run(text)) {
        exit(4);
    }
    snprintf(text, sizeof text, "import time\ndef second_%d():\n    time.sleep(1.5)\nsecond_%d()\n", minor, minor);
    if (!interpreter() || run(text)) {
        exit(5);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[16];
    usleep(500 * 1000);
    for (int at = 1; at < count && at <= 16; at++) {
        pthread_create(&threads[at - 1], NULL, python, arguments[at]);
    }
    for (int at = 1; at < count && at <= 16; at++) {
        pthread_join(threads[at - 1], NULL);
    }
    // Nothing is taken down: the interpreters share files that they would close.
    fflush(NULL);
    _exit(0);
}
