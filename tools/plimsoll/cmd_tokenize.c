/* cmd_tokenize.c - `plimsoll tokenize`: text to ids and back, by a model's own tokenizer. */
#include "tools/plimsoll/cmd_tokenize.h"

#include "estimator/config/safe_text.h"
#include "estimator/base/json_tree.h"
#include "runtime/data/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* --- texts to ids ----------------------------------------------------------------------------- */

struct session {
    struct pl_tokenizer *t;
    struct pl_tokenizer_scratch *scratch;
    struct pl_token_list tokens;
    bool special, json;
};

static pl_err open_session(const struct pl_cli *cli, struct session *s, struct pl_diag *d) {
    struct pl_text notes = {0};
    s->special = !pl_cli_has(cli, PL_FLAG_NO_SPECIAL_TOKENS);
    s->json = pl_cli_has(cli, PL_FLAG_JSON);
    PL_TRY(pl_tokenizer_open(cli->flag[PL_FLAG_TOKENIZER], &s->t, d));
    pl_text_add(&notes, pl_tokenizer_notes(s->t));
    pl_cli_print_notes(cli, &notes);
    pl_text_finish(&notes);
    return pl_tokenizer_scratch_create(s->t, &s->scratch, d);
}

/* {"ids":[...],"decoded":...} */
static pl_err add_answer(const struct session *s, struct pl_text *out, struct pl_diag *d) {
    struct pl_text decoded = {0};
    PL_TRY(pl_tokenizer_decode(s->t, s->tokens.ids, s->tokens.n, false, &decoded, d));
    json_t *string = json_stringn(pl_text_str(&decoded), decoded.len);
    char *quoted = pl_json_dump(string, JSON_ENCODE_ANY);
    pl_text_add(out, "{\"ids\":[");
    for (uint64_t i = 0; i < s->tokens.n; i++)
        pl_text_addf(out, "%s%ld", i ? "," : "", (long)s->tokens.ids[i]);
    pl_text_addf(out, "],\"decoded\":%s}\n", quoted ? quoted : "");
    out->failed |= !quoted;
    free(quoted);
    json_decref(string);
    pl_text_finish(&decoded);
    return PL_ERR_OK;
}

void pl_tokenize_add_visible(struct pl_text *out, const char *word) {
    for (size_t n; *word; word += n) {
        n = strcspn(word, "\n\t");
        pl_text_add_safe(out, word, n);
        if (!word[n]) continue;
        pl_text_add(out, word[n] == '\n' ? "\\n" : "\\t");
        n++;
    }
}

static void add_listing(const struct session *s, struct pl_text *out) {
    for (uint64_t i = 0; i < s->tokens.n; i++) {
        pl_text_addf(out, "%7ld  ", (long)s->tokens.ids[i]);
        pl_tokenize_add_visible(out, pl_tokenizer_piece(s->t, s->tokens.ids[i]));
        pl_text_add(out, "\n");
    }
    pl_text_add(out, "\n");
}

static pl_err answer_text(struct session *s, const char *text, size_t n, struct pl_diag *d) {
    struct pl_text out = {0};
    pl_err err = pl_tokenizer_encode(s->t, s->scratch, text, n, s->special, &s->tokens, d);
    if (err == PL_ERR_OK && s->json) err = add_answer(s, &out, d);
    if (err == PL_ERR_OK && !s->json) add_listing(s, &out);
    if (err != PL_ERR_OK) {
        pl_text_finish(&out);
        return err;
    }
    return pl_cli_print_text(&out, d);
}

/* Under --json a line is {"text": ...}, else the text itself. */
static pl_err answer_line(void *session, const char *line, size_t n, struct pl_diag *d) {
    struct session *s = session;
    struct pl_json_error e;
    if (!s->json) return answer_text(s, line, n, d);
    json_t *row = pl_json_load(line, n, PL_JSON_TEXT, &e);
    if (!row && e.no_memory) return pl_host_oom(d, "stdin");
    if (!row) return pl_diag_set(d, PL_ERR_DATA_SYNTAX, "%s", e.what);
    const json_t *text = json_object_get(row, "text");
    pl_err err = json_is_string(text)
                     ? answer_text(s, json_string_value(text), json_string_length(text), d)
                     : pl_diag_set(d, PL_ERR_DATA_FIELD, "the key `text` is missing or no string");
    json_decref(row);
    return err;
}

pl_err pl_tokenize_lines(pl_err (*answer)(void *session, const char *line, size_t n,
                                          struct pl_diag *d),
                         void *session, struct pl_diag *d) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    pl_err err = PL_ERR_OK;
    for (uint64_t number = 1; err == PL_ERR_OK; number++) {
        errno = 0;
        if ((n = getline(&line, &cap, stdin)) < 0) {
            if (!feof(stdin))
                err = pl_diag_set(d, pl_err_of_errno(PL_ERR_IO), "stdin: %s", strerror(errno));
            break;
        }
        if (n && line[n - 1] == '\n') n--;
        err = answer(session, line, (size_t)n, d);
        if (err == PL_ERR_OK || d->file[0]) continue;
        snprintf(d->file, sizeof d->file, "stdin");
        d->line = number;
    }
    free(line);
    return err;
}

static pl_err tokenize_texts(const struct pl_cli *cli, struct pl_diag *d) {
    struct session s = {0};
    pl_err err = open_session(cli, &s, d);
    if (err == PL_ERR_OK) err = pl_tokenize_lines(answer_line, &s, d);
    pl_token_list_finish(&s.tokens);
    pl_tokenizer_scratch_destroy(&s.scratch);
    pl_tokenizer_close(&s.t);
    return err;
}

/* --- forms of the command --------------------------------------------------------------------- */

int pl_cmd_tokenize(const struct pl_cli *cli) {
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    pl_err err;
    if (cli->n_args) {
        err = pl_tokenize_show(cli, &d);
    } else if (pl_cli_has(cli, PL_FLAG_CHAT_TEMPLATE)) {
        err = pl_tokenize_chat(cli, &d);
    } else if (pl_cli_has(cli, PL_FLAG_TOKENIZER)) {
        err = tokenize_texts(cli, &d);
    } else {
        err = pl_diag_set(&d, PL_ERR_USAGE,
                          "`tokenize` needs --tokenizer PATH, "
                          "--chat-template NAME, or a CONFIG.yaml");
        pl_diag_hint(&d, "PATH is a model directory, a tokenizer.json, or `byte`");
    }
    return err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}
