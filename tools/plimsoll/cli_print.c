/* cli_print.c - failures, notes and JSON answers. */
#include "estimator/base/json_tree.h"
#include "estimator/config/safe_text.h"
#include "runtime/report/report.h"
#include "tools/plimsoll/cli.h"

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

pl_err pl_cli_put_text(struct pl_text *text, FILE *out, struct pl_diag *d) {
    pl_err err = text->failed ? pl_host_oom(d, "the answer") : PL_ERR_OK;
    if (err == PL_ERR_OK) fputs(pl_text_str(text), out);
    pl_text_finish(text);
    return err;
}

pl_err pl_cli_print_text(struct pl_text *text, struct pl_diag *d) {
    return pl_cli_put_text(text, stdout, d);
}

void pl_cli_add_safe_lines(struct pl_text *out, const struct pl_text *lines) {
    for (const char *s = pl_text_str(lines); *s; s += strcspn(s, "\n") + 1) {
        pl_text_add_safe(out, s, strcspn(s, "\n"));
        pl_text_add(out, "\n");
    }
    out->failed |= lines->failed;
}

/* All characters of a failure may be escapes. */
#define SAFE_BYTES(n) (4 * (n))

/* Nothing where the sentence names the file itself, and there is no line of it to name. */
static void add_place(struct pl_text *t, const struct pl_diag *d) {
    if (!d->file[0] || (!d->line && strstr(d->message, d->file))) return;
    pl_text_add_safe(t, d->file, strlen(d->file));
    if (d->line) pl_text_addf(t, ":%llu", (unsigned long long)d->line);
    if (d->line && d->column) pl_text_addf(t, ":%llu", (unsigned long long)d->column);
    pl_text_add(t, ": ");
}

static void print_failure(const struct pl_cli *cli, const struct pl_diag *d) {
    char room[SAFE_BYTES(sizeof d->message + sizeof d->hint + sizeof d->file) + 256];
    struct pl_text t = PL_TEXT_FIXED(room); /* there may be no memory, and that the failure */
    bool colour = pl_cli_colour(cli, stderr);
    const char *const plain[] = {"", "", "", ""};
    const char *const *e = colour ? escapes : plain;
    const char *hint = pl_diag_hint_text(d);

    pl_text_addf(&t, "%splimsoll:%s %serror[%s]:%s ", e[STYLE_BOLD], e[STYLE_OFF], e[STYLE_ERROR],
                 pl_err_code(d->err), e[STYLE_OFF]);
    add_place(&t, d);
    pl_text_add_safe(&t, d->message, strlen(d->message));
    pl_text_add(&t, "\n");
    if (hint[0]) {
        pl_text_addf(&t, "%shint:%s ", e[STYLE_HINT], e[STYLE_OFF]);
        pl_text_add_safe(&t, hint, strlen(hint));
        pl_text_add(&t, "\n");
    }
    fputs(pl_text_str(&t), stderr);
}

json_t *pl_cli_json_string(const char *s) {
    return pl_json_string(s);
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

/* Any bytes as a JSON string of ASCII. */
static void add_json_ascii(struct pl_text *t, const char *s) {
    pl_text_add(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == '"' || c == '\\')
            pl_text_addf(t, "\\u%04x", c);
        else
            pl_text_addn(t, c < 0x7f ? s : "?", 1);
    }
    pl_text_add(t, "\"");
}

static void add_json_number(struct pl_text *t, const char *key, uint64_t v) {
    pl_text_addf(t, ",\"%s\":", key);
    if (v)
        pl_text_addf(t, "%llu", (unsigned long long)v);
    else
        pl_text_add(t, "null");
}

/* The object of pl_cli_failure_json where there is no memory to build it. */
static void print_json_failure(const struct pl_diag *d) {
    char room[6 * (sizeof d->message + sizeof d->hint + sizeof d->file) + 256];
    struct pl_text t = PL_TEXT_FIXED(room);
    pl_text_addf(&t, "{\"schema\":1,\"error\":{\"code\":\"%s\",\"message\":", pl_err_code(d->err));
    add_json_ascii(&t, d->message);
    pl_text_add(&t, ",\"hint\":");
    add_json_ascii(&t, pl_diag_hint_text(d));
    pl_text_add(&t, ",\"file\":");
    if (d->file[0])
        add_json_ascii(&t, d->file);
    else
        pl_text_add(&t, "null");
    add_json_number(&t, "line", d->line);
    add_json_number(&t, "column", d->column);
    pl_text_add(&t, "}}\n");
    fputs(pl_text_str(&t), stdout);
}

/* Failures other than the first. */
static bool has_others(const struct pl_diag *d) {
    return d->all && d->all->n > 1;
}

static void print_others(const struct pl_cli *cli, const struct pl_diag_list *all) {
    for (uint32_t i = 1; i < all->n; i++)
        print_failure(cli, &all->items[i]);
    if (all->more)
        fprintf(stderr, "plimsoll: note: no more than %d errors are shown\n", PL_DIAGS_MOST);
}

/* "errors": the first one again, and all the others. */
static void add_others_json(json_t **o, const struct pl_diag_list *all) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < all->n; i++) {
        json_t *failure = pl_cli_failure_json(&all->items[i]);
        pl_json_append(&list, json_incref(json_object_get(failure, "error")));
        json_decref(failure);
    }
    pl_json_set(o, "errors", list);
}

static void print_json(const struct pl_diag *d, json_t *fields) {
    json_t *o = pl_cli_failure_json(d);
    if (has_others(d)) add_others_json(&o, d->all);
    if (fields) pl_json_merge(&o, fields);
    /* The text is out already; a stdout that is broken as well has nowhere to be reported. */
    if (pl_cli_print_json(o, NULL) != PL_ERR_OK) print_json_failure(d);
}

int pl_cli_fail_with(const struct pl_cli *cli, const struct pl_diag *d, json_t *fields) {
    print_failure(cli, d);
    if (has_others(d)) print_others(cli, d->all);
    if (pl_cli_has(cli, PL_FLAG_JSON)) print_json(d, fields);
    json_decref(fields);
    return pl_err_exit_status(d->err);
}

int pl_cli_fail(const struct pl_cli *cli, const struct pl_diag *d) {
    return pl_cli_fail_with(cli, d, NULL);
}

/* Written by one call: other ranks write to the same stderr. */
static void print_plain(const char *message) {
    char room[SAFE_BYTES(sizeof((struct pl_diag){0}).message + 64) + 32];
    struct pl_text t = PL_TEXT_FIXED(room);
    pl_text_add(&t, "plimsoll: ");
    pl_text_add_safe(&t, message, strlen(message));
    pl_text_add(&t, "\n");
    fputs(pl_text_str(&t), stderr);
}

int pl_cli_fail_in_short(const struct pl_cli *cli, const struct pl_diag *d, uint32_t rank) {
    char line[sizeof d->message + 64];
    const bool is_said = d->cause == d->err;
    snprintf(line, sizeof line, "rank %u: %s%s%s", rank, pl_err_code(d->err),
             is_said ? " as well" : ": ", is_said ? "" : d->message);
    print_plain(line);
    if (pl_cli_has(cli, PL_FLAG_JSON)) print_json(d, NULL);
    return pl_err_exit_status(d->err);
}

int pl_cli_fail_for_peer(const struct pl_cli *cli, const struct pl_diag *d, bool trained) {
    struct pl_diag shown = *d, cause;
    if (!trained && !d->cause) pl_diag_hint(&shown, "see what that rank said last");
    if (d->cause && !trained)
        print_plain(d->message);
    else
        print_failure(cli, &shown);
    cause = shown;
    if (d->cause) cause.err = d->cause;
    if (pl_cli_has(cli, PL_FLAG_JSON)) print_json(&cause, NULL);
    return pl_err_exit_status(d->err);
}

void pl_cli_warn(const struct pl_cli *cli, const char *fmt, ...) {
    if (pl_cli_has(cli, PL_FLAG_QUIET)) return;
    char line[512], room[SAFE_BYTES(sizeof line) + 128];
    struct pl_text t = PL_TEXT_FIXED(room);
    bool colour = pl_cli_colour(cli, stderr);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pl_text_addf(&t, "plimsoll: %swarning:%s ", colour ? escapes[STYLE_BOLD] : "",
                 colour ? escapes[STYLE_OFF] : "");
    pl_text_add_safe(&t, line, strlen(line));
    pl_text_add(&t, "\n");
    fputs(pl_text_str(&t), stderr);
}

/* A piece at a time, which asks for no memory. */
static void print_safe(const char *s, size_t n, FILE *out) {
    for (size_t piece; n; s += piece, n -= piece) {
        char room[2048];
        struct pl_text t = PL_TEXT_FIXED(room);
        piece = n < sizeof room / 4 ? n : sizeof room / 4 - 1;
        while (piece > 1 && piece < n && ((unsigned char)s[piece] & 0xC0) == 0x80)
            piece--; /* between characters */
        pl_text_add_safe(&t, s, piece);
        fputs(pl_text_str(&t), out);
    }
}

void pl_cli_put_safe(FILE *out, const char *s) {
    print_safe(s, strlen(s), out);
}

void pl_cli_print_notes(const struct pl_cli *cli, const struct pl_text *notes) {
    if (pl_cli_has(cli, PL_FLAG_QUIET)) return;
    for (const char *s = pl_text_str(notes); *s;) {
        size_t n = strcspn(s, "\n");
        bool warns = strncmp(s, "warning: ", 9) == 0; /* says so itself */
        fputs(warns ? "plimsoll: " : "plimsoll: note: ", stderr);
        print_safe(s, n, stderr);
        fputs("\n", stderr);
        s += n + (s[n] == '\n');
    }
    if (notes->failed) fputs("plimsoll: note: no memory for the notes that follow\n", stderr);
}

pl_err pl_cli_print_json(json_t *fields, struct pl_diag *d) {
    json_t *object = json_pack("{s:i}", "schema", 1);
    pl_json_merge(&object, fields);
    /* Whole before the first byte of it is out: half an answer cannot be taken back. */
    char *text = object ? pl_json_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text) puts(text);
    json_decref(fields);
    json_decref(object);
    free(text);
    return text ? PL_ERR_OK : pl_host_oom(d, "the JSON answer");
}
