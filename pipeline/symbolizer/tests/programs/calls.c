/* Calls into another file, directly, through a pointer that is also compared, and to an indirect function. */
#include <stdlib.h>
#include <string.h>

extern long first(long), second(long);
void public_name(void), untyped(void), bare_public(void);

int main(int count, char **arguments) {
    char copy[256];
    memset(copy, count, sizeof copy);
    memcpy(copy, arguments[0], (size_t)count);
    atexit((void (*)(void))first);
    return (int)(first(count) + second(count)) + copy[count];
}
