/* available.h - host memory that this process may still take, and what bounds it.
 *
 * In: /proc, /sys and the limits of the process.  Out: bytes, and the name of the narrowest bound.
 *   M1  the narrowest of: MemAvailable, what each memory cgroup from the process's own up to the
 *       root leaves (v1 and v2), what RLIMIT_AS and RLIMIT_DATA leave
 *   M2  what cannot be read bounds nothing; without /proc/meminfo it is the memory of the machine
 *   M3  file pages of a cgroup count as free: its limit makes the kernel drop them first
 * Use: pl_cpu_available().bytes */
#ifndef PL_RUNTIME_DEVICE_AVAILABLE_H
#define PL_RUNTIME_DEVICE_AVAILABLE_H

#include <stdbool.h>
#include <stdint.h>

struct pl_available {
    uint64_t bytes;
    const char *source; /* static: as struct pl_budget has it */
    bool limit;         /* of a cgroup or of the process: nothing past it is lent for a while */
};

struct pl_available_from {
    const char *root;              /* before /proc and /sys: "", or a directory of a test */
    uint64_t machine_bytes;        /* installed */
    uint64_t as_limit, data_limit; /* RLIM_INFINITY: none */
};
struct pl_available pl_available_read(const struct pl_available_from *from);

/* The memory that this process can take now. Needs no open device. */
struct pl_available pl_cpu_available(void);
/* Returns the bytes of memory that the machine has; UINT64_MAX: not known. */
uint64_t pl_cpu_installed(void);

#endif
