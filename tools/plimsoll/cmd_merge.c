/* cmd_merge.c - `plimsoll merge`: parse, plan, say what it will take, merge. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/units.h"
#include "runtime/merge/merge.h"

#include <string.h>
#include <unistd.h>

static pl_err require(const struct pl_cli *cli, enum pl_cli_flag flag, const char **out,
                      struct pl_diag *d) {
    char name[PL_FLAG_TEXT];
    *out = cli->flag[flag];
    if (*out) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "`merge` needs %s",
                pl_cli_flag_text(pl_cli_flags()[flag].name, name));
    pl_diag_hint(d, "run `plimsoll help merge`");
    return PL_ERR_USAGE;
}

/* A size given to a flag; *out stays when the flag is absent. */
static pl_err read_size(const struct pl_cli *cli, enum pl_cli_flag flag, uint64_t *out,
                        struct pl_diag *d) {
    char name[PL_FLAG_TEXT];
    const char *text = cli->flag[flag];
    if (!text) return PL_ERR_OK;
    const bool bare = strspn(text, "0123456789.") == strlen(text);
    if (pl_bytes_parse(text, out) && *out > 0 && !(bare && *out < PL_BARE_BYTES_LEAST))
        return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_USAGE, "%s wants a size such as 64MiB, not `%.80s`",
                       pl_cli_flag_text(pl_cli_flags()[flag].name, name), text);
}

static enum pl_dtype dtype_named(const char *name) {
    for (int i = 0; name && i < PL_DTYPE_COUNT; i++)
        if (strcmp(pl_dtype_name((enum pl_dtype)i), name) == 0) return (enum pl_dtype)i;
    return PL_DTYPE_COUNT;
}

/* A model or a file, and one of them. */
static pl_err read_output(const struct pl_cli *cli, struct pl_merge_request *r, struct pl_diag *d) {
    r->gguf = cli->flag[PL_FLAG_GGUF];
    if (!r->gguf) return require(cli, PL_FLAG_OUTPUT, &r->output, d);
    if (!cli->flag[PL_FLAG_OUTPUT]) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_USAGE, "--output and --gguf cannot be given together");
}

static pl_err read_request(const struct pl_cli *cli, struct pl_merge_request *r,
                           struct pl_diag *d) {
    PL_TRY(require(cli, PL_FLAG_MODEL, &r->model, d));
    PL_TRY(require(cli, PL_FLAG_ADAPTER, &r->adapter, d));
    r->dtype = dtype_named(cli->flag[PL_FLAG_DTYPE]);
    PL_TRY(read_output(cli, r, d));
    PL_TRY(read_size(cli, PL_FLAG_SHARD_SIZE, &r->shard_bytes, d));
    return read_size(cli, PL_FLAG_MEMORY, &r->budget_bytes, d);
}

struct display {
    FILE *out;
    unsigned shown; /* percent; 101 = nothing yet */
};

static void show(void *ctx, uint64_t done_bytes, uint64_t total_bytes) {
    struct display *x = ctx;
    char done[PL_BYTES_TEXT], total[PL_BYTES_TEXT];
    unsigned percent = (unsigned)((double)done_bytes / (double)total_bytes * 100);
    if (percent == x->shown) return;
    x->shown = percent;
    fprintf(x->out, "\r  %3u%%  %s of %s \033[K", percent, pl_bytes_text(done_bytes, done),
            pl_bytes_text(total_bytes, total));
    fflush(x->out);
}

static void print_plan(const struct pl_merge *m, FILE *out) {
    char all[PL_BYTES_TEXT], total[PL_BYTES_TEXT];
    const struct pl_adapter_config *c = &m->files.config;
    fprintf(out, "%s %u matrices, rank %llu, scale %g, into %s of %s\n",
            m->request.gguf ? "exporting the adapters of" : "merging", m->files.modules,
            (unsigned long long)c->r, c->scale, pl_bytes_text(m->total_bytes, total),
            pl_dtype_name(m->dtype));
    fprintf(out, "planned %s (%llu bytes) of buffers, independent of the depth\n",
            pl_bytes_text(m->planned.plan->arena_bytes, all),
            (unsigned long long)m->planned.plan->arena_bytes);
}

static pl_err print_result(const struct pl_cli *cli, const struct pl_merge *m, struct pl_diag *d) {
    char bytes[PL_BYTES_TEXT], allocated[PL_BYTES_TEXT];
    const char *output = m->request.gguf ? m->request.gguf : m->request.output;
    if (pl_cli_has(cli, PL_FLAG_JSON))
        return pl_cli_print_json(
            json_pack("{s:o, s:s, s:I, s:I, s:f, s:I, s:I, s:I}", "output",
                      pl_cli_json_string(output), "dtype", pl_dtype_name(m->dtype),
                      "merged_matrices", (json_int_t)m->files.modules, "lora_r",
                      (json_int_t)m->files.config.r, "scale", m->files.config.scale, "weight_bytes",
                      (json_int_t)m->total_bytes, "planned_bytes",
                      (json_int_t)m->planned.plan->arena_bytes, "allocated_bytes",
                      (json_int_t)m->allocated_bytes),
            d);
    if (!pl_cli_has(cli, PL_FLAG_QUIET))
        fprintf(stderr, "allocated %s, equal to the byte; %s in %s\n",
                pl_bytes_text(m->allocated_bytes, allocated), pl_bytes_text(m->total_bytes, bytes),
                output);
    return PL_ERR_OK;
}

static pl_err merge(const struct pl_cli *cli, const volatile sig_atomic_t *stop, struct pl_merge *m,
                    struct pl_diag *d) {
    bool quiet = pl_cli_has(cli, PL_FLAG_QUIET);
    struct display display = {stderr, 101};
    struct pl_merge_request request = {.stop = stop};
    PL_TRY(read_request(cli, &request, d));
    if (isatty(STDERR_FILENO) && !quiet && !pl_cli_has(cli, PL_FLAG_NO_PROGRESS)) {
        request.progress = show;
        request.progress_ctx = &display;
    }
    pl_err err = pl_merge_init(m, &request, d);
    pl_cli_print_notes(cli, &m->notes);
    if (m->planned.plan && !quiet) print_plan(m, stderr);
    if (err != PL_ERR_OK) return err;
    err = pl_merge_run(m, d);
    if (display.shown <= 100) fputs("\r\033[K", stderr);
    return err == PL_ERR_OK ? print_result(cli, m, d) : err;
}

int pl_cmd_merge(const struct pl_cli *cli) {
    struct pl_diag d = {0};
    struct pl_merge m = {0};
    const volatile sig_atomic_t *stop = pl_cli_catch_signals();
    pl_cli_outlive_readers();
    pl_err err = merge(cli, stop, &m, &d);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    pl_merge_finish(&m);
    return err == PL_ERR_INTERRUPTED ? 128 + (int)*stop : status;
}
