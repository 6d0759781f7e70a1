#include "runtime/checkpoint/finite_entry.h"

#include "estimator/base/checked.h"

#include <string.h>

pl_err pl_finite_check(const struct pl_st_file *f, const struct pl_st_entry *e, const void *p,
                       uint64_t first, uint64_t n, struct pl_diag *d) {
    const uint64_t at = pl_finite_scan(e->dtype_name, p, n);
    if (at == n) return PL_ERR_OK;
    pl_err err = pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0,
                            "%s: tensor `%s`: element %llu is not a finite number", f->path,
                            e->name, (unsigned long long)(first + at));
    const char *slash = strrchr(f->path, '/');
    pl_diag_hint(d,
                 "`plimsoll verify %.*s` names what is damaged there; get another copy, or go back "
                 "to a checkpoint before it",
                 slash ? (int)(slash - f->path) : 1, slash ? f->path : ".");
    return err;
}

pl_err pl_finite_read(const struct pl_st_file *f, const struct pl_st_entry *e, void *buf,
                      uint64_t buf_bytes, struct pl_diag *d) {
    uint32_t size;
    const uint64_t bytes = e->end - e->begin;
    if (pl_number_class(e->dtype_name, &size) != PL_NUMBERS_FLOATING) return PL_ERR_OK;
    for (uint64_t at = 0; at < bytes; at += buf_bytes) {
        const uint64_t n = pl_u64_min(buf_bytes, bytes - at);
        PL_TRY(pl_st_read(f, e, at, buf, n, d));
        PL_TRY(pl_finite_check(f, e, buf, at / size, n / size, d));
    }
    return PL_ERR_OK;
}
