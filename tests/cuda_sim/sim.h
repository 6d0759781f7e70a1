/* sim.h - the inside of the emulation of the CUDA runtime, and its interface for tests.
 *
 * sim_memory.c: allocations and copies. sim_runtime.c: errors, devices, streams. sim_graph.c:
 * capture and graphs. sim_block.c: threads of a block as fibres. sim_fibre.c: the switch between
 * two. sim_warp.c, sim_ptx.c, sim_hopper.c: what a warp computes together. sim_load.c, sim_unit.c,
 * sim_tensor_map.c: what Hopper loads for it (sim_hopper.h). sim_watch.c, sim_hooks.c: what its
 * threads touch. sim_stream.c: work that waits. sim_settings.c: the
 * environment. sim_lt.c, sim_nvml.c, sim_nccl.c: libraries that the back-end loads by itself. Not
 * thread-safe: it has one host thread.
 * Use: setenv("PLSIM_MEMORY_BYTES", "1000", 1); plsim_restart(); ... plsim_counters.launches */
#ifndef PL_TESTS_CUDA_SIM_SIM_H
#define PL_TESTS_CUDA_SIM_SIM_H

#include <cuda_runtime.h>
#include <plsim_core.h>

#include <stdbool.h>

struct plsim_counters {
    uint64_t mallocs, failed_mallocs, frees, host_mallocs, failed_host_mallocs;
    uint64_t launches, blocks, switches, copies, memsets, syncs;
    uint64_t captures, graphs, graph_launches; /* graphs: instantiated */
    uint64_t wgmmas;                           /* of all threads */
    uint64_t matmuls;                          /* calls of cublasLtMatmul() */
    uint64_t idle_syncs;             /* waits after which a GPU would have had no kernel to run */
    uint64_t used_bytes, peak_bytes; /* bytes of the device */
};
extern struct plsim_counters plsim_counters;

#define PLSIM_SHARED_LIMIT 232448 /* a block of compute capability 9.0 may opt into 227 KiB */
#define PLSIM_MAX_THREADS  1024   /* limit of a block */
#define PLSIM_DEVICE_NAME  "Plimsoll emulation"

/* Reads the environment again and forgets sticky errors, counts and limits; allocations stay. For
 * tests that change the settings in one process. */
void plsim_restart(void);

/* ---- inside ---- */

enum plsim_site {
    PLSIM_OPEN,
    PLSIM_MALLOC,
    PLSIM_HOSTALLOC,
    PLSIM_LAUNCH,
    PLSIM_COPY,
    PLSIM_SYNC,
    PLSIM_MATMUL,
    PLSIM_CAPTURE,
    PLSIM_CAPTURED,
    PLSIM_INSTANTIATE,
    PLSIM_UPLOAD,
    PLSIM_REPLAY,
    PLSIM_SITES
};

struct plsim_settings {
    uint64_t memory_bytes, context_bytes, graph_node_bytes, library_bytes;
    uint64_t neighbour_bytes, neighbour_after; /* 0 bytes = none */
    int sm, sm_count, devices, driver;
    bool late, integrated;
    enum plsim_order { PLSIM_FORWARD, PLSIM_REVERSE, PLSIM_RANDOM } order;
    struct {
        uint64_t at, count; /* 1-based; at 0 = never */
        int error;
    } fail[PLSIM_SITES];
};
const struct plsim_settings *plsim_settings(void);
void plsim_settings_forget(void);

/* Counts a call at this site; returns the error that it must fail with, or 0. */
int plsim_injected(enum plsim_site site);
/* Returns the next of the numbers that PLSIM_ORDER=random starts, below n. */
uint64_t plsim_random(uint64_t n);

/* Records e as the last error and returns it. Errors that spoil the context stay for ever. */
cudaError_t plsim_fail(cudaError_t e);
/* Returns the error that every call returns once the context is spoilt; else cudaSuccess. */
cudaError_t plsim_sticky(void);
/* Returns the largest dynamic shared memory that a kernel may be launched with. */
size_t plsim_shared_limit(const void *kernel);
/* Ends the process if other kernels were set up for launches and this one was not: a GPU would load
 * it here and now, and take memory for it. */
void plsim_check_loaded(const char *name, const void *kernel);
/* sim_memory.c: the free bytes of the device, and the bytes of this process. */
uint64_t plsim_free_bytes(void);
uint64_t plsim_own_bytes(void);
/* The driver starts, and reads the environment for the last time. */
void plsim_start(void);
/* The context exists from now on. */
void plsim_need_context(void);
/* The library loads its kernels at its first product: takes PLSIM_LIBRARY_BYTES of the device,
 * once. False: too little is free. */
bool plsim_load_kernels(void);
/* The neighbour and the context leave, and what the library took. */
void plsim_memory_restart(void);

struct plsim_allocation {
    char *p;
    size_t bytes;
    bool device;                 /* else pinned */
    bool shared;                 /* memory of ncclMemAlloc */
    size_t taken;                /* bytes of the device */
    void *watched;               /* cells of sim_watch.c */
    _Atomic uint32_t registered; /* times, with communicators that are there */
    struct plsim_allocation *next;
};
/* Returns the allocation that p lies in; NULL = none. Only the count `registered` may be changed by
 * a thread other than the host's: until it is 0 the allocation stays. */
struct plsim_allocation *plsim_holder(const void *p);
/* Like ncclMemAlloc and ncclMemFree, in whole units of 2 MiB; NULL: too little is free. Memory of
 * the one goes back by the other alone, and while no stream has work: the real one does not
 * wait. */
void *plsim_shared_take(size_t bytes);
void plsim_shared_give(void *p);
/* sim_watch.c: the allocation goes away. */
void plsim_watch_forget(struct plsim_allocation *a);

/* sim_launches.c: notes what kind of launch it is, where PLSIM_LAUNCHES asks for that. */
void plsim_note_launch(const struct plsim_launch *launch);

/* sim_graph.c: the first is true if work for this stream is recorded rather than run, the second
 * records it; data is copied. */
bool plsim_captures(cudaStream_t stream);
cudaError_t plsim_record(cudaStream_t stream, void (*run)(void *data), const void *data,
                         size_t bytes, bool is_kernel);
/* The point in a capture at which an event was recorded: the capture, 0 = none, and the works so
 * far. */
struct plsim_captured {
    cudaStream_t stream;
    uint64_t capture, works;
};
struct plsim_captured plsim_captured(cudaStream_t stream);
/* Makes a stream wait for such a point, or one that captures wait for something that is in no
 * capture. */
cudaError_t plsim_capture_wait(cudaStream_t stream, const struct plsim_captured *at);
/* Called by functions that no capture allows: it is spoilt, and they fail. cudaSuccess: there is no
 * capture. */
cudaError_t plsim_forbidden(void);
/* Takes and releases device memory of graphs. */
uint64_t plsim_graph_bytes(void);

/* sim_stream.c: does the work now, or records it for later; data is copied then. */
void plsim_submit(cudaStream_t stream, void (*run)(void *data), void *data, size_t bytes);
uint64_t plsim_submitted(void); /* number of the last work that was recorded */
bool plsim_has_work(void);
/* The first does the work of a stream up to this number, the second the work of all streams. */
void plsim_drain(cudaStream_t stream, uint64_t number);
void plsim_drain_all(void);

/* Ends the process unless the range lies inside one allocation of device memory. */
void plsim_check_device_range(const char *what, const void *p, size_t bytes);

/* Ends the process: a defect of the code under test. */
_Noreturn void plsim_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sim_fibre.c: stacks that run plsim_fibre_main() for ever. */
struct plsim_fibre;
struct plsim_fibre *plsim_fibre_create(void);
/* Leaves the running fibre and continues in another; NULL = the stack of the host. */
void plsim_fibre_switch(struct plsim_fibre *to);
struct plsim_fibre *plsim_fibre_running(void);
/* True if p is on the stack of the running fibre. */
bool plsim_fibre_holds(const void *p);
void plsim_fibre_main(void); /* sim_block.c; never returns */
bool plsim_in_kernel(void);
uint32_t plsim_thread(void); /* number of the running fibre in its block */

/* sim_ptx.c: a block of so many threads begins. */
void plsim_copies_forget(uint32_t threads);
/* sim_hopper.c, sim_unit.c, sim_load.c: the same; all threads of it have met; it ends; a copy of
 * the running thread has landed. */
void plsim_hopper_forget(uint32_t threads);
void plsim_units_meet(uint32_t threads);
void plsim_hopper_finish(void);
void plsim_hopper_landed(const void *dst);
/* sim_block.c: the running thread waits for something that no barrier of threads ends; all that do
 * look again. */
void plsim_pause(void);
void plsim_resume_paused(void);

#endif
