/* cli_print.c - failures, notes and JSON answers. */
#include "estimator/config/scalar.h"
#include "runtime/report/report.h"
#include "tools/cli.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

enum style { STYLE_BOLD, STYLE_ERROR, STYLE_HINT, STYLE_OFF };
static const char *const escapes[] = {"\033[1m", "\033[1;31m", "\033[36m", "\033[0m"};

bool pl_cli_colour(const struct pl_cli *cli, FILE *out) {
    const char *when = cli->flag[PL_FLAG_COLOR];
    if (when && strcmp(when, "always") == 0) return true;
    if (when && strcmp(when, "never") == 0) return false;
    return pl_colour_wanted(out);
}

unsigned pl_cli_columns(FILE *out) {
    struct winsize w;
    if (ioctl(fileno(out), TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    return 80;
}

pl_err pl_cli_print_text(struct pl_text *text, struct pl_diag *d) {
    pl_err err =
        text->failed ? pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the answer") : PL_ERR_OK;
    if (err == PL_ERR_OK) fputs(pl_text_str(text), stdout);
    pl_text_finish(text);
    return err;
}

/* Of Unicode: controls of C0 and C1, line ends that are not \n, and what turns the direction of
 * what follows (UAX #9, the explicit formatting characters and the marks). */
static bool drives_terminal(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x00, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                  {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

void pl_cli_add_safe(struct pl_text *t, const char *s, size_t n) {
    for (unsigned length; n; s += length, n -= length) {
        char whole[5] = {0}; /* the character may be cut by n */
        uint32_t c = 0;
        memcpy(whole, s, n < 4 ? n : 4);
        length = *whole ? pl_utf8_next(whole, &c) : 1;
        if (!length)
            pl_text_addf(t, "\\x%02x", (unsigned char)*s);
        else if (drives_terminal(c))
            pl_text_addf(t, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
        else
            pl_text_addn(t, s, length);
        length += !length;
    }
}

void pl_cli_add_safe_lines(struct pl_text *out, const struct pl_text *lines) {
    for (const char *s = pl_text_str(lines); *s; s += strcspn(s, "\n") + 1) {
        pl_cli_add_safe(out, s, strcspn(s, "\n"));
        pl_text_add(out, "\n");
    }
}

void pl_cli_put_safe(FILE *out, const char *s) {
    struct pl_text t = {0};
    pl_cli_add_safe(&t, s, strlen(s));
    fputs(pl_text_str(&t), out);
    pl_text_finish(&t);
}

/* Nothing where the sentence names the file itself, and there is no line of it to name. */
static void add_place(struct pl_text *t, const struct pl_diag *d) {
    if (!d->file[0] || (!d->line && strstr(d->message, d->file))) return;
    pl_cli_add_safe(t, d->file, strlen(d->file));
    if (d->line) pl_text_addf(t, ":%llu", (unsigned long long)d->line);
    if (d->line && d->column) pl_text_addf(t, ":%llu", (unsigned long long)d->column);
    pl_text_add(t, ": ");
}

static void print_failure(const struct pl_cli *cli, const struct pl_diag *d) {
    struct pl_text t = {0};
    bool colour = pl_cli_colour(cli, stderr);
    const char *const plain[] = {"", "", "", ""};
    const char *const *e = colour ? escapes : plain;
    const char *hint = pl_diag_hint_text(d);

    pl_text_addf(&t, "%splimsoll:%s %serror[%s]:%s ", e[STYLE_BOLD], e[STYLE_OFF], e[STYLE_ERROR],
                 pl_err_code(d->err), e[STYLE_OFF]);
    add_place(&t, d);
    pl_cli_add_safe(&t, d->message, strlen(d->message));
    pl_text_add(&t, "\n");
    if (hint[0]) {
        pl_text_addf(&t, "%shint:%s ", e[STYLE_HINT], e[STYLE_OFF]);
        pl_cli_add_safe(&t, hint, strlen(hint));
        pl_text_add(&t, "\n");
    }
    fputs(pl_text_str(&t), stderr);
    pl_text_finish(&t);
}

json_t *pl_cli_json_string(const char *s) {
    json_t *string = json_string(s);
    if (string) return string;
    struct pl_text t = {0};
    for (; *s; s++)
        pl_text_addn(&t, (unsigned char)*s < 0x80 ? s : "?", 1);
    string = t.failed ? NULL : json_string(pl_text_str(&t));
    pl_text_finish(&t);
    return string;
}

static json_t *number_or_null(uint64_t v) {
    return v ? json_integer((json_int_t)v) : json_null();
}

json_t *pl_cli_failure_json(const struct pl_diag *d) {
    return json_pack("{s:{s:s, s:o, s:o, s:o, s:o, s:o}}", "error", "code", pl_err_code(d->err),
                     "message", pl_cli_json_string(d->message), "hint",
                     pl_cli_json_string(pl_diag_hint_text(d)), "file",
                     d->file[0] ? pl_cli_json_string(d->file) : json_null(), "line",
                     number_or_null(d->line), "column", number_or_null(d->column));
}

int pl_cli_fail_with(const struct pl_cli *cli, const struct pl_diag *d, json_t *fields) {
    print_failure(cli, d);
    if (pl_cli_has(cli, PL_FLAG_JSON)) {
        json_t *o = pl_cli_failure_json(d);
        if (fields && o) (void)json_object_update(o, fields);
        /* The text is out already; a stdout that is broken as well has nowhere to be reported. */
        (void)pl_cli_print_json(o, NULL);
    }
    json_decref(fields);
    return pl_err_exit_status(d->err);
}

int pl_cli_fail(const struct pl_cli *cli, const struct pl_diag *d) {
    return pl_cli_fail_with(cli, d, NULL);
}

void pl_cli_warn(const struct pl_cli *cli, const char *fmt, ...) {
    if (pl_cli_has(cli, PL_FLAG_QUIET)) return;
    char line[512];
    struct pl_text t = {0};
    bool colour = pl_cli_colour(cli, stderr);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pl_text_addf(&t, "plimsoll: %swarning:%s ", colour ? escapes[STYLE_BOLD] : "",
                 colour ? escapes[STYLE_OFF] : "");
    pl_cli_add_safe(&t, line, strlen(line));
    pl_text_add(&t, "\n");
    fputs(pl_text_str(&t), stderr);
    pl_text_finish(&t);
}

void pl_cli_print_notes(const struct pl_cli *cli, const struct pl_text *notes) {
    if (pl_cli_has(cli, PL_FLAG_QUIET)) return;
    struct pl_text t = {0};
    for (const char *s = pl_text_str(notes); *s;) {
        size_t n = strcspn(s, "\n");
        bool warns = strncmp(s, "warning: ", 9) == 0; /* says so itself */
        pl_text_add(&t, warns ? "plimsoll: " : "plimsoll: note: ");
        pl_cli_add_safe(&t, s, n);
        pl_text_add(&t, "\n");
        s += n + (s[n] == '\n');
    }
    fputs(pl_text_str(&t), stderr);
    pl_text_finish(&t);
}

pl_err pl_cli_print_json(json_t *fields, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    json_t *object = json_pack("{s:i}", "schema", 1);
    if (!fields || !object || json_object_update(object, fields) != 0) {
        err = pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the JSON answer");
        goto out;
    }
    if (json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17)) != 0 && !ferror(stdout))
        err = pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the JSON answer");
    putchar('\n');
out:
    json_decref(fields);
    json_decref(object);
    return err;
}
