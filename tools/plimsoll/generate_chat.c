#include "tools/plimsoll/generate_chat.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "tools/plimsoll/generate_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct conversation {
    const struct pl_cli *cli;
    struct pl_generate_question *q;
    struct pl_preflight *pf;
    struct pl_generate_options opt;
    struct pl_generator *generator;
    struct pl_chat_message *messages; /* [n], owned with their content: user and model in turn */
    size_t n;
    uint64_t most; /* tokens of an answer; the context limits it, too */
    uint64_t answers;
    struct pl_input input;
    struct pl_text line; /* of the user */
};

/* ---- messages ---- */

static void drop_messages(struct conversation *c, size_t keep) {
    for (; c->n > keep; c->n--)
        free((char *)(uintptr_t)c->messages[c->n - 1].content);
}

/* Takes *text. */
static pl_err add_message(struct conversation *c, enum pl_chat_role role, struct pl_text *text,
                          struct pl_diag *d) {
    struct pl_chat_message *more = pl_realloc(c->messages, (c->n + 1) * sizeof *more);
    if (more) c->messages = more;
    if (!text->len) pl_text_add(text, ""); /* an answer without text is a message, too */
    if (!more || text->failed || !text->data) {
        pl_text_finish(text);
        return pl_host_oom(d, "the conversation");
    }
    c->messages[c->n++] = (struct pl_chat_message){role, text->data, text->len};
    *text = (struct pl_text){0};
    return PL_ERR_OK;
}

/* ---- one answer ---- */

static void print_token(void *ctx, uint32_t sequence, int32_t id) {
    struct conversation *c = ctx;
    (void)sequence;
    pl_prompt_text_put(&c->q->text, id, stdout);
}

static void say(const struct conversation *c, const char *what) {
    if (!pl_cli_has(c->cli, PL_FLAG_QUIET)) fprintf(stderr, "(%s)\n", what);
}

/* Returns false, and says why, if the context has no room for an answer. */
static bool has_room(struct conversation *c) {
    const uint64_t context = c->pf->job->max_seq_length, n = c->q->text.prompt.n;
    if (n < context) {
        c->opt.max_new_tokens = pl_u64_min(c->most, context - n);
        return true;
    }
    fprintf(stderr,
            "the conversation has %llu tokens with this turn, and the context holds %llu: the turn "
            "is left out\nhint: /reset begins anew; --max-seq-length N makes the context longer\n",
            (unsigned long long)n, (unsigned long long)context);
    return false;
}

static void say_end(const struct conversation *c, const struct pl_generated_sequence *s) {
    if (s->end == PL_END_SIGNAL) say(c, "stopped");
    if (s->end != PL_END_LENGTH) return;
    say(c, s->n < c->pf->job->max_seq_length
               ? "the answer has as many tokens as --max-new-tokens allows"
               : "the context is full: /reset begins anew, --max-seq-length N makes it longer");
}

static pl_err keep_answer(struct conversation *c, const struct pl_generated_sequence *s,
                          struct pl_diag *d) {
    struct pl_text words = {0};
    pl_err err =
        pl_prompt_text_decode(&c->q->text, s->ids + s->prompt, s->n - s->prompt, &words, d);
    if (err == PL_ERR_OK) return add_message(c, PL_CHAT_ASSISTANT, &words, d);
    pl_text_finish(&words);
    return err;
}

static pl_err answer(struct conversation *c, struct pl_diag *d) {
    struct pl_prompt_text *t = &c->q->text;
    struct pl_generated g;
    PL_TRY(pl_prompt_text_encode_chat(t, c->messages, c->n, &c->q->job.chat_template, d));
    c->opt.turn_end = t->ends_turns ? &t->turn_end : NULL;
    if (!has_room(c)) {
        drop_messages(c, c->n - 1);
        return PL_ERR_OK;
    }
    const struct pl_prompt prompt = {t->prompt.ids, t->prompt.n};
    pl_prompt_text_begin(t);
    pl_err err = pl_generator_answer(c->generator, &prompt, &g, d);
    pl_prompt_text_flush(t, stdout);
    putchar('\n');
    fflush(stdout);
    if (err == PL_ERR_OK || err == PL_ERR_INTERRUPTED) {
        say_end(c, &g.sequences[0]);
        pl_err kept = keep_answer(c, &g.sequences[0], d);
        if (kept != PL_ERR_OK) err = kept;
        c->answers++;
    }
    pl_generated_finish(&g);
    return err;
}

/* ---- lines of the user ---- */

/* A line that ends with a backslash is continued by the next one. */
static enum pl_input_what read_turn(struct conversation *c, struct pl_text *turn) {
    const char *mark = "> ";
    for (;;) {
        if (!pl_cli_has(c->cli, PL_FLAG_QUIET)) fputs(mark, stderr);
        const enum pl_input_what what = pl_input_line(&c->input, c->opt.stop, &c->line);
        if (what != PL_INPUT_LINE) return what;
        const bool open = c->line.len && c->line.data[c->line.len - 1] == '\\';
        pl_text_addn(turn, pl_text_str(&c->line), c->line.len - open);
        if (turn->failed) return PL_INPUT_FAILED;
        if (!open) return PL_INPUT_LINE;
        pl_text_add(turn, "\n");
        mark = "| ";
    }
}

/* True if the line was one for the program, not for the model. */
static bool is_command(struct conversation *c, const char *line, bool *ends) {
    *ends = strcmp(line, "/exit") == 0;
    if (strcmp(line, "/reset") != 0) return *ends || !*line;
    drop_messages(c, 0);
    say(c, "the conversation begins anew");
    return true;
}

/* Only Ctrl-C has to do with an answer; every other signal asks the program to end. */
static bool goes_on_after(struct conversation *c) {
    if (*c->opt.stop != SIGINT) return false;
    pl_cli_forget_signal();
    return true;
}

static pl_err input_error(const struct conversation *c, const struct pl_text *turn,
                          struct pl_diag *d) {
    if (turn->failed || c->line.failed || c->input.ahead.failed)
        return pl_host_oom(d, "the conversation");
    return pl_diag_set(d, pl_err_of_errno(PL_ERR_IO), "stdin: %s", strerror(errno));
}

/* One turn of both; sets *ends when it was the last. */
static pl_err take_turn(struct conversation *c, bool *ends, struct pl_diag *d) {
    struct pl_text turn = {0};
    pl_err err = PL_ERR_OK;
    const enum pl_input_what what = read_turn(c, &turn);
    if (what == PL_INPUT_SIGNAL) {
        fputs("\n", stderr);
        *ends = !goes_on_after(c);
        if (!*ends) say(c, "/exit or Ctrl-D ends the conversation");
        if (*ends) err = pl_diag_set(d, PL_ERR_INTERRUPTED, "stopped by a signal");
    } else if (what == PL_INPUT_END) {
        *ends = true;
        if (!pl_cli_has(c->cli, PL_FLAG_QUIET)) fputs("\n", stderr);
    } else if (what == PL_INPUT_FAILED) {
        err = input_error(c, &turn, d);
    } else if (!is_command(c, pl_text_str(&turn), ends)) {
        err = add_message(c, PL_CHAT_USER, &turn, d);
        if (err == PL_ERR_OK) err = answer(c, d);
        if (err == PL_ERR_INTERRUPTED && goes_on_after(c)) {
            *d = (struct pl_diag){0};
            err = PL_ERR_OK;
        }
    }
    pl_text_finish(&turn);
    return err;
}

/* ---- from the start to the end ---- */

static void print_end(const struct conversation *c) {
    char bytes[PL_BYTES_TEXT];
    if (pl_cli_has(c->cli, PL_FLAG_QUIET)) return;
    fprintf(stderr, "%llu answer%s; planned and allocated %s\n", (unsigned long long)c->answers,
            c->answers == 1 ? "" : "s",
            pl_bytes_text(c->pf->estimate.planned.plan->arena_bytes, bytes));
}

static void begin(struct conversation *c) {
    const bool limited = pl_cli_has(c->cli, PL_FLAG_MAX_NEW_TOKENS);
    c->most = limited ? c->q->max_new_tokens : UINT64_MAX;
    c->opt = (struct pl_generate_options){.messages = stderr,
                                          .quiet = pl_cli_has(c->cli, PL_FLAG_QUIET),
                                          .colour = pl_cli_colour(c->cli, stderr),
                                          .ignore_eos = c->q->ignore_eos,
                                          .sampling = c->q->sampling,
                                          .stop = pl_cli_catch_signals(),
                                          .token = print_token,
                                          .ctx = c};
}

int pl_generate_converse(const struct pl_cli *cli, struct pl_generate_question *q,
                         struct pl_preflight *pf) {
    struct conversation c = {.cli = cli, .q = q, .pf = pf};
    struct pl_diag d = {0};
    bool ends = false;
    begin(&c);
    pl_err err = pl_generator_open(pf, &c.opt, 1, &c.generator, &d);
    if (err == PL_ERR_OK)
        say(&c, "/reset begins anew, /exit or Ctrl-D ends, Ctrl-C stops an answer");
    while (err == PL_ERR_OK && !ends)
        err = take_turn(&c, &ends, &d);
    pl_generator_close(&c.generator);
    if (err == PL_ERR_OK) print_end(&c);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    if (err == PL_ERR_INTERRUPTED) status = 128 + (int)*c.opt.stop;
    drop_messages(&c, 0);
    free(c.messages);
    pl_text_finish(&c.line);
    pl_input_finish(&c.input);
    return status;
}
