/* boot_id.h - identifies the machine that a process runs on, until it is booted again.
 *
 * Needs: Linux. */
#ifndef PL_RUNTIME_COMM_BOOT_ID_H
#define PL_RUNTIME_COMM_BOOT_ID_H

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PL_MACHINE_TEXT 37

/* Reads its boot_id; "" = unknown. */
static inline void pl_machine_read(char out[PL_MACHINE_TEXT]) {
    const ssize_t length = PL_MACHINE_TEXT - 1;
    memset(out, 0, PL_MACHINE_TEXT);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (read(fd, out, (size_t)length) != length) out[0] = 0;
    (void)close(fd);
}

#endif
