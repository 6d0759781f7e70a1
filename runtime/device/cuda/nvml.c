/* Types and numbers as NVIDIA documents them in the NVML API reference; they are declared here
 * because the header comes with a toolkit that a build may not have. */
#include "runtime/device/cuda/nvml.h"

#include "estimator/base/checked.h"
#include "runtime/device/available.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3 };

struct memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct process { /* nvmlProcessInfo_v2_t */
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};
#define PROCESS_UNKNOWN UINT64_MAX /* used, where the driver does not count by process */
#define MAX_PROCESSES   256
#define MAX_SLICES      16

typedef void *gpu_handle;

/* X(result, name, symbol, parameters) */
#define FUNCTIONS(X)                                                                               \
    X(int, init, "nvmlInit_v2", (void))                                                            \
    X(int, shutdown, "nvmlShutdown", (void))                                                       \
    X(int, driver, "nvmlSystemGetDriverVersion", (char *, unsigned))                               \
    X(int, count, "nvmlDeviceGetCount_v2", (unsigned *))                                           \
    X(int, by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned, gpu_handle *))                    \
    X(int, by_uuid, "nvmlDeviceGetHandleByUUID", (const char *, gpu_handle *))                     \
    X(int, mig_mode, "nvmlDeviceGetMigMode", (gpu_handle, unsigned *, unsigned *))                 \
    X(int, slice, "nvmlDeviceGetMigDeviceHandleByIndex", (gpu_handle, unsigned, gpu_handle *))     \
    X(int, whole, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", (gpu_handle, gpu_handle *))      \
    X(int, name, "nvmlDeviceGetName", (gpu_handle, char *, unsigned))                              \
    X(int, uuid, "nvmlDeviceGetUUID", (gpu_handle, char *, unsigned))                              \
    X(int, memory, "nvmlDeviceGetMemoryInfo", (gpu_handle, struct memory *))                       \
    X(int, capability, "nvmlDeviceGetCudaComputeCapability", (gpu_handle, int *, int *))           \
    X(int, processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                   \
      (gpu_handle, unsigned *, struct process *))                                                  \
    X(const char *, error_text, "nvmlErrorString", (int))

struct nvml {
    void *library;
#define X(result, name, symbol, parameters) result(*name) parameters;
    FUNCTIONS(X)
#undef X
};

/* ISO C has no cast from object to function pointer; POSIX says the bits are the same. */
static bool find_symbol(void *library, const char *symbol, void *function) {
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static pl_err failed(const struct nvml *n, int code, const char *what, struct pl_diag *d) {
    if (code == NVML_SUCCESS) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_NO_DEVICE, "the NVIDIA driver refused %s: %s", what,
                       n->error_text(code));
}

static const char *library_name(void) {
    const char *given = getenv("PLIMSOLL_NVML");
    return given && *given ? given : "libnvidia-ml.so.1";
}

bool pl_nvml_is_there(void) {
    void *library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library != NULL;
}

static pl_err load(struct nvml *n, struct pl_diag *d) {
    const char *path = library_name();
    n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) return pl_diag_set(d, PL_ERR_NO_DEVICE, "no NVIDIA driver: %s", dlerror());
    bool all = true;
#define X(result, name, symbol, parameters) all = find_symbol(n->library, symbol, &n->name) && all;
    FUNCTIONS(X)
#undef X
    if (!all) return pl_diag_set(d, PL_ERR_NO_DEVICE, "%s is too old", path);
    return failed(n, n->init(), "to answer", d);
}

/* --- which GPU ------------------------------------------------------------------------------- */

/* Entry `ordinal` of a list such as "2,0" or "GPU-8932f937,GPU-4f". CUDA stops at the first entry
 * that names no GPU; so an entry of a kind not known here ends the list too. */
static bool visible_entry(const char *list, uint32_t ordinal, char *out, size_t size) {
    for (; ordinal; ordinal--) {
        list = strchr(list, ',');
        if (!list) return false;
        list++;
    }
    size_t n = strcspn(list, ",");
    if (n == 0 || n >= size) return false;
    memcpy(out, list, n);
    out[n] = 0;
    return true;
}

static bool is_number(const char *s) {
    return *s && s[strspn(s, "0123456789")] == 0 && strlen(s) <= 4;
}

/* A UUID may be given by its beginning. */
static bool has_uuid(const struct nvml *n, gpu_handle gpu, const char *beginning) {
    char uuid[96] = "";
    return n->uuid(gpu, uuid, sizeof uuid) == NVML_SUCCESS &&
           strncmp(uuid, beginning, strlen(beginning)) == 0;
}

/* CUDA sees the first slice of a GPU that is cut into slices (MIG User Guide, "CUDA Device
 * Enumeration"), and what it has only the slice can tell. Numbers of slices that went stay free. */
static pl_err choose_slice(const struct nvml *n, gpu_handle *gpu, struct pl_diag *d) {
    unsigned now = 0, next = 0;
    gpu_handle slice = NULL;
    if (n->mig_mode(*gpu, &now, &next) != NVML_SUCCESS || !now) return PL_ERR_OK;
    for (unsigned i = 0; i < MAX_SLICES; i++) {
        if (n->slice(*gpu, i, &slice) != NVML_SUCCESS) continue;
        *gpu = slice;
        return PL_ERR_OK;
    }
    return pl_diag_set(d, PL_ERR_NO_DEVICE, "the GPU is in MIG mode and has no slice");
}

static pl_err find_visible(const struct nvml *n, uint32_t count, uint32_t ordinal, gpu_handle *out,
                           struct pl_diag *d) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char entry[96] = "";
    uint32_t index = ordinal;
    bool known = !visible || visible_entry(visible, ordinal, entry, sizeof entry);
    if (visible && known && is_number(entry)) index = (uint32_t)strtoul(entry, NULL, 10);
    if (visible && known && strncmp(entry, "MIG-", 4) == 0)
        return failed(n, n->by_uuid(entry, out), "the slice that CUDA_VISIBLE_DEVICES names", d);
    if (visible && known && !is_number(entry)) {
        for (index = 0; index < count; index++)
            if (n->by_index(index, out) == NVML_SUCCESS && has_uuid(n, *out, entry)) break;
    }
    if (known && index < count) {
        PL_TRY(failed(n, n->by_index(index, out), "access to the GPU", d));
        return choose_slice(n, out, d);
    }
    return pl_diag_set(d, PL_ERR_NO_DEVICE, "cuda:%" PRIu32 " is not among the %" PRIu32 " GPUs%s",
                       ordinal, count, visible ? " that CUDA_VISIBLE_DEVICES leaves" : "");
}

/* --- what it has ----------------------------------------------------------------------------- */

/* Inside a container the driver may see other process numbers than we do: then nothing is found. */
static uint64_t own_bytes(const struct nvml *n, gpu_handle gpu) {
    struct process list[MAX_PROCESSES];
    unsigned count = MAX_PROCESSES;
    uint64_t bytes = 0;
    if (n->processes(gpu, &count, list) != NVML_SUCCESS) return 0;
    for (unsigned i = 0; i < count; i++)
        if (list[i].pid == (unsigned)getpid() && list[i].used != PROCESS_UNKNOWN)
            bytes += list[i].used;
    return bytes;
}

/* A GPU whose memory is the host's, as of GB10, has no figure of its own (DGX Spark User Guide,
 * "Known Issues"): it can take what the host can give. */
static pl_err ask_memory(const struct nvml *n, gpu_handle gpu, struct pl_gpu *out,
                         struct pl_diag *d) {
    struct memory m = {0};
    const int code = n->memory(gpu, &m);
    if (code == NVML_ERROR_NOT_SUPPORTED) {
        out->total_bytes = pl_cpu_installed();
        out->free_bytes = pl_u64_min(pl_cpu_available().bytes, out->total_bytes);
        return PL_ERR_OK;
    }
    out->total_bytes = m.total;
    out->free_bytes = m.free;
    return failed(n, code, "the memory of the GPU", d);
}

static pl_err describe(const struct nvml *n, gpu_handle gpu, struct pl_gpu *out,
                       struct pl_diag *d) {
    gpu_handle whole = gpu; /* slices are not asked for their capability */
    int major = 0, minor = 0;
    if (n->whole(gpu, &whole) != NVML_SUCCESS) whole = gpu;
    PL_TRY(failed(n, n->driver(out->driver, sizeof out->driver), "its version", d));
    PL_TRY(failed(n, n->name(gpu, out->name, sizeof out->name), "the name of the GPU", d));
    PL_TRY(failed(n, n->uuid(gpu, out->uuid, sizeof out->uuid), "the UUID of the GPU", d));
    PL_TRY(ask_memory(n, gpu, out, d));
    PL_TRY(failed(n, n->capability(whole, &major, &minor), "the compute capability", d));
    out->sm = (uint32_t)(major * 10 + minor);
    out->process_bytes = own_bytes(n, gpu);
    return PL_ERR_OK;
}

pl_err pl_nvml_query(uint32_t ordinal, struct pl_gpu *out, struct pl_diag *d) {
    struct nvml n = {0};
    gpu_handle gpu = NULL;
    unsigned count = 0;
    *out = (struct pl_gpu){0};
    pl_err err = load(&n, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(failed(&n, n.count(&count), "the number of GPUs", d), shutdown);
    PL_TRY_GOTO(find_visible(&n, count, ordinal, &gpu, d), shutdown);
    err = describe(&n, gpu, out, d);
shutdown:
    n.shutdown();
out:
    if (n.library) dlclose(n.library);
    return err;
}
