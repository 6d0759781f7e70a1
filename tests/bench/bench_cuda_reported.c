/* bench_cuda_reported.c - faults that others have reported of libraries and drivers, looked for on
 * the GPU at hand. What is printed is what was seen; nothing here fails. */
#include "tests/bench/bench_cuda.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/cuda/products.h"

#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>

/* dW[o,k] = dy[n,o]^T x[n,k] of ones is n everywhere. Products that are split along n lose what
 * is left over by a whole slice (facebookexperimental/triton, pull request 2767), or add slices in
 * bf16 where a row is no multiple of 16 bytes (the same, bitequiv). */
#ifdef PLSIM_EMULATION
enum { TOKENS = 256, WIDE = 48 };
#else
enum { TOKENS = 8192, WIDE = 3584 };
#endif
enum { RANK = 16, WS_BYTES = 32 << 20 };

static const struct {
    uint64_t out, in;
} shapes[] = {{RANK, WIDE}, {WIDE, RANK}, {RANK, WIDE + 1}, {WIDE, WIDE}};
static const uint64_t left_over[] = {1, 7, 33, 63, 65, 127};

#define N(a) (sizeof(a) / sizeof *(a))

struct memory {
    uint16_t *ones; /* [TOKENS, WIDE + 1] */
    float *out;     /* [WIDE, WIDE + 1] */
    void *ws;
    float *host; /* as out */
};

static void fill(struct memory *m) {
    const size_t n = (size_t)TOKENS * (WIDE + 1), n_out = (size_t)WIDE * (WIDE + 1);
    uint16_t *ones = malloc(n * sizeof *ones);
    m->host = malloc(n_out * sizeof *m->host);
    if (!ones || !m->host) exit(1);
    for (size_t i = 0; i < n; i++)
        ones[i] = 0x3F80;
    cuda_must(cudaMalloc((void **)&m->ones, n * sizeof *ones), "memory for ones");
    cuda_must(cudaMalloc((void **)&m->out, n_out * sizeof *m->out), "memory for their product");
    cuda_must(cudaMalloc(&m->ws, WS_BYTES), "memory for cuBLASLt");
    cuda_must(cudaMemcpy(m->ones, ones, n * sizeof *ones, cudaMemcpyHostToDevice), "a copy");
    free(ones);
}

static void give(struct memory *m) {
    (void)cudaFree(m->ones);
    (void)cudaFree(m->out);
    (void)cudaFree(m->ws);
    free(m->host);
}

static struct pl_product product_of_ones(const struct memory *m, uint64_t tokens, int shape) {
    const uint64_t out = shapes[shape].out, in = shapes[shape].in;
    return (struct pl_product){.trans_a = true,
                               .alpha = 1,
                               .a = {m->ones, tokens, out, out, PL_DTYPE_BF16},
                               .b = {m->ones, tokens, in, in, PL_DTYPE_BF16},
                               .c = {m->out, out, in, in, PL_DTYPE_F32},
                               .ws = m->ws,
                               .ws_bytes = WS_BYTES};
}

/* Returns the smallest sum; the number of tokens is right. */
static float worst_of(struct pl_device *dev, const struct memory *m, uint64_t tokens, int shape) {
    const size_t n = (size_t)(shapes[shape].out * shapes[shape].in);
    const struct pl_product g = product_of_ones(m, tokens, shape);
    struct pl_diag d = {0};
    float worst = (float)tokens;
    must(pl_products_run(pl_cuda_of(dev), &g), &d);
    must(dev->ops->sync(dev), &d);
    cuda_must(cudaMemcpy(m->host, m->out, n * sizeof *m->host, cudaMemcpyDeviceToHost), "a copy");
    for (size_t i = 0; i < n; i++)
        if (m->host[i] < worst) worst = m->host[i];
    return worst;
}

static void look_for_lost_terms(struct pl_device *dev, const struct memory *m) {
    int wrong = 0, asked = 0;
    for (int shape = 0; shape < (int)N(shapes); shape++)
        for (size_t i = 0; i < N(left_over); i++, asked++) {
            const uint64_t tokens = TOKENS - left_over[i];
            const float worst = worst_of(dev, m, tokens, shape);
            if (worst == (float)tokens) continue;
            wrong++;
            printf("{\"event\":\"lost\",\"out\":%llu,\"in\":%llu,\"tokens\":%llu,\"sum\":%.9g}\n",
                   (unsigned long long)shapes[shape].out, (unsigned long long)shapes[shape].in,
                   (unsigned long long)tokens, (double)worst);
        }
    printf("{\"event\":\"ones\",\"products\":%d,\"wrong\":%d}\n", asked, wrong);
}

/* cuBLAS 13.3 is reported to refuse the question for an algorithm while a stream captures
 * (mudler/vllm.cpp, issue 1732): a shape that no product had, in a graph that is thrown away. */
static void ask_in_a_capture(struct pl_device *dev, const struct memory *m) {
    const struct pl_product g = product_of_ones(m, TOKENS / 2 - 1, 0);
    struct pl_graph *none = NULL;
    struct pl_diag d = {0};
    must(dev->ops->record_begin(dev), &d);
    const pl_err asked = pl_products_run(pl_cuda_of(dev), &g);
    const pl_err ended = dev->ops->record_end(dev, false, &none);
    printf("{\"event\":\"capture\",\"works\":%s}\n",
           asked == PL_ERR_OK && ended == PL_ERR_OK ? "true" : "false");
}

/* Drivers under Windows give memory of the host where the card has no more, and then everything is
 * slow and nothing fails. */
static void ask_for_too_much(void) {
    size_t available = 0, total = 0;
    void *p = NULL;
    cuda_must(cudaMemGetInfo(&available, &total), "asking for free memory");
    const cudaError_t e = cudaMalloc(&p, total + ((size_t)1 << 30));
    (void)cudaGetLastError();
    if (p) (void)cudaFree(p);
    printf("{\"event\":\"memory\",\"over_commits\":%s}\n", e == cudaSuccess ? "true" : "false");
}

void bench_cuda_reported(void) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    struct memory m = {0};
    must(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &d), &d);
    fill(&m);
    look_for_lost_terms(dev, &m);
    ask_in_a_capture(dev, &m);
    ask_for_too_much();
    give(&m);
    pl_device_close(&dev);
}
