#include "runtime/admit/disk.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "runtime/admit/admission.h"
#include "runtime/admit/preflight_files.h"
#include "runtime/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Returns the free bytes of the directory, or of the nearest one above it that exists; 0: unknown.
 */
static uint64_t free_bytes(const char *dir) {
    struct statvfs fs;
    char *path = pl_strdup(dir);
    int found = path ? statvfs(path, &fs) : -1;
    for (char *slash; path && found != 0 && (slash = strrchr(path, '/')) && slash != path;) {
        *slash = 0;
        found = statvfs(path, &fs);
    }
    if (path && found != 0) found = statvfs(*path == '/' ? "/" : ".", &fs);
    free(path);
    return found == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
}

/* The most that may lie there at a time together with those of before: the oldest goes only when
 * the newest is there. */
static uint64_t more_checkpoints(const struct pl_preflight *pf, uint64_t there) {
    const struct pl_job *job = pf->job;
    const uint64_t left =
        pf->total_steps - pl_u64_min(pf->total_steps, pf->files.resume_state.step);
    const uint64_t limit = /* the newest and the best */
        pl_u64_max(job->save_total_limit, job->load_best_model_at_end ? 2 : 1);
    if (!job->save_steps) return 0;
    return pl_u64_min(pl_u64_div_up(left, job->save_steps), 1 + limit - pl_u64_min(there, limit));
}

/* The bytes of the export of save_merged: the whole model, in the type that config.json says it is
 * stored in; the files of the base are not opened for this. */
static uint64_t merged_bytes(const struct pl_preflight *pf) {
    bool wide = strcmp(pf->model.torch_dtype, "float32") == 0;
    uint64_t bytes;
    if (!pf->job->save_merged || !pl_mode_adapts(pf->job->mode)) return 0;
    return pl_u64_mul(pl_model_param_count(&pf->model),
                      pl_dtype_bytes(wide ? PL_DTYPE_F32 : PL_DTYPE_BF16), &bytes)
               ? bytes
               : UINT64_MAX;
}

pl_err pl_disk_note(struct pl_preflight *pf, struct pl_diag *d) {
    char need[PL_BYTES_TEXT], weights[PL_BYTES_TEXT], each[PL_BYTES_TEXT], left[PL_BYTES_TEXT];
    char export[PL_BYTES_TEXT];
    struct pl_save_bytes save;
    uint64_t there, needed;
    if (pf->job->device == PL_DEVICE_NULL || pf->job->inference) return PL_ERR_OK;
    const uint64_t free_there = free_bytes(pf->job->output_dir);
    if (!free_there) return PL_ERR_OK;
    PL_TRY(pl_checkpoint_count(pf->job->output_dir, &there, d));
    PL_TRY(pl_checkpoint_bytes(pl_preflight_whole(pf), &save, d));
    const uint64_t checkpoint = save.weights + save.states, n = more_checkpoints(pf, there);
    const uint64_t merged = merged_bytes(pf);
    if (!pl_u64_mul(n, checkpoint, &needed) || !pl_u64_add(needed, save.weights, &needed) ||
        !pl_u64_add(needed, merged, &needed))
        needed = UINT64_MAX;
    if (needed <= free_there) return PL_ERR_OK;
    pl_text_addf(
        &pf->notes,
        "output_dir may come to need %s (weights %s, %s%s%llu checkpoint%s of %s each), and "
        "%s are free there\n",
        pl_bytes_text(needed, need), pl_bytes_text(save.weights, weights),
        merged ? pl_bytes_text(merged, export) : "", merged ? " merged, " : "",
        (unsigned long long)n, n == 1 ? "" : "s", pl_bytes_text(checkpoint, each),
        pl_bytes_text(free_there, left));
    return PL_ERR_OK;
}
