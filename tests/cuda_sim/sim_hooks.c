/* sim_hooks.c - the functions that gcc's -fsanitize=thread calls before every access and
 * -fsanitize=alignment before a wrong one, for sim_watch.c. Names are those of gcc/sanitizer.def;
 * the libraries that define them are not linked. */
#include "tests/cuda_sim/plsim_watch.h"

#include "tests/cuda_sim/sim.h"

void __tsan_init(void);
void __tsan_init(void) {
    plsim_watching = true;
}

/* Packs are taken apart before the hooks are put in, so their alignment is checked by itself. */
struct mismatch { /* a structure of libubsan, as far as it is read here */
    const char *file;
    uint32_t line, column;
};
void __ubsan_handle_type_mismatch_v1(struct mismatch *at, uintptr_t p);
void __ubsan_handle_type_mismatch_v1(struct mismatch *at, uintptr_t p) {
    plsim_die("%s:%u:%u: %#zx is not aligned to the type that is accessed there", at->file,
              at->line, at->column, (size_t)p);
}

/* X(bytes) */
#define SIZES(X) X(1) X(2) X(4) X(8) X(16)

#define X(bytes)                                                                                   \
    void __tsan_read##bytes(void *p);                                                              \
    void __tsan_write##bytes(void *p);                                                             \
    void __tsan_volatile_read##bytes(void *p);                                                     \
    void __tsan_volatile_write##bytes(void *p);                                                    \
    void __tsan_unaligned_read##bytes(void *p);                                                    \
    void __tsan_unaligned_write##bytes(void *p);                                                   \
    void __tsan_read##bytes(void *p) {                                                             \
        plsim_watch_access(p, bytes, false);                                                       \
    }                                                                                              \
    void __tsan_write##bytes(void *p) {                                                            \
        plsim_watch_access(p, bytes, true);                                                        \
    }                                                                                              \
    void __tsan_volatile_read##bytes(void *p) {                                                    \
        plsim_watch_access(p, bytes, false);                                                       \
    }                                                                                              \
    void __tsan_volatile_write##bytes(void *p) {                                                   \
        plsim_watch_access(p, bytes, true);                                                        \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *p) {                                                   \
        plsim_watch_access(p, bytes, false);                                                       \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *p) {                                                  \
        plsim_watch_access(p, bytes, true);                                                        \
    }
SIZES(X)
#undef X

void __tsan_read_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void __tsan_read_range(void *p, size_t bytes) {
    plsim_watch_access(p, bytes, false);
}
void __tsan_write_range(void *p, size_t bytes) {
    plsim_watch_access(p, bytes, true);
}
