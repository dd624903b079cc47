/* A library that publishes its threads' contexts. How its code accesses the thread-local variable depends on the
 * compiler's options. With `-DLARGE` it has more thread-local data than fits into the static TLS block that glibc
 * reserves. */
#include "contexts.h"

#ifdef LARGE
__thread char large[1 << 16];
#endif

SHOWN __thread struct record *otel_thread_ctx_v1;
static __thread struct record own;

SHOWN void set_context(const uint8_t ids[24], const char *attribute) {
    write_record(&own, ids, attribute);
    otel_thread_ctx_v1 = &own;
}
