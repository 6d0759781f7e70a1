/* device_cuda.c - an NVIDIA GPU as a device: its primary context, its streams, one allocation per
 * arena.
 *
 * Host memory that copies pass through is pinned and cut in three: dev->staging, which the
 * checkpoint room converts files in, at its end the mailbox, and the ring of cuda.h. A copy from
 * memory that is not pinned would make the driver stop the stream first (CUDA runtime API, "API
 * synchronization behavior"), and a step may not wait for the host. */
#include "estimator/base/alloc.h"
#include "runtime/comm/engines.h"
#include "runtime/device/available.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/lt.h"
#include "runtime/device/cuda/nvml.h"

#include "estimator/base/checked.h"
#include "estimator/base/nccl_bytes.h"
#include "estimator/card/cards.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_ALIGN 64 /* bytes between uploads of one slot */
#define MAIL_BYTES (PL_MAIL_PLACES * PL_MAIL_BYTES)

/* `what`: the call as a person would name it. */
static pl_err check(cudaError_t e, const char *what, struct pl_diag *d) {
    pl_err err = pl_cuda_error(e);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    return pl_diag_set(d, err, "%s: %s (CUDA error %d)", what, cudaGetErrorString(e), (int)e);
}

/* --- opening --------------------------------------------------------------------------------- */

/* To be called before the first call of CUDA, which reads them. */
static pl_err set_environment(struct pl_diag *d) {
    static const struct {
        const char *name, *value;
        int replaces; /* what was inherited */
    } rows[] = {
        /* NVML, which judged the job before, numbers GPUs by bus; CUDA would put the fastest first.
         */
        {"CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0},
        /* EAGER, which is also what CUDA before 12.2 does when unset, loads every kernel of every
         * library into the context: of PyTorch's 666 MB lazy loading left 287 (its pull request
         * 86509). Ours are loaded at once anyway, by pl_cuda_preload(). */
        {"CUDA_MODULE_LOADING", "LAZY", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (setenv(rows[i].name, rows[i].value, rows[i].replaces))
            return pl_host_oom(d, "the environment");
    return PL_ERR_OK;
}

/* The oldest branch of the driver that this runtime starts with: the release notes of CUDA name 580
 * for 13, and of 12 this program needs 12.1, whose driver passes 32 KiB of arguments, which is 530.
 */
#define OLDEST_DRIVER (CUDART_VERSION >= 13000 ? 580 : 530)

/* The runtime's own text names neither of the two versions. */
static pl_err count_devices(int *count, struct pl_diag *d) {
    const cudaError_t e = cudaGetDeviceCount(count);
    int driver = 0;
    if (e != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver) != cudaSuccess)
        return check(e, "looking for a GPU", d);
    (void)cudaGetLastError();
    return pl_diag_set(d, PL_ERR_NO_DEVICE,
                       "this program was built by CUDA %d.%d and needs driver %d or later; the "
                       "driver of this machine knows CUDA %d.%d (CUDA error %d)",
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, OLDEST_DRIVER,
                       driver / 1000, driver % 1000 / 10, (int)e);
}

static pl_err choose_device(struct pl_cuda *cuda, uint32_t ordinal, struct pl_diag *d) {
    int count = 0;
    pl_err err = count_devices(&count, d);
    if (err == PL_ERR_OK && ordinal >= (uint32_t)count)
        err = pl_diag_set(d, PL_ERR_NO_DEVICE, "cuda:%" PRIu32 " was asked for, CUDA sees %d GPUs",
                          ordinal, count);
    if (err != PL_ERR_OK) return err;
    cuda->ordinal = (int)ordinal;
    return check(cudaSetDevice(cuda->ordinal), "taking the GPU", d);
}

static pl_err read_attributes(struct pl_cuda *cuda, struct pl_diag *d) {
    int major = 0, minor = 0, sm_count = 0, shared = 0, integrated = 0;
    const struct {
        enum cudaDeviceAttr attribute;
        int *out;
    } rows[] = {{cudaDevAttrComputeCapabilityMajor, &major},
                {cudaDevAttrComputeCapabilityMinor, &minor},
                {cudaDevAttrMultiProcessorCount, &sm_count},
                {cudaDevAttrIntegrated, &integrated},
                {cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        PL_TRY(check(cudaDeviceGetAttribute(rows[i].out, rows[i].attribute, cuda->ordinal),
                     "asking the GPU what it is", d));
    cuda->sm = (uint32_t)(major * 10 + minor);
    cuda->sm_count = (uint32_t)sm_count;
    cuda->shared_max = (uint32_t)shared;
    cuda->is_integrated = integrated != 0;
    return pl_card_check_sm("the GPU", cuda->sm, d);
}

static void free_ring(struct pl_cuda *cuda) {
    struct pl_cuda_ring *ring = &cuda->ring;
    for (int i = 0; i < PL_CUDA_RING_SLOTS; i++)
        if (ring->done[i]) (void)cudaEventDestroy(ring->done[i]);
    for (int i = 0; i < PL_MAIL_PLACES; i++)
        if (cuda->mail.done[i]) (void)cudaEventDestroy(cuda->mail.done[i]);
    *ring = (struct pl_cuda_ring){0};
    cuda->mail = (struct pl_cuda_mail){0};
}

static pl_err make_events(cudaEvent_t *events, int n, struct pl_diag *d) {
    for (int i = 0; i < n; i++)
        PL_TRY(check(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming),
                     "making an event", d));
    return PL_ERR_OK;
}

/* Nothing here can be acted upon: what fails is a context that is lost, and goes with the process.
 */
static void cuda_close(struct pl_device *dev) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    if (!cuda) return;
    if (cuda->stream) (void)cudaStreamSynchronize(cuda->stream);
    pl_cuda_copy_stream_close(dev);
    dev->set->close(dev);
    pl_lt_unload(&cuda->lt);
    free_ring(cuda);
    if (dev->staging) (void)cudaFreeHost(dev->staging);
    if (cuda->stream) (void)cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    free(cuda);
    dev->staging = NULL;
    dev->state = NULL;
}

static pl_err cuda_open(struct pl_device *dev, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    struct pl_cuda *cuda = pl_calloc(1, sizeof *cuda);
    if (!cuda) return pl_host_oom(d, "the GPU");
    dev->state = cuda;
    PL_TRY_GOTO(set_environment(d), out);
    PL_TRY_GOTO(choose_device(cuda, dev->ordinal, d), out);
    PL_TRY_GOTO(read_attributes(cuda, d), out);
    PL_TRY_GOTO(check(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                      "making a stream", d),
                out);
    PL_TRY_GOTO(make_events(cuda->ring.done, PL_CUDA_RING_SLOTS, d), out);
    PL_TRY_GOTO(make_events(cuda->mail.done, PL_MAIL_PLACES, d), out);
    err = pl_cuda_copy_stream_open(dev);
    if (err != PL_ERR_OK) pl_diag_set(d, err, "making a second stream failed");
    if (err != PL_ERR_OK) goto out;
    dev->traits = pl_traits_cuda(cuda->sm);
    dev->kernels = dev->set->tables[0];
    dev->groups = dev->set->groups;
    PL_TRY_GOTO(pl_lt_load(&cuda->lt, d), out);
    err = dev->set->open(dev, d);
out:
    if (err != PL_ERR_OK) cuda_close(dev);
    if (err != PL_ERR_DEVICE_LOST) return err;
    /* A GPU that was never had is not lost: drivers refuse one with codes that no table knows. */
    if (d && d->err == PL_ERR_DEVICE_LOST) d->err = PL_ERR_NO_DEVICE;
    return PL_ERR_NO_DEVICE;
}

/* --- memory ---------------------------------------------------------------------------------- */

static uint64_t rounding_of(uint64_t bytes) {
    return pl_u64_div_up(bytes, PL_NCCL_UNIT_BYTES) * PL_NCCL_UNIT_BYTES - bytes;
}

/* Either call waits for the device, so nothing in the stream can still use the memory. */
static void cuda_release(struct pl_device *dev, void *p, uint64_t bytes) {
    struct pl_comm *c = dev->comm;
    if (c && c->ops->give_memory && c->ops->give_memory(c, p))
        dev->rounding_bytes -= rounding_of(bytes);
    else
        (void)pl_cuda_error(cudaFree(p));
}

/* Memory that the GPUs of other ranks can map, where there are such and NCCL gives it. It is zeroed
 * in stream order, like everything that will use it. */
static pl_err cuda_alloc(struct pl_device *dev, uint64_t bytes, void **out, struct pl_diag *d) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    struct pl_comm *c = dev->comm;
    void *p = c && c->ops->take_memory ? c->ops->take_memory(c, bytes) : NULL;
    *out = NULL;
    if (p)
        dev->rounding_bytes += rounding_of(bytes);
    else
        PL_TRY(check(cudaMalloc(&p, bytes), "cudaMalloc", d));
    pl_err err = check(cudaMemsetAsync(p, 0, bytes, cuda->stream), "zeroing an arena", d);
    if (err == PL_ERR_OK)
        *out = p;
    else
        cuda_release(dev, p, bytes);
    return err;
}

/* CUDA does not count, of memory that is the host's, what the page cache would give up (CUDA for
 * Tegra Application Note, "Estimating Total Allocatable Device Memory"). */
static uint64_t allocatable(bool is_integrated, uint64_t available) {
    return is_integrated ? pl_u64_max(available, pl_cpu_available().bytes) : available;
}

static pl_err cuda_free_bytes(struct pl_device *dev, uint64_t *out, struct pl_diag *d) {
    size_t available = 0, total = 0;
    PL_TRY(check(cudaMemGetInfo(&available, &total), "asking for free memory", d));
    *out = allocatable(pl_cuda_of(dev)->is_integrated, available);
    return PL_ERR_OK;
}

/* As NVML prints them: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6". */
static void print_uuid(const cudaUUID_t *uuid, char *out, size_t size) {
    static const char dashes[16] = {[0] = 1, [4] = 1, [6] = 1, [8] = 1, [10] = 1};
    size_t n = (size_t)snprintf(out, size, "GPU");
    for (size_t i = 0; i < sizeof dashes && n + 4 < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%02x", dashes[i] ? "-" : "",
                              (unsigned)(unsigned char)uuid->bytes[i]);
}

/* Code runs on its own architecture and on later ones of the same major number (CUDA C++
 * Programming Guide, "Binary Compatibility"). The build names those that it has code for. */
#ifndef PL_CUDA_CODE
#define PL_CUDA_CODE 80, 90, 100, 120
#endif

static bool cuda_lacks_code(uint32_t sm) {
    static const uint32_t code[] = {PL_CUDA_CODE};
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        if (code[i] / 10 == sm / 10 && code[i] <= sm) return false;
    return true;
}

static pl_err cuda_describe(uint32_t ordinal, struct pl_gpu *out, struct pl_diag *d) {
    struct pl_cuda cuda = {0};
    static struct cudaDeviceProp is;
    size_t available = 0, total = 0;
    int driver = 0;
    PL_TRY(set_environment(d));
    PL_TRY(choose_device(&cuda, ordinal, d));
    PL_TRY(check(cudaGetDeviceProperties(&is, cuda.ordinal), "asking the GPU what it is", d));
    PL_TRY(check(cudaMemGetInfo(&available, &total), "asking for free memory", d));
    PL_TRY(check(cudaDriverGetVersion(&driver), "asking for the version of the driver", d));
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, is.name);
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    print_uuid(&is.uuid, out->uuid, sizeof out->uuid);
    out->sm = (uint32_t)(is.major * 10 + is.minor);
    out->total_bytes = total;
    out->free_bytes = pl_u64_min(total, allocatable(is.integrated != 0, available));
    return PL_ERR_OK;
}

static pl_err cuda_host_alloc(struct pl_device *dev, uint64_t bytes, bool pinned, void **out,
                              struct pl_diag *d) {
    void *p = NULL;
    (void)dev;
    *out = NULL;
    if (pinned) {
        PL_TRY(check(cudaMallocHost(&p, bytes), "pinned host memory", d));
        memset(p, 0, bytes);
    } else if (!(p = pl_host_map(bytes))) {
        return pl_diag_set(d, PL_ERR_DEVICE_OOM, "the system refused %" PRIu64 " bytes: %s", bytes,
                           strerror(errno));
    }
    *out = p;
    return PL_ERR_OK;
}

/* A copy may still be under way, and no promise of cudaFreeHost says that it waits. */
static void cuda_host_release(struct pl_device *dev, void *p, uint64_t bytes, bool pinned) {
    if (pinned) {
        (void)cudaStreamSynchronize(pl_cuda_of(dev)->stream);
        (void)pl_cuda_error(cudaFreeHost(p));
    } else {
        pl_host_unmap(p, bytes);
    }
}

static pl_err cuda_pin(struct pl_device *dev, struct pl_diag *d) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    void *p = NULL;
    PL_TRY(check(cudaMallocHost(&p, dev->traits.pinned_bytes), "pinned host memory", d));
    dev->staging = p;
    dev->staging_bytes = PL_CUDA_STAGING_BYTES - MAIL_BYTES;
    cuda->mail.base = (char *)p + dev->staging_bytes;
    cuda->ring.base = (char *)p + PL_CUDA_STAGING_BYTES;
    cuda->ring.slot_bytes = PL_CUDA_RING_BYTES / PL_CUDA_RING_SLOTS;
    return PL_ERR_OK;
}

/* --- copies ---------------------------------------------------------------------------------- */

static pl_err cuda_sync(struct pl_device *dev) {
    return pl_cuda_error(cudaStreamSynchronize(pl_cuda_of(dev)->stream));
}

/* Room for `bytes` at the front of what is left; the wait at the end of the ring is what keeps the
 * host from running ahead of the device without limit. */
static pl_err take_room(struct pl_cuda *cuda, uint64_t bytes, char **out) {
    struct pl_cuda_ring *ring = &cuda->ring;
    if (!ring->base || bytes > ring->slot_bytes) return PL_ERR_PLAN_BROKEN;
    if (bytes > ring->slot_bytes - ring->used) {
        PL_TRY(pl_cuda_error(cudaEventRecord(ring->done[ring->slot], cuda->stream)));
        ring->in_flight[ring->slot] = true;
        ring->slot = (ring->slot + 1) % PL_CUDA_RING_SLOTS;
        ring->used = 0;
        if (ring->in_flight[ring->slot])
            PL_TRY(pl_cuda_error(cudaEventSynchronize(ring->done[ring->slot])));
        ring->in_flight[ring->slot] = false;
    }
    *out = ring->base + ring->slot * ring->slot_bytes + ring->used;
    ring->used =
        pl_u64_min(ring->slot_bytes, pl_u64_div_up(ring->used + bytes, RING_ALIGN) * RING_ALIGN);
    return PL_ERR_OK;
}

static pl_err cuda_upload(struct pl_device *dev, void *dst, const void *src, uint64_t bytes) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    for (uint64_t at = 0, n; at < bytes; at += n) {
        char *room;
        n = pl_u64_min(bytes - at, cuda->ring.slot_bytes);
        PL_TRY(take_room(cuda, n, &room));
        memcpy(room, (const char *)src + at, n);
        PL_TRY(pl_cuda_error(
            cudaMemcpyAsync((char *)dst + at, room, n, cudaMemcpyHostToDevice, cuda->stream)));
    }
    return PL_ERR_OK;
}

static bool is_staging(const struct pl_device *dev, const void *p, uint64_t bytes) {
    uintptr_t base = (uintptr_t)dev->staging, at = (uintptr_t)p;
    return base && at >= base && at - base <= dev->staging_bytes &&
           bytes <= dev->staging_bytes - (at - base);
}

/* Straight into dev->staging, through the ring elsewhere. */
static pl_err cuda_download(struct pl_device *dev, void *dst, const void *src, uint64_t bytes) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    bool direct = is_staging(dev, dst, bytes);
    for (uint64_t at = 0, n; at < bytes; at += n) {
        char *room = (char *)dst + at;
        n = direct ? bytes : pl_u64_min(bytes - at, cuda->ring.slot_bytes);
        if (!direct) PL_TRY(take_room(cuda, n, &room));
        PL_TRY(pl_cuda_error(cudaMemcpyAsync(room, (const char *)src + at, n,
                                             cudaMemcpyDeviceToHost, cuda->stream)));
        PL_TRY(cuda_sync(dev));
        if (!direct) memcpy((char *)dst + at, room, n);
    }
    return PL_ERR_OK;
}

static bool in_mail(const struct pl_cuda *cuda, uint32_t place, uint64_t at, uint64_t bytes) {
    return cuda->mail.base && place < PL_MAIL_PLACES && at <= PL_MAIL_BYTES &&
           bytes <= PL_MAIL_BYTES - at;
}

static pl_err cuda_post(struct pl_device *dev, uint32_t place, uint64_t at, const void *src,
                        uint64_t bytes) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    if (!in_mail(cuda, place, at, bytes)) return PL_ERR_PLAN_BROKEN;
    PL_TRY(pl_cuda_error(cudaMemcpyAsync(cuda->mail.base + place * PL_MAIL_BYTES + at, src, bytes,
                                         cudaMemcpyDeviceToHost, cuda->stream)));
    return pl_cuda_error(cudaEventRecord(cuda->mail.done[place], cuda->stream));
}

static pl_err cuda_collect(struct pl_device *dev, uint32_t place, void *dst, uint64_t bytes) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    if (!in_mail(cuda, place, 0, bytes)) return PL_ERR_PLAN_BROKEN;
    PL_TRY(pl_cuda_error(cudaEventSynchronize(cuda->mail.done[place])));
    memcpy(dst, cuda->mail.base + place * PL_MAIL_BYTES, bytes);
    return PL_ERR_OK;
}

const struct pl_device_ops pl_device_cuda = {
    .name = "cuda",
    .nccl = &pl_comm_nccl,
    .missing = NULL,
    .oldest_driver = OLDEST_DRIVER,
    .lacks_code = cuda_lacks_code,
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .host_alloc = cuda_host_alloc,
    .host_release = cuda_host_release,
    .pin = cuda_pin,
    .upload = cuda_upload,
    .download = cuda_download,
    .sync = cuda_sync,
    .post = cuda_post,
    .collect = cuda_collect,
    .record_begin = pl_cuda_record_begin,
    .record_end = pl_cuda_record_end,
    .replay = pl_cuda_replay,
    .forget = pl_cuda_forget,
    .copy_stream_begin = pl_cuda_copy_stream_begin,
    .copy_stream_end = pl_cuda_copy_stream_end,
    .copy_stream_await = pl_cuda_copy_stream_await,
    .free_bytes = cuda_free_bytes,
};
