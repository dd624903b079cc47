/* Publishes a process context and thread contexts in the formats of OpenTelemetry's OTEPs 4719 (process context) and
 * 4947 (thread context). */
#include "common.h"
#include <stdatomic.h>
#include <sys/mman.h>

struct record {
    uint8_t trace[16];
    uint8_t span[8];
    volatile uint8_t valid;
    uint8_t flags;
    uint16_t length;
    uint8_t attributes[64];
};

#define SHOWN __attribute__((visibility("default")))

/* Writes the calling thread's record in such an order that a reader that interrupts the thread finds the old record,
 * none or the new one. */
static inline void write_record(struct record *record, const uint8_t ids[24], const char *attribute) {
    record->valid = 0;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(record->trace, ids, 16);
    memcpy(record->span, ids + 16, 8);
    record->flags = 1;
    record->length = 0;
    for (uint8_t key = 0; attribute && key < 2; key++) {
        uint8_t *at = record->attributes + record->length;
        at[0] = key;
        at[1] = (uint8_t)strlen(attribute);
        memcpy(at + 2, attribute, at[1]);
        record->length += 2 + at[1];
    }
    atomic_signal_fence(memory_order_seq_cst);
    record->valid = 1;
    atomic_signal_fence(memory_order_seq_cst);
}

struct shown {
    char signature[8];
    uint32_t version;
    uint32_t size;
    _Atomic uint64_t at;
    const void *payload;
};

/* Appends a field of bytes to a protobuf message. */
static inline int put(uint8_t *to, int number, const void *bytes, int length) {
    to[0] = (uint8_t)(number << 3 | 2);
    to[1] = (uint8_t)(length & 0x7f) | 0x80;
    to[2] = (uint8_t)(length >> 7);
    memcpy(to + 3, bytes, (size_t)length);
    return length + 3;
}

static inline int put_text(uint8_t *to, int number, const char *key, const char *text) {
    uint8_t value[256], attribute[512];
    int length = put(attribute, 1, key, (int)strlen(key));
    int inner = put(value, 1, text, (int)strlen(text));
    length += put(attribute + length, 2, value, inner);
    return put(to, number, attribute, length);
}

/* Publishes the process context, or replaces the published one. */
__attribute__((unused)) static void show_process(const char *service) {
    static struct shown *shown;
    static uint8_t payloads[2][1024];
    static int turn;
    if (!shown) {
        int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
        must(file >= 0 && ftruncate(file, 4096) == 0, "memfd_create");
        shown = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        must(shown != MAP_FAILED && madvise(shown, 4096, MADV_DONTFORK) == 0, "mmap");
        close(file);
    }
    uint8_t *payload = payloads[turn = !turn], resource[512], keys[256], value[300], attribute[400];
    int length = put_text(resource, 1, "service.name", service);
    length += put_text(resource + length, 1, "host.name", "elsewhere");
    int size = put(payload, 1, resource, length);
    size += put_text(payload + size, 2, "threadlocal.schema_version", "tlsdesc_v1_dev");
    int list = 0;
    for (int key = 0; key < 2; key++) {
        uint8_t text[64];
        const char *name = key ? "secret.key" : "test.key";
        list += put(keys + list, 1, text, put(text, 1, name, (int)strlen(name)));
    }
    length = put(attribute, 1, "threadlocal.attribute_key_map", 29);
    length += put(attribute + length, 2, value, put(value, 5, keys, list));
    size += put(payload + size, 2, attribute, length);
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    atomic_store(&shown->at, 0);
    memcpy(shown->signature, "OTEL_CTX", 8);
    shown->version = 2;
    shown->size = (uint32_t)size;
    shown->payload = payload;
    atomic_store(&shown->at, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}
