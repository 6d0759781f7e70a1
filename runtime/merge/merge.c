/* merge.c - resolve, open, plan, refuse or reserve, stream. */
#include "runtime/merge/merge.h"

#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"
#include "estimator/base/units.h"
#include "estimator/find/find.h"
#include "estimator/program/emit/merge_program.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/gguf_adapter.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/plain_names.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/kernels/back_ends.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pl_err find_model(struct pl_merge *m, struct pl_diag *d) {
    PL_TRY(pl_find_model(NULL, m->request.model, &m->notes, &m->ref, d));
    if (m->ref.weights_dir) PL_TRY(pl_save_set_settle(m->ref.weights_dir, d));
    PL_TRY(pl_model_read(m->ref.config, &m->model, d));
    if (m->request.gguf) return PL_ERR_OK;
    if (!pl_codes_are_values(m->model.codes)) {
        pl_diag_set(d, PL_ERR_MODEL_UNSUPPORTED, "the weights of `%s` are 4-bit codes",
                    m->request.model);
        pl_diag_hint(d, "merge into the unquantised model of the same name");
        return PL_ERR_MODEL_UNSUPPORTED;
    }
    if (m->ref.weights_dir) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_MODEL_WEIGHTS, "the weights of `%s` are not on this machine",
                m->request.model);
    pl_diag_hint(d, "download them into the hub cache or a directory");
    return PL_ERR_MODEL_WEIGHTS;
}

static pl_err plan(struct pl_merge *m, uint64_t stretch, struct pl_diag *d) {
    const struct pl_traits traits = pl_traits_cpu(pl_cpu_count());
    const struct pl_job_shape shape = {.mode = PL_MODE_LORA,
                                       .lora_r = m->files.config.r,
                                       .lora_scale = m->files.config.scale,
                                       .lora_targets = m->files.targets,
                                       .save = true,
                                       .stretch = stretch};
    pl_planned_finish(&m->planned);
    if (m->request.gguf)
        PL_TRY(
            pl_program_create_adapter_export(&m->model, &shape, &traits, &m->planned.program, d));
    else
        PL_TRY(pl_program_create_merge(&m->model, &shape, &traits, &m->planned.program, d));
    PL_TRY(pl_plan_create(m->planned.program, &m->planned.plan, d));
    return pl_plan_check(m->planned.plan, d);
}

/* Under a budget the stretches are halved until the plan fits: in the end A and a row are left. */
static pl_err plan_within_budget(struct pl_merge *m, struct pl_diag *d) {
    char needs[PL_BYTES_TEXT], has[PL_BYTES_TEXT];
    uint64_t budget = m->request.budget_bytes, bytes = 0;
    for (uint64_t stretch = PL_MERGE_STRETCH; stretch; stretch /= 2) {
        PL_TRY(plan(m, stretch, d));
        bytes = m->planned.plan->arena_bytes;
        if (!budget || bytes <= budget) return PL_ERR_OK;
    }
    pl_diag_set(d, PL_ERR_DOES_NOT_FIT,
                "merging needs %s (%llu bytes) at the least, --memory allows %s",
                pl_bytes_text(bytes, needs), (unsigned long long)bytes, pl_bytes_text(budget, has));
    pl_diag_hint(d, "give --memory at least %llu bytes", (unsigned long long)bytes);
    return PL_ERR_DOES_NOT_FIT;
}

pl_err pl_merge_init(struct pl_merge *m, const struct pl_merge_request *request,
                     struct pl_diag *d) {
    struct pl_windows *const written = request->gguf ? &m->files.matrices : &m->files.weights;
    const bool as_base = request->dtype == PL_DTYPE_COUNT;
    *m = (struct pl_merge){.request = *request};
    PL_TRY(find_model(m, d));
    PL_TRY(pl_merge_files_open(&m->files, &m->model, request->gguf ? NULL : m->ref.weights_dir,
                               request->adapter, d));
    pl_plain_names_note(&m->files.weights, &m->files.base, &m->notes);
    pl_plain_names_note(&m->files.matrices, &m->files.adapter, &m->notes);
    m->total_bytes =
        pl_windows_set_dtype(written, request->gguf && as_base ? PL_DTYPE_F32 : request->dtype);
    m->dtype = written->items[0].dtype;
    return plan_within_budget(m, d);
}

static pl_err open_device(struct pl_merge *m, struct pl_diag *d) {
    const struct pl_plan *p = m->planned.plan;
    const struct pl_arena none = {0};
    uint64_t budget = m->request.budget_bytes ? m->request.budget_bytes : UINT64_MAX;
    PL_TRY(pl_device_open(&pl_back_end_cpu_fp32, m->planned.program->traits.threads, budget,
                          &m->device, d));
    PL_TRY(pl_arena_reserve(m->device, p->batch_bytes, "merge arena", &m->arena, d));
    PL_TRY(pl_exec_init(&m->exec, p, m->device, d));
    return pl_exec_bind(&m->exec, &none, &m->arena, d);
}

static void *address(const struct pl_merge *m, enum pl_role role, uint32_t row, uint64_t cols) {
    uint32_t id = pl_program_find_merge(m->planned.program, role, row, cols);
    return id == PL_NONE ? NULL : pl_exec_address(&m->exec, id);
}

static struct pl_merge_buffers buffers(void *ctx, uint32_t row, uint64_t cols) {
    const struct pl_merge *m = ctx;
    uint32_t values = pl_program_find_merge(m->planned.program, PL_ROLE_MERGE_VALUES, row, cols);
    return (struct pl_merge_buffers){.raw = address(m, PL_ROLE_MERGE_RAW, row, cols),
                                     .values = address(m, PL_ROLE_MERGE_VALUES, row, cols),
                                     .a = address(m, PL_ROLE_MERGE_A, row, cols),
                                     .b = address(m, PL_ROLE_MERGE_B, row, cols),
                                     .elements =
                                         m->planned.program->tensors[values].bytes / sizeof(float)};
}

static pl_err multiply(void *ctx, uint32_t row, uint64_t cols, uint64_t n, struct pl_diag *d) {
    struct pl_merge *m = ctx;
    const struct pl_program *p = m->planned.program;
    const uint32_t values = pl_program_find_merge(p, PL_ROLE_MERGE_VALUES, row, cols);
    m->exec.batch.n_tokens = n;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (op->kind == PL_OP_LINEAR_DX && op->out[PL_LINEAR_DX_OUT_DX].id == values)
            return pl_exec_run(&m->exec, i, 1, d);
    }
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "no product was planned for row %u", row);
}

static pl_err advance(void *ctx, uint64_t bytes, struct pl_diag *d) {
    struct pl_merge *m = ctx;
    const struct pl_merge_request *r = &m->request;
    m->done_bytes += bytes;
    if (r->progress) r->progress(r->progress_ctx, m->done_bytes, m->total_bytes);
    if (!r->stop || !*r->stop) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_INTERRUPTED, "stopped by signal %d; nothing was written", (int)*r->stop);
    pl_diag_hint(d, "the same command starts over");
    return PL_ERR_INTERRUPTED;
}

static bool is_dot(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* A directory that holds anything may be a model somebody needs. */
static pl_err check_empty(const char *path, bool settled, struct pl_diag *d) {
    DIR *dir = opendir(path);
    if (!dir)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), path, 0, 0,
                          "cannot list %s: %s", path, strerror(errno));
    const struct dirent *e;
    errno = 0;
    while ((e = readdir(dir)) && (is_dot(e->d_name) || pl_model_is_temporary(e->d_name)))
        continue;
    pl_err err = PL_ERR_OK;
    if (!e && errno)
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), path, 0, 0,
                         "cannot list %s: %s", path, strerror(errno));
    if (e) {
        err = pl_diag_set(d, PL_ERR_USAGE, "%s is not empty: it holds %.60s", path, e->d_name);
        pl_diag_hint(d, settled ? "it is complete: an interrupted save there has been finished; to "
                                  "write another, name a new directory with --output"
                                : "name a new directory with --output");
    }
    closedir(dir);
    return err;
}

static bool is_temporary(const char *name, const void *unused) {
    (void)unused;
    return pl_model_is_temporary(name);
}

/* Cleans a directory that existed before: files of a merge that was killed are completed if they
 * were at that point, and else removed. */
static pl_err clear_directory(const struct pl_merge *m, struct pl_diag *d) {
    const char *path = m->request.output;
    bool unfinished = pl_save_set_check(path, NULL) != PL_ERR_OK;
    PL_TRY(pl_save_set_begin(path, d));
    if (m->request.replace) return PL_ERR_OK;
    PL_TRY(check_empty(path, unfinished, d));
    return pl_dir_clear(path, is_temporary, NULL, d);
}

static pl_err make_directory(struct pl_merge *m, struct pl_diag *d) {
    const char *path = m->request.output;
    enum pl_there there = pl_look_for(path);
    if (there == PL_THERE_UNKNOWN)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), path, 0, 0,
                          "cannot look for %s: %s", path, strerror(errno));
    if (there == PL_NOT_THERE) {
        PL_TRY(pl_dir_create(m->request.output, d));
        m->made_directory = true;
        PL_TRY(pl_dir_sync_parent(m->request.output, d));
    }
    PL_TRY(pl_dir_lock(m->request.output, &m->lock, d));
    m->locks = true;
    return there == PL_THERE ? clear_directory(m, d) : PL_ERR_OK;
}

/* M3. config.json first: what is left when this is cut short is taken for no model. */
static void remove_output(const struct pl_merge *m) {
    char *config = pl_path_join(m->request.output, "config.json");
    if (config) (void)pl_tree_remove(config, NULL);
    (void)pl_tree_remove(m->request.output, NULL);
    free(config);
}

static pl_err write_model(struct pl_merge *m, const struct pl_merge_work *work, struct pl_diag *d) {
    char *read = NULL, *config = NULL;
    uint64_t bytes;
    PL_TRY(pl_model_read_text(m->ref.config, &read, &bytes, d));
    config = pl_model_config_text(read, m->dtype, m->files.unties);
    free(read);
    if (!config) return pl_host_oom(d, "config.json");
    /* Companion files of the adapter are preferred to those of the base. */
    const struct pl_companions companions = {.dirs = {m->request.adapter, m->ref.weights_dir}};
    const struct pl_merge_target target = {m->request.output, config, &companions,
                                           m->request.shard_bytes ? m->request.shard_bytes
                                                                  : PL_SHARD_BYTES};
    pl_err err = pl_merge_files_write(&m->files, work, &target, d);
    free(config);
    return err;
}

/* M2 */
static pl_err check_books(struct pl_merge *m, struct pl_diag *d) {
    m->allocated_bytes = m->device->peak_bytes;
    if (m->allocated_bytes == m->planned.plan->arena_bytes && m->device->allocations == 1)
        return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "planned %llu bytes, allocated %llu",
                       (unsigned long long)m->planned.plan->arena_bytes,
                       (unsigned long long)m->allocated_bytes);
}

pl_err pl_merge_run(struct pl_merge *m, struct pl_diag *d) {
    const struct pl_merge_work work = {buffers, multiply, advance, m};
    const char *gguf = m->request.gguf;
    pl_err err = gguf ? PL_ERR_OK : make_directory(m, d);
    if (err == PL_ERR_OK) err = open_device(m, d);
    if (err == PL_ERR_OK) err = check_books(m, d);
    if (err == PL_ERR_OK)
        err = gguf ? pl_gguf_write_adapter(&m->files, &m->model, &work, gguf, m->dtype, d)
                   : write_model(m, &work, d);
    if (err == PL_ERR_OK) err = check_books(m, d);
    if (err != PL_ERR_OK && m->made_directory) remove_output(m);
    return err;
}

void pl_merge_finish(struct pl_merge *m) {
    pl_exec_finish(&m->exec);
    if (m->device) pl_arena_release(m->device, &m->arena);
    pl_device_close(&m->device);
    pl_planned_finish(&m->planned);
    pl_merge_files_close(&m->files);
    pl_model_ref_finish(&m->ref);
    pl_text_finish(&m->notes);
    if (m->locks) close(m->lock);
    *m = (struct pl_merge){0};
}
