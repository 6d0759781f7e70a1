/* cmd_generate.c - `plimsoll generate`: pre-flight, tokens as they come, one object at the end. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "tools/plimsoll/generate_args.h"
#include "tools/plimsoll/generate_chat.h"

static double rate(uint64_t tokens, double seconds) {
    return seconds > 0 ? (double)tokens / seconds : 0;
}

static json_t *ids_json(const struct pl_generated_sequence *s) {
    json_t *list = json_array();
    for (uint64_t i = s->prompt; i < s->n; i++)
        pl_json_append(&list, json_integer(s->ids[i]));
    return list;
}

static pl_err print_answer(const struct pl_prompt_text *text, const struct pl_generated *g,
                           struct pl_diag *d) {
    const struct pl_generated_sequence *s = &g->sequences[0];
    struct pl_text words = {0};
    if (text->tokenizer) {
        pl_err err = pl_prompt_text_decode(text, s->ids + s->prompt, s->n - s->prompt, &words, d);
        if (err != PL_ERR_OK) {
            pl_text_finish(&words);
            return err;
        }
    }
    json_t *o = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:f, s:f}", "ids", ids_json(s), "text",
        text->tokenizer ? json_stringn(pl_text_str(&words), words.len) : json_null(), "end",
        pl_generate_end_name(s->end), "prompt_tokens", (json_int_t)s->prompt, "planned_bytes",
        (json_int_t)g->planned_bytes, "allocated_bytes", (json_int_t)g->allocated_bytes,
        "prompt_tokens_per_second", rate(g->prompt_tokens, g->prompt_seconds),
        "new_tokens_per_second", rate(g->new_tokens, g->new_seconds));
    pl_text_finish(&words);
    return pl_cli_print_json(o, d);
}

static void print_summary(const struct pl_generated *g, FILE *out) {
    char planned[PL_BYTES_TEXT];
    uint64_t prompt = g->sequences[0].prompt;
    fprintf(out, "prompt %llu token%s", (unsigned long long)prompt, prompt == 1 ? "" : "s");
    if (g->prompt_tokens) /* a prompt of one token is computed as those of the answer are */
        fprintf(out, ", %.1f tokens/s", rate(g->prompt_tokens, g->prompt_seconds));
    fprintf(out, "; answer %.1f tokens/s; planned and allocated %s\n",
            rate(g->new_tokens, g->new_seconds), pl_bytes_text(g->allocated_bytes, planned));
}

/* ---- tokens as they come ---- */

struct stream {
    struct pl_prompt_text *text;
    bool begun;
};

/* Prints the ids themselves if there is no tokenizer. */
static void print_token(void *ctx, uint32_t sequence, int32_t id) {
    struct stream *s = ctx;
    (void)sequence;
    if (s->text->tokenizer) {
        pl_prompt_text_put(s->text, id, stdout);
    } else {
        printf("%s%d", s->begun ? "," : "", id);
        fflush(stdout);
    }
    s->begun = true;
}

/* ---- one prompt after another ---- */

static pl_err answer_one(const struct pl_cli *cli, struct pl_generator *generator,
                         const struct pl_question_prompt *prompt, struct stream *stream,
                         struct pl_diag *d) {
    struct pl_generated g;
    const struct pl_prompt given = {prompt->ids, prompt->n};
    stream->begun = false;
    pl_prompt_text_begin(stream->text);
    pl_err err = pl_generator_answer(generator, &given, &g, d);
    if (stream->begun) {
        if (stream->text->tokenizer) pl_prompt_text_flush(stream->text, stdout);
        putchar('\n');
    }
    if (err == PL_ERR_OK && pl_cli_has(cli, PL_FLAG_JSON)) err = print_answer(stream->text, &g, d);
    if (err == PL_ERR_OK && !pl_cli_has(cli, PL_FLAG_QUIET)) print_summary(&g, stderr);
    pl_generated_finish(&g);
    return err;
}

static int run(const struct pl_cli *cli, struct pl_generate_question *q, struct pl_preflight *pf) {
    struct pl_diag d = {0};
    struct pl_generator *generator = NULL;
    struct stream stream = {.text = &q->text};
    const struct pl_generate_options opt = {
        .messages = stderr,
        .quiet = pl_cli_has(cli, PL_FLAG_QUIET),
        .colour = pl_cli_colour(cli, stderr),
        .max_new_tokens = q->max_new_tokens,
        .ignore_eos = q->ignore_eos,
        .turn_end = q->text.ends_turns ? &q->text.turn_end : NULL,
        .sampling = q->sampling,
        .stop = pl_cli_catch_signals(),
        .token = pl_cli_has(cli, PL_FLAG_JSON) ? NULL : print_token,
        .ctx = &stream};
    pl_err err = PL_ERR_OK;
    for (uint64_t i = 0; i < q->n_prompts && err == PL_ERR_OK; i++) {
        const struct pl_prompt prompt = {q->prompts[i].ids, q->prompts[i].n};
        err = pl_generate_check_prompt(pf, &prompt, opt.max_new_tokens, &d);
    }
    if (err == PL_ERR_OK) err = pl_generator_open(pf, &opt, 1, &generator, &d);
    for (uint64_t i = 0; i < q->n_prompts && err == PL_ERR_OK; i++)
        err = answer_one(cli, generator, &q->prompts[i], &stream, &d);
    pl_generator_close(&generator);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    return err == PL_ERR_INTERRUPTED ? 128 + (int)*opt.stop : status;
}

int pl_cmd_generate(const struct pl_cli *cli) {
    struct pl_generate_question q;
    struct pl_preflight pf = {0};
    struct pl_diag d = {0};
    int status;
    pl_err err = pl_generate_read_args(&q, cli, &d);
    if (err == PL_ERR_OK) {
        pl_generate_size_job(&q);
        err = pl_preflight_init_generate(&pf, &q.job, &d);
    }
    pl_cli_print_notes(cli, &pf.notes);
    if (err != PL_ERR_OK && pf.estimate.planned.plan)
        (void)pl_cli_print_estimate(cli, &pf.estimate, stderr, &d); /* in addition to the refusal */
    if (err != PL_ERR_OK)
        status = pl_cli_fail(cli, &d);
    else
        status = q.converses ? pl_generate_converse(cli, &q, &pf) : run(cli, &q, &pf);
    pl_preflight_finish(&pf);
    pl_generate_question_finish(&q);
    return status;
}
