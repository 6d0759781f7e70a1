/* base.c - the error table's accessors, diagnostics, checked arithmetic, units. */
#include "estimator/base/checked.h"
#include "estimator/base/diag.h"
#include "estimator/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int exit_status;
    const char *code, *hint;
} err_rows[PL_ERR_COUNT] = {
#define X(name, exit_status, code, hint) {exit_status, code, hint},
    PL_ERR_MAP(X)
#undef X
};

static unsigned err_index(pl_err err) {
    return (unsigned)err < PL_ERR_COUNT ? (unsigned)err : PL_ERR_PLAN_BROKEN;
}

const char *pl_err_code(pl_err err) { return err_rows[err_index(err)].code; }
const char *pl_err_hint(pl_err err) { return err_rows[err_index(err)].hint; }
int pl_err_exit_status(pl_err err) { return err_rows[err_index(err)].exit_status; }

static void diag_fill(struct pl_diag *d, pl_err err, const char *fmt, va_list ap) {
    d->err = err;
    vsnprintf(d->message, sizeof d->message, fmt, ap);
}

pl_err pl_diag_set(struct pl_diag *d, pl_err err, const char *fmt, ...) {
    if (!d || d->err != PL_ERR_OK) return err;
    va_list ap;
    va_start(ap, fmt);
    diag_fill(d, err, fmt, ap);
    va_end(ap);
    return err;
}

pl_err pl_diag_at(struct pl_diag *d, pl_err err, const char *file, uint64_t line, uint64_t column,
                  const char *fmt, ...) {
    if (!d || d->err != PL_ERR_OK) return err;
    va_list ap;
    va_start(ap, fmt);
    diag_fill(d, err, fmt, ap);
    va_end(ap);
    snprintf(d->file, sizeof d->file, "%s", file ? file : "");
    d->line = line;
    d->column = column;
    return err;
}

pl_err pl_host_oom(struct pl_diag *d, const char *what) {
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for %s", what);
}

pl_err pl_err_of_errno(pl_err otherwise) {
    return errno == ENOMEM ? PL_ERR_HOST_OOM : otherwise;
}

void pl_diag_hint(struct pl_diag *d, const char *fmt, ...) {
    if (!d) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->hint, sizeof d->hint, fmt, ap);
    va_end(ap);
}

void pl_diag_begin(struct pl_diag *d) {
    if (d && d->all) *d->all = (struct pl_diag_list){.open = true};
}

pl_err pl_diag_keep(struct pl_diag *d, pl_err err) {
    struct pl_diag_list *all = d ? d->all : NULL;
    if (err == PL_ERR_OK || !all || !all->open || err == PL_ERR_HOST_OOM) return err;
    all->more = all->n == PL_DIAGS_MOST;
    if (all->more) return err;
    all->items[all->n] = *d;
    all->items[all->n++].all = NULL;
    *d = (struct pl_diag){.all = all};
    return PL_ERR_OK;
}

pl_err pl_diag_first(struct pl_diag *d, pl_err err) {
    struct pl_diag_list *all = d ? d->all : NULL;
    if (!all || err == PL_ERR_HOST_OOM) {
        if (all) *all = (struct pl_diag_list){.n = 0};
        return err;
    }
    if (!all->more) err = pl_diag_keep(d, err);
    all->open = false;
    if (!all->n) return err;
    *d = all->items[0];
    d->all = all;
    return d->err;
}

const char *pl_diag_hint_text(const struct pl_diag *d) {
    return d->hint[0] ? d->hint : pl_err_hint(d->err);
}

bool pl_u64_align(uint64_t v, uint64_t align, uint64_t *out) {
    const uint64_t over = v % align;
    return pl_u64_add(v, over ? align - over : 0, out);
}

static const struct {
    const char *name;
    double factor;
} byte_units[] = {
    {"", 1},      {"B", 1},
    {"KB", 1e3},  {"KiB", 1024.0},
    {"MB", 1e6},  {"MiB", 1048576.0},
    {"GB", 1e9},  {"GiB", 1073741824.0},
    {"TB", 1e12}, {"TiB", 1099511627776.0},
};

bool pl_bytes_parse(const char *text, uint64_t *out) {
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false; /* strtod reads it */
    char *end;
    double v = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof byte_units / sizeof *byte_units; i++) {
        if (strcmp(end, byte_units[i].name) != 0) continue;
        v *= byte_units[i].factor;
        if (!isfinite(v) || v < 0 || v >= 18446744073709551616.0) return false;
        *out = (uint64_t)v;
        return true;
    }
    return false;
}

char *pl_bytes_text(uint64_t bytes, char buf[PL_BYTES_TEXT]) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t i = 0;
    for (; v >= 1024 && i + 1 < sizeof names / sizeof *names; i++)
        v /= 1024;
    snprintf(buf, PL_BYTES_TEXT, i == 0 ? "%.0f %s" : v < 100 ? "%.2f %s" : "%.1f %s", v, names[i]);
    return buf;
}

char *pl_count_text(uint64_t n, char buf[PL_COUNT_TEXT]) {
    char raw[24];
    int len = snprintf(raw, sizeof raw, "%llu", (unsigned long long)n);
    int o = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) buf[o++] = ',';
        buf[o++] = raw[i];
    }
    buf[o] = 0;
    return buf;
}
