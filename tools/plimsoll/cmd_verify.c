/* cmd_verify.c - `plimsoll verify`: a row a file, and whether any of them is damaged. */
#include "tools/plimsoll/cli.h"

#include "estimator/config/safe_text.h"
#include "estimator/base/units.h"
#include "runtime/checkpoint/verify.h"

#include <string.h>

static json_t *text_or_null(const char *text) {
    return text ? pl_cli_json_string(text) : json_null();
}

static json_t *file_json(const struct pl_verify_file *f) {
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:b, s:o, s:o}", "path",
                     pl_cli_json_string(f->path), "bytes", (json_int_t)f->bytes, "tensors",
                     (json_int_t)f->tensors, "not_floating", (json_int_t)f->not_floating,
                     "unchecked", (json_int_t)f->unchecked, "digest", f->digested ? 1 : 0,
                     "not_compared", text_or_null(f->not_compared), "problem",
                     text_or_null(f->problem));
}

static json_t *answer(const struct pl_verify *v) {
    json_t *files = json_array();
    bool whole = files != NULL;
    for (uint32_t i = 0; i < v->n; i++)
        whole = json_array_append_new(files, file_json(&v->files[i])) == 0 && whole;
    if (whole) return json_pack("{s:o, s:I}", "files", files, "problems", (json_int_t)v->problems);
    json_decref(files);
    return NULL;
}

/* Appends the findings about the numbers of one file only. */
static void add_numbers(struct pl_text *out, const struct pl_verify_file *f) {
    const uint64_t finite = f->tensors - f->not_floating - f->unchecked;
    pl_text_addf(out, ", %llu tensors", (unsigned long long)f->tensors);
    if (finite == f->tensors)
        pl_text_add(out, ", all finite");
    else
        pl_text_addf(out, ": %llu finite", (unsigned long long)finite);
    if (f->not_floating)
        pl_text_addf(out, ", %llu not floating", (unsigned long long)f->not_floating);
    if (!f->unchecked) return;
    pl_text_addf(out, ", %llu not checked: ", (unsigned long long)f->unchecked);
    pl_text_add_safe(out, f->unknown, strlen(f->unknown));
}

static void add_file(struct pl_text *out, const struct pl_verify_file *f) {
    char bytes[PL_BYTES_TEXT];
    const char *told = f->problem ? f->problem : f->path;
    pl_text_add(out, f->problem ? "damaged  " : "ok       ");
    pl_text_add_safe(out, told, strlen(told));
    if (!f->problem) {
        pl_text_addf(out, "  %s", pl_bytes_text(f->bytes, bytes));
        if (f->tensors) add_numbers(out, f);
        pl_text_add(out, f->digested ? ", as it was saved" : "");
        if (f->not_compared) {
            pl_text_add(out, "; shapes not checked: ");
            pl_text_add_safe(out, f->not_compared, strlen(f->not_compared));
        }
    }
    pl_text_add(out, "\n");
}

static pl_err judge(const struct pl_verify *v, const char *dir, struct pl_diag *d) {
    if (!v->problems) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, dir, 0, 0, "%u of %u files %s damaged", v->problems,
               v->n, v->problems == 1 ? "is" : "are");
    pl_diag_hint(d, "move a damaged checkpoint away to resume from the one before it; get another "
                    "copy of a model");
    return PL_ERR_CHECKPOINT_FORMAT;
}

int pl_cmd_verify(const struct pl_cli *cli) {
    struct pl_verify v = {0};
    struct pl_diag d = {0};
    struct pl_text text = {0};
    const bool json = pl_cli_has(cli, PL_FLAG_JSON);
    int status = 0;
    pl_err err = pl_verify_dir(&v, cli->args[0], &d);
    for (uint32_t i = 0; err == PL_ERR_OK && !json && i < v.n; i++)
        add_file(&text, &v.files[i]);
    if (err == PL_ERR_OK && !json) err = pl_cli_print_text(&text, &d);
    if (err == PL_ERR_OK) err = judge(&v, cli->args[0], &d);
    if (json && v.problems && err == PL_ERR_CHECKPOINT_FORMAT)
        status = pl_cli_fail_with(cli, &d, answer(&v));
    else if (err == PL_ERR_OK && json)
        err = pl_cli_print_json(answer(&v), &d);
    if (err != PL_ERR_OK && !status) status = pl_cli_fail(cli, &d);
    pl_verify_finish(&v);
    return status;
}
