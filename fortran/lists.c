/* Lists of Fortran programs: an array with room for more items than there are, and a variable that counts
 * them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "descriptors.h"

typedef struct list {
    tailrace_session* session;
    void *memory, *count;
    size_t count_bytes;
    uint64_t item_bytes, room; /* in items */
    struct list* next;
    char name[];
} list;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static list* lists; /* of all sessions; guarded by the mutex */

static int64_t count_of(const list* its) {
    if (its->count_bytes == sizeof(int64_t)) return *(const int64_t*)its->count;
    return *(const int32_t*)its->count;
}

static void* find(void* user, uint64_t* bytes) {
    const list* its = user;
    const int64_t count = count_of(its);
    if (count >= 0 && (uint64_t)count <= its->room) {
        *bytes = (uint64_t)count * its->item_bytes;
        return its->memory;
    }
    tailrace_fortran_refuse("saving list \"%s\": its count is %lld, and its array has room for %llu items",
                            its->name, (long long)count, (unsigned long long)its->room);
    *bytes = 1; /* at no address: nothing is saved */
    return NULL;
}

static int resize(void* user, uint64_t bytes) {
    const list* its = user;
    const uint64_t count = bytes / its->item_bytes;
    if (bytes % its->item_bytes != 0 || count > its->room ||
        (its->count_bytes == sizeof(int32_t) && count > INT32_MAX)) {
        tailrace_fortran_refuse(
            "restoring list \"%s\": it has %llu bytes here, and its array has room for %llu items of %llu; "
            "make the array larger",
            its->name, (unsigned long long)bytes, (unsigned long long)its->room,
            (unsigned long long)its->item_bytes);
        return 1;
    }
    if (its->count_bytes == sizeof(int64_t))
        *(int64_t*)its->count = (int64_t)count;
    else
        *(int32_t*)its->count = (int32_t)count;
    return 0;
}

/* Takes a session's lists out of `lists`, or the one of that name, and returns them. */
static list* take(const tailrace_session* session, const char* name) {
    list* taken = NULL;
    pthread_mutex_lock(&mutex);
    for (list** at = &lists; *at != NULL;) {
        list* const its = *at;
        if (its->session == session && (name == NULL || strcmp(its->name, name) == 0)) {
            *at = its->next;
            its->next = taken;
            taken = its;
        } else {
            at = &its->next;
        }
    }
    pthread_mutex_unlock(&mutex);
    return taken;
}

static void free_all(list* its) {
    while (its != NULL) {
        list* const next = its->next;
        free(its);
        its = next;
    }
}

tailrace_code tailrace_fortran_list(tailrace_session* session, const char* name, CFI_cdesc_t* memory,
                                    void* count, size_t count_bytes) {
    const tailrace_code checked = tailrace_fortran_check(name, memory);
    if (checked != TAILRACE_OK) return checked;
    if (memory->rank == 0)
        return tailrace_fortran_refuse(
            "registering list \"%s\": an array has room for items, a scalar has none", name);
    const tailrace_type type = tailrace_fortran_type(memory);
    const uint64_t element = memory->elem_len;
    uint64_t width = type == TAILRACE_BYTES ? element : 1, stride = element;
    for (int d = 0; d < memory->rank; ++d) {
        if (memory->dim[d].extent > 1 && memory->dim[d].sm != (CFI_index_t)stride)
            return tailrace_fortran_refuse(
                "registering list \"%s\": the section is not contiguous; register all of the array", name);
        stride *= (uint64_t)memory->dim[d].extent;
        if (d + 1 < memory->rank) width *= (uint64_t)memory->dim[d].extent;
    }
    list* const its = malloc(sizeof *its + strlen(name) + 1);
    if (its == NULL)
        return tailrace_fortran_refuse("registering list \"%s\": there is no memory for it", name);
    *its = (list){.session = session,
                  .memory = memory->base_addr,
                  .count = count,
                  .count_bytes = count_bytes,
                  .item_bytes = type == TAILRACE_BYTES ? width : width * element,
                  .room = (uint64_t)memory->dim[memory->rank - 1].extent};
    strcpy(its->name, name);
    const tailrace_code code = tailrace_register_list(session, name, type, width, find, resize, its);
    if (code != TAILRACE_OK) {
        free(its);
        return code;
    }
    pthread_mutex_lock(&mutex);
    its->next = lists;
    lists = its;
    pthread_mutex_unlock(&mutex);
    return TAILRACE_OK;
}

tailrace_code tailrace_fortran_remove(tailrace_session* session, const char* name) {
    tailrace_fortran_forget();
    const tailrace_code code = tailrace_unregister(session, name);
    if (code == TAILRACE_OK) free_all(take(session, name));
    return code;
}

tailrace_code tailrace_fortran_close(tailrace_session* session) {
    tailrace_fortran_forget();
    /* Taken off the list before the close, after which another session may have this address. */
    list* const its = session != NULL ? take(session, NULL) : NULL;
    const tailrace_code code = tailrace_close(session);
    free_all(its);
    return code;
}
