/* check_sim.c - the emulation does what a device does, and notices what a device would not. */
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/smoke_kernels.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void *device(size_t bytes) {
    void *p = NULL;
    ck_assert_int_eq(cudaMalloc(&p, bytes), cudaSuccess);
    return p;
}

static void with(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
    plsim_restart();
}

START_TEST(every_thread_runs_once) {
    static const int sizes[] = {1, 31, 32, 33, 1000, 4096};
    int n = sizes[_i], *out = device((size_t)n * sizeof *out);
    smoke_number(out, n, 96);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(out[i], i);
    ck_assert_int_eq(cudaFree(out), cudaSuccess);
}
END_TEST

START_TEST(a_kernel_without_barriers_switches_twice_a_block) {
    int *out = device(4096 * sizeof *out);
    smoke_number(out, 4096, 256);
    ck_assert_uint_eq(plsim_counters.blocks, 16);
    ck_assert_uint_eq(plsim_counters.switches, 32);
    cudaFree(out);
}
END_TEST

START_TEST(a_block_sums_through_shuffles_and_shared_memory) {
    float *x = device(1000 * sizeof *x), *out = device(sizeof *out);
    for (int i = 0; i < 1000; i++)
        x[i] = (float)i;
    smoke_sum(x, out, 1000, 32u << _i);
    ck_assert(*out == 499500.0f);
    cudaFree(x);
    cudaFree(out);
}
END_TEST

/* Written from the PTX manual's table of shfl.sync, lane by lane. */
START_TEST(a_shuffle_reads_the_lane_it_names) {
    static const struct {
        int what, operand, width, lane, want;
    } rows[] = {{0, 5, 32, 9, 5}, {0, 5, 8, 9, 13},         {0, 9, 8, 3, 1},    {1, 3, 32, 10, 7},
                {1, 3, 32, 2, 2}, {1, 3, 8, 9, 9},          {2, 4, 32, 10, 14}, {2, 4, 32, 30, 30},
                {2, 4, 8, 5, 5},  {3, 1, 32, 6, 7},         {3, 16, 32, 3, 19}, {3, 8, 8, 3, 3},
                {3, 8, 8, 11, 3}, {4, 0, 32, 0, 0x49249249}};
    int *out = device(32 * sizeof *out);
    smoke_exchange(rows[_i].what, rows[_i].operand, rows[_i].width, out);
    ck_assert_int_eq(out[rows[_i].lane], rows[_i].want);
    cudaFree(out);
}
END_TEST

START_TEST(halves_of_a_warp_meet_on_their_own) {
    int *out = device(32 * sizeof *out);
    smoke_halves(out);
    for (int i = 0; i < 32; i++)
        ck_assert_int_eq(out[i], 32);
    cudaFree(out);
}
END_TEST

/* Small integers are exact in bfloat16, and so are their sums in fp32. */
static double entry(int i) {
    return (i * 7 + i / 5) % 11 - 5;
}

START_TEST(a_warp_multiplies_what_a_plain_product_does) {
    uint16_t *a = device(256 * sizeof *a), *b = device(128 * sizeof *b);
    float *c = device(128 * sizeof *c), x[256];
    for (int i = 0; i < 256; i++)
        x[i] = (float)entry(i);
    smoke_round(x, a, 256);
    smoke_round(x, b, 128);
    smoke_product(a, b, _i, c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double want = 0;
            for (int k = 0; k < 16; k++)
                want += entry(i * 16 + k) * entry(_i ? k * 8 + j : j * 16 + k);
            ck_assert_msg(c[i * 8 + j] == want, "[%d,%d] is %g, not %g", i, j, c[i * 8 + j], want);
        }
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
}
END_TEST

/* Each of these ends the process. */
static void (*const mistakes[])(int *) = {smoke_divergent, smoke_deadlock, smoke_outside_mask,
                                          smoke_mixed,     smoke_overrun,  smoke_half_mma};
START_TEST(a_mistake_ends_the_process) {
    mistakes[_i](device(64 * sizeof(int)));
}
END_TEST

START_TEST(memory_starts_as_nan) {
    float *out = device(2 * sizeof *out);
    ck_assert(isnan(out[0]) && isnan(out[1]));
    out[0] = out[1] = 0;
    smoke_unset(out); /* the second block must not see what the first wrote */
    ck_assert(isnan(out[0]) && isnan(out[1]));
    cudaFree(out);
}
END_TEST

START_TEST(the_reverse_order_shows_a_race) {
    int *out = device(32 * sizeof *out);
    smoke_race(out);
    ck_assert_int_eq(out[31], 7);
    with("PLSIM_ORDER", "reverse");
    smoke_race(out);
    ck_assert_int_ne(out[31], 7);
    cudaFree(out);
}
END_TEST

START_TEST(floats_round_to_the_nearest_even_bfloat16) {
    static const struct {
        uint32_t bits;
        uint16_t want;
    } rows[] = {{0x3F800000, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82},
                {0x3F808001, 0x3F81}, {0x7F7FFFFF, 0x7F80}, {0xFF800000, 0xFF80},
                {0x7F800001, 0x7FFF}, {0xFFC00000, 0x7FFF}, {0x80000000, 0x8000},
                {0x00018000, 0x0002}};
    enum { N = sizeof rows / sizeof *rows };
    float *x = device(N * sizeof *x);
    uint16_t *out = device(N * sizeof *out);
    for (int i = 0; i < N; i++)
        memcpy(&x[i], &rows[i].bits, sizeof x[i]);
    smoke_round(x, out, N);
    for (int i = 0; i < N; i++)
        ck_assert_uint_eq(out[i], rows[i].want);
    cudaFree(x);
    cudaFree(out);
}
END_TEST

START_TEST(a_launch_past_a_limit_is_refused) {
    static const struct {
        unsigned grid[3], block[3];
        size_t shared_bytes;
        cudaError_t want;
    } rows[] = {{{1, 1, 1}, {1024, 1, 1}, 49152, cudaSuccess},
                {{0, 1, 1}, {32, 1, 1}, 0, cudaErrorInvalidConfiguration},
                {{1, 65536, 1}, {32, 1, 1}, 0, cudaErrorInvalidConfiguration},
                {{1, 1, 1}, {1025, 1, 1}, 0, cudaErrorInvalidConfiguration},
                {{1, 1, 1}, {512, 2, 2}, 0, cudaErrorInvalidConfiguration},
                {{1, 1, 1}, {1, 1, 65}, 0, cudaErrorInvalidConfiguration},
                {{1, 1, 1}, {32, 1, 1}, 49153, cudaErrorInvalidValue}};
    smoke_launch(rows[_i].grid, rows[_i].block, rows[_i].shared_bytes, NULL);
    ck_assert_int_eq(cudaGetLastError(), rows[_i].want);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
}
END_TEST

START_TEST(a_kernel_opts_into_large_shared_memory) {
    static const unsigned one[3] = {1, 1, 1};
    ck_assert_int_eq(smoke_opt_in(232449), cudaErrorInvalidValue);
    ck_assert_int_eq(smoke_opt_in(100000), cudaSuccess);
    (void)cudaGetLastError();
    smoke_launch(one, one, 100000, NULL);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    smoke_launch(one, one, 100001, NULL);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidValue);
}
END_TEST

/* T1 of table.h. */
START_TEST(a_kernel_that_was_forgotten_in_loading_ends_the_process) {
    ck_assert_int_eq(smoke_opt_in(0), cudaSuccess);
    smoke_race(device(32 * sizeof(int)));
}
END_TEST

START_TEST(memory_ends_at_the_limit) {
    size_t free_bytes, total;
    void *p = NULL, *q = NULL;
    with("PLSIM_MEMORY_BYTES", "1000");
    ck_assert_int_eq(cudaMalloc(&p, 600), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&q, 401), cudaErrorMemoryAllocation);
    ck_assert_ptr_null(q);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    ck_assert_int_eq(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    ck_assert_uint_eq(free_bytes, 400);
    ck_assert_uint_eq(total, 1000);
    ck_assert_int_eq(cudaFree(p), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&q, 1000), cudaSuccess);
    ck_assert_int_eq(cudaFree(q), cudaSuccess);
    ck_assert_uint_eq(plsim_counters.mallocs, 3);
    ck_assert_uint_eq(plsim_counters.failed_mallocs, 1);
    ck_assert_uint_eq(plsim_counters.peak_bytes, 1000);
}
END_TEST

START_TEST(a_neighbour_takes_memory_between_two_calls) {
    size_t before, after, total;
    void *p = NULL;
    setenv("PLSIM_MEMORY_BYTES", "1000", 1);
    with("PLSIM_NEIGHBOUR", "300@1");
    ck_assert_int_eq(cudaMemGetInfo(&before, &total), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&p, before), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaMemGetInfo(&after, &total), cudaSuccess);
    ck_assert_uint_eq(before, 1000);
    ck_assert_uint_eq(after, 700);
}
END_TEST

START_TEST(a_spoilt_context_stays_spoilt) {
    int *out = device(64);
    void *p;
    with("PLSIM_FAIL", "launch@2:700");
    smoke_number(out, 1, 32);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaSuccess);
    smoke_number(out, 1, 32);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaMalloc(&p, 1), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    ck_assert_str_eq(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
    cudaFree(out);
}
END_TEST

START_TEST(an_injected_failure_lasts_as_long_as_asked) {
    void *p[4];
    with("PLSIM_FAIL", "hostalloc@2:2,count=2");
    ck_assert_int_eq(cudaMallocHost(&p[0], 8), cudaSuccess);
    ck_assert_int_eq(cudaMallocHost(&p[1], 8), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaMallocHost(&p[2], 8), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaMallocHost(&p[3], 8), cudaSuccess);
    cudaFreeHost(p[0]);
    cudaFreeHost(p[3]);
}
END_TEST

START_TEST(copies_keep_their_bytes) {
    char in[100], out[100], *p = device(100), *q = device(100);
    for (int i = 0; i < 100; i++)
        in[i] = (char)i;
    ck_assert_int_eq(cudaMemcpyAsync(p, in, 100, cudaMemcpyHostToDevice, NULL), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(q, p, 100, cudaMemcpyDeviceToDevice, NULL), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(out, q, 100, cudaMemcpyDeviceToHost, NULL), cudaSuccess);
    ck_assert_mem_eq(in, out, 100);
    ck_assert_uint_eq(plsim_counters.copies, 3);
    ck_assert_uint_eq(plsim_counters.syncs, 0);
    cudaFree(p);
    cudaFree(q);
}
END_TEST

/* A pinned buffer that is used again before or after the stream was waited for. */
START_TEST(a_buffer_that_is_used_again_too_early_shows) {
    cudaStream_t stream;
    int *pinned, *p = device(4);
    with("PLSIM_STREAMS", "late");
    ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
    ck_assert_int_eq(cudaMallocHost((void **)&pinned, 4), cudaSuccess);
    *pinned = 1;
    ck_assert_int_eq(cudaMemcpyAsync(p, pinned, 4, cudaMemcpyHostToDevice, stream), cudaSuccess);
    if (_i == 1) ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    *pinned = 2;
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    ck_assert_int_eq(*p, _i == 1 ? 1 : 2);
    ck_assert_int_eq(cudaMemsetAsync(p, 0, 4, stream), cudaSuccess);
    ck_assert_int_ne(*p, 0);
    cudaFreeHost(_i == 2 ? pinned : NULL);
}
END_TEST

/* Copies of the host's own stream do not hold others back; an event holds its stream's work. */
START_TEST(streams_that_do_not_wait_for_each_other_show) {
    cudaStream_t stream;
    cudaEvent_t half;
    int host = 1, *p = device(8), *q = p + 1;
    with("PLSIM_STREAMS", "late");
    *p = *q = 0;
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaEventCreate(&half), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(p, &host, 4, cudaMemcpyHostToDevice), cudaSuccess);
    if (_i) ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    host = 2;
    ck_assert_int_eq(cudaMemcpyAsync(q, p, 4, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(half, stream), cudaSuccess);
    ck_assert_int_eq(cudaMemsetAsync(q, 0, 4, stream), cudaSuccess);
    ck_assert_int_eq(cudaEventSynchronize(half), cudaSuccess);
    ck_assert_int_eq(*q, _i);
}
END_TEST

START_TEST(an_access_outside_an_allocation_ends_the_process) {
    char host[64] = {0}, *p = device(32);
    if (_i == 0) cudaMemcpyAsync(p + 1, host, 32, cudaMemcpyHostToDevice, NULL);
    if (_i == 1) cudaMemcpyAsync(host, p - 1, 1, cudaMemcpyDeviceToHost, NULL);
    if (_i == 2) cudaMemcpyAsync(host, p, 1, cudaMemcpyHostToDevice, NULL);
    if (_i == 3) cudaMemsetAsync(p + 31, 0, 2, NULL);
    if (_i == 4) cudaMemcpyAsync(p, host, 1, cudaMemcpyDeviceToHost, NULL);
}
END_TEST

/* --- graphs ----------------------------------------------------------------------------------- */

static cudaStream_t begin_capture(void) {
    cudaStream_t stream = NULL;
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    return stream;
}

/* A kernel, a fill and a copy with their arguments as they were when they were written down. */
START_TEST(what_is_captured_runs_when_it_is_replayed) {
    enum { N = 8 };
    int *out = device(N * sizeof *out), *copy = device(N * sizeof *out), *pinned = NULL, n = N;
    size_t nodes = 0;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    ck_assert_int_eq(cudaMallocHost((void **)&pinned, sizeof *pinned), cudaSuccess);
    cudaStream_t stream = begin_capture();
    *pinned = 1;
    smoke_number_on(stream, out, n, 4);
    n = 1;
    ck_assert_int_eq(cudaMemsetAsync(out, 0, sizeof *out, stream), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(out + 1, pinned, sizeof *out, cudaMemcpyHostToDevice, stream),
                     cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(copy, out, N * sizeof *out, cudaMemcpyDeviceToDevice, stream),
                     cudaSuccess);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ck_assert_int_eq(cudaGraphGetNodes(graph, NULL, &nodes), cudaSuccess);
    ck_assert_uint_eq(nodes, 4);
    ck_assert_int_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ck_assert_int_eq(cudaGraphDestroy(graph), cudaSuccess);
    ck_assert_uint_eq(plsim_counters.launches, 0);
    ck_assert_int_eq(copy[7], -1);
    for (int round = 5; round < 7; round++) {
        *pinned = round;
        ck_assert_int_eq(cudaGraphLaunch(exec, stream), cudaSuccess);
        ck_assert_int_eq(copy[0], 0);
        ck_assert_int_eq(copy[1], round);
        ck_assert_int_eq(copy[7], 7);
    }
    ck_assert_uint_eq(plsim_counters.graph_launches, 2);
    ck_assert_uint_eq(plsim_counters.launches, 0);
    ck_assert_int_eq(cudaGraphExecDestroy(exec), cudaSuccess);
    cudaStreamDestroy(stream);
}
END_TEST

static cudaError_t call_while_capturing(int which, cudaStream_t stream) {
    static char host[8], *there;
    cudaEvent_t event = NULL;
    void *p = NULL;
    if (!there) there = device(8);
    ck_assert_int_eq(cudaEventCreate(&event), cudaSuccess);
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    switch (which) {
    case 0:
        return cudaMalloc(&p, 8);
    case 1:
        return cudaStreamSynchronize(stream);
    case 2:
        return cudaDeviceSynchronize();
    case 3:
        return cudaMemcpy(there, host, 8, cudaMemcpyHostToDevice);
    case 4:
        return cudaMemcpyAsync(there, host, 8, cudaMemcpyHostToDevice, stream);
    case 5:
        return cudaEventQuery(event);
    case 6:
        return cudaMallocHost(&p, 8);
    case 7:
        return cudaFree(there);
    case 8:
        return cudaStreamQuery(stream);
    default:
        return cudaMemset(there, 0, 8);
    }
}

START_TEST(what_no_capture_can_stand_spoils_it) {
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    enum cudaStreamCaptureStatus status;
    int *out = device(sizeof *out);
    ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
    ck_assert_int_eq(call_while_capturing(_i, stream), cudaErrorStreamCaptureUnsupported);
    ck_assert_int_eq(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    ck_assert_int_eq(status, cudaStreamCaptureStatusInvalidated);
    (void)cudaGetLastError();
    smoke_number_on(stream, out, 1, 1);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    ck_assert_ptr_null(graph);
    smoke_number_on(stream, out, 1, 1);
    ck_assert_int_eq(*out, 0);
    cudaStreamDestroy(stream);
}
END_TEST

START_TEST(an_event_of_a_capture_cannot_be_waited_for) {
    cudaEvent_t event = NULL;
    cudaGraph_t graph = NULL;
    ck_assert_int_eq(cudaEventCreate(&event), cudaSuccess);
    cudaStream_t stream = begin_capture();
    ck_assert_int_eq(cudaEventRecord(event, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ck_assert_int_eq(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    cudaGraphDestroy(graph);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
}
END_TEST

/* A second stream that waits for an event of the capture is captured, too. 1: the first one does
 * not wait for it in the end; 2: only for what came before its last work; 3: for what is in no
 * capture. */
START_TEST(a_stream_that_waits_for_a_capture_belongs_to_it) {
    static const cudaError_t ends[] = {cudaSuccess, cudaErrorStreamCaptureUnjoined,
                                       cudaErrorStreamCaptureUnjoined,
                                       cudaErrorStreamCaptureInvalidated};
    int *out = device(2 * sizeof *out);
    size_t nodes = 0;
    cudaStream_t other = NULL;
    cudaEvent_t begun = NULL, ended = NULL;
    cudaGraph_t graph = NULL;
    ck_assert_int_eq(cudaStreamCreate(&other), cudaSuccess);
    ck_assert_int_eq(cudaEventCreate(&begun), cudaSuccess);
    ck_assert_int_eq(cudaEventCreate(&ended), cudaSuccess);
    if (_i == 3) ck_assert_int_eq(cudaEventRecord(ended, other), cudaSuccess);
    cudaStream_t stream = begin_capture();
    ck_assert_int_eq(cudaEventRecord(begun, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamWaitEvent(other, begun, 0), cudaSuccess);
    if (_i == 2) ck_assert_int_eq(cudaEventRecord(ended, other), cudaSuccess);
    *out = 0;
    smoke_number_on(other, out, 2, 7);
    ck_assert_int_eq(*out, 0);
    if (_i == 0) ck_assert_int_eq(cudaEventRecord(ended, other), cudaSuccess);
    if (_i != 1)
        ck_assert_int_eq(cudaStreamWaitEvent(stream, ended, 0),
                         _i == 3 ? cudaErrorStreamCaptureIsolation : cudaSuccess);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), ends[_i]);
    if (_i == 0) {
        ck_assert_int_eq(cudaGraphGetNodes(graph, NULL, &nodes), cudaSuccess);
        ck_assert_uint_eq(nodes, 1);
        ck_assert_int_eq(cudaStreamWaitEvent(other, ended, 0), cudaErrorCapturedEvent);
        cudaGraphDestroy(graph);
    }
    cudaEventDestroy(begun);
    cudaEventDestroy(ended);
    cudaStreamDestroy(other);
    cudaStreamDestroy(stream);
}
END_TEST

START_TEST(a_graph_takes_memory_until_it_is_destroyed) {
    size_t before = 0, during = 0, after = 0, total = 0;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int *out = device(sizeof *out);
    with("PLSIM_GRAPH_NODE_BYTES", "1000");
    cudaStream_t stream = begin_capture();
    smoke_number_on(stream, out, 1, 1);
    smoke_number_on(stream, out, 1, 1);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ck_assert_int_eq(cudaMemGetInfo(&before, &total), cudaSuccess);
    ck_assert_int_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ck_assert_int_eq(cudaMemGetInfo(&during, &total), cudaSuccess);
    ck_assert_int_eq(cudaGraphExecDestroy(exec), cudaSuccess);
    ck_assert_int_eq(cudaMemGetInfo(&after, &total), cudaSuccess);
    ck_assert_uint_eq(before - during, 2000);
    ck_assert_uint_eq(after, before);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}
END_TEST

static TCase *facts(Suite *s, const char *name) {
    TCase *tc = tcase_create(name);
    tcase_add_checked_fixture(tc, plsim_restart, NULL);
    suite_add_tcase(s, tc);
    return tc;
}

int main(void) {
    Suite *s = suite_create("cuda.sim");
    TCase *tc = facts(s, "threads");
    tcase_add_loop_test(tc, every_thread_runs_once, 0, 6);
    tcase_add_test(tc, a_kernel_without_barriers_switches_twice_a_block);
    tcase_add_loop_test(tc, a_block_sums_through_shuffles_and_shared_memory, 0, 4);
    tcase_add_loop_test(tc, a_shuffle_reads_the_lane_it_names, 0, 14);
    tcase_add_test(tc, halves_of_a_warp_meet_on_their_own);
    tcase_add_loop_test(tc, a_warp_multiplies_what_a_plain_product_does, 0, 2);
    tcase_add_loop_test_raise_signal(tc, a_mistake_ends_the_process, SIGABRT, 0, 6);
    tcase_add_test(tc, memory_starts_as_nan);
    tcase_add_test(tc, the_reverse_order_shows_a_race);
    tcase_add_test(tc, floats_round_to_the_nearest_even_bfloat16);
    tc = facts(s, "runtime");
    tcase_add_loop_test(tc, a_launch_past_a_limit_is_refused, 0, 7);
    tcase_add_test(tc, a_kernel_opts_into_large_shared_memory);
    tcase_add_test_raise_signal(tc, a_kernel_that_was_forgotten_in_loading_ends_the_process,
                                SIGABRT);
    tcase_add_test(tc, memory_ends_at_the_limit);
    tcase_add_test(tc, a_neighbour_takes_memory_between_two_calls);
    tcase_add_test(tc, a_spoilt_context_stays_spoilt);
    tcase_add_test(tc, an_injected_failure_lasts_as_long_as_asked);
    tcase_add_test(tc, copies_keep_their_bytes);
    tcase_add_loop_test(tc, a_buffer_that_is_used_again_too_early_shows, 0, 2);
    tcase_add_loop_test_raise_signal(tc, a_buffer_that_is_used_again_too_early_shows, SIGABRT, 2,
                                     3);
    tcase_add_loop_test(tc, streams_that_do_not_wait_for_each_other_show, 0, 2);
    tcase_add_loop_test_raise_signal(tc, an_access_outside_an_allocation_ends_the_process, SIGABRT,
                                     0, 5);
    tc = facts(s, "graphs");
    tcase_add_test(tc, what_is_captured_runs_when_it_is_replayed);
    tcase_add_loop_test(tc, what_no_capture_can_stand_spoils_it, 0, 10);
    tcase_add_test(tc, an_event_of_a_capture_cannot_be_waited_for);
    tcase_add_loop_test(tc, a_stream_that_waits_for_a_capture_belongs_to_it, 0, 4);
    tcase_add_test(tc, a_graph_takes_memory_until_it_is_destroyed);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
