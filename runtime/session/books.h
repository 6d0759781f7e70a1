/* books.h - bytes that a session planned, allocated and measured. */
#ifndef PL_RUNTIME_SESSION_BOOKS_H
#define PL_RUNTIME_SESSION_BOOKS_H

#include <stdint.h>

struct pl_books {
    uint64_t planned_bytes, allocated_bytes;
    uint64_t
        measured_bytes; /* of the whole process: resident on the CPU; on a GPU, of its memory */
    uint64_t planned_host_bytes, allocated_host_bytes; /* of the plan; what copies use is not in */
    uint64_t predicted_bytes; /* arenas and context, before anything of the device was touched */
    uint64_t context_bytes;   /* measured, at the end, without comm_bytes; 0 on the CPU */
    uint64_t comm_bytes;      /* of a GPU, which connected ranks: measured before the first step */
};

#endif
