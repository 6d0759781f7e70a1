/* generate_args.c - arguments of `generate`. */
#include "tools/plimsoll/generate_args.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/validate.h"
#include "estimator/find/find.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/save_set.h"
#include "tools/plimsoll/generate_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEW_TOKENS   128
#define CONVERSATION 4096 /* tokens of a conversation, unless `max_seq_length` is given */

/* ---- the job ---- */

static bool is_read(enum pl_key_id key) {
    static const enum pl_key_id keys[] = {
        PL_KEY_model,         PL_KEY_model_config,   PL_KEY_init,
        PL_KEY_dtype,         PL_KEY_seed,           PL_KEY_adapter_path,
        PL_KEY_tokenizer,     PL_KEY_max_seq_length, PL_KEY_device,
        PL_KEY_threads,       PL_KEY_vram_budget,    PL_KEY_vram_margin,
        PL_KEY_preflight,     PL_KEY_debug_inject,   PL_KEY_quant_type,
        PL_KEY_double_quant,  PL_KEY_quantize_head,  PL_KEY_quantize_embedding,
        PL_KEY_chat_template, PL_KEY_base_dtype,     PL_KEY_unpack_buffer};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i] == key) return true;
    return false;
}

static pl_err check_keys(const struct pl_job *job, struct pl_diag *d) {
    uint32_t n;
    const struct pl_key_info *infos = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (!job->given[i] || is_read((enum pl_key_id)i)) continue;
        pl_diag_set(d, PL_ERR_USAGE, "`%s` has no meaning for `generate`", infos[i].key);
        pl_diag_hint(d, "run `plimsoll help generate`: it lists the keys that have one");
        return PL_ERR_USAGE;
    }
    if (job->model || (job->init == PL_INIT_RANDOM && job->model_config)) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "no model to generate with");
    pl_diag_hint(d, "plimsoll generate --model DIR --prompt-ids 1,2,3");
    return PL_ERR_USAGE;
}

static pl_err read_job(struct pl_job *job, const struct pl_cli *cli, struct pl_diag *d) {
    PL_TRY(pl_job_defaults(job, d));
    for (uint32_t i = 0; i < cli->n_overrides; i++)
        PL_TRY(pl_job_assign(job, cli->overrides[i], NULL, d));
    if (pl_cli_has(cli, PL_FLAG_ADAPTER))
        PL_TRY(pl_job_set(job, "adapter_path", cli->flag[PL_FLAG_ADAPTER], d));
    PL_TRY(check_keys(job, d));
    pl_job_set_inference(job);
    return pl_job_validate(job, d);
}

/* ---- the prompt ---- */

/* Adds a prompt with room for so many ids, of which it has none yet. */
static pl_err add_prompt(struct pl_generate_question *q, uint64_t room,
                         struct pl_question_prompt **out, struct pl_diag *d) {
    const size_t bytes = (size_t)(q->n_prompts + 1) * sizeof *q->prompts;
    struct pl_question_prompt *more = pl_realloc(q->prompts, bytes);
    if (!more) return pl_host_oom(d, "the prompts");
    q->prompts = more;
    *out = &more[q->n_prompts];
    **out = (struct pl_question_prompt){.ids = pl_malloc((size_t)room * sizeof(int32_t))};
    if (!(*out)->ids) return pl_host_oom(d, "the prompt");
    q->n_prompts++;
    return PL_ERR_OK;
}

static pl_err read_ids(struct pl_generate_question *q, const char *text, struct pl_diag *d) {
    struct pl_question_prompt *prompt;
    uint64_t most = 1;
    for (const char *p = text; *p; p++)
        most += *p == ',';
    PL_TRY(add_prompt(q, most, &prompt, d));
    for (const char *p = text;; p++) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && *end != ','))
            return pl_diag_set(d, PL_ERR_USAGE,
                               "--prompt-ids wants numbers between commas, not `%.20s`", p);
        prompt->ids[prompt->n++] = (int32_t)v;
        p = end;
        if (!*p) return PL_ERR_OK;
    }
}

/* Checked before a tokenizer is read from the same directory. */
static pl_err require_weights(const struct pl_job *job, struct pl_diag *d) {
    struct pl_model_ref ref;
    PL_TRY(pl_find_model(job, job->model, NULL, &ref, d));
    pl_err err =
        ref.weights_dir ? pl_save_set_settle(ref.weights_dir, d) : pl_model_not_here(job->model, d);
    pl_model_ref_finish(&ref);
    return err;
}

static pl_err open_tokenizer(struct pl_generate_question *q, struct pl_diag *d) {
    char *path;
    if (!q->job.tokenizer) PL_TRY(require_weights(&q->job, d));
    PL_TRY(pl_find_tokenizer(&q->job, &path, d));
    pl_err err = pl_prompt_text_open(&q->text, path, d);
    free(path);
    return err;
}

/* Sets `key` to a file of the directory of the adapter that is there, as the run that trained it
 * left it. */
static pl_err take_file(struct pl_job *job, const char *dir, const char *name, const char *key,
                        struct pl_diag *d) {
    char *path = pl_path_join(dir, name);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = access(path, F_OK) == 0 ? pl_job_set(job, key, path, d) : PL_ERR_OK;
    free(path);
    return err;
}

/* The tokenizer and the template that are not named on the command line. */
static pl_err take_from_adapter(struct pl_job *job, bool chats, struct pl_diag *d) {
    char *dir;
    pl_err err = PL_ERR_OK;
    PL_TRY(pl_find_adapter(job, &dir, d));
    if (!dir) return PL_ERR_OK;
    if (!job->tokenizer) err = take_file(job, dir, "tokenizer.json", "tokenizer", d);
    if (err == PL_ERR_OK && chats && job->chat_template.choice == PL_CHAT_TEMPLATE_AUTO)
        err = take_file(job, dir, "chat_template.jinja", "chat_template", d);
    free(dir);
    return err;
}

/* Opens what text is read by, of the job, the adapter or the model. */
static pl_err open_text(struct pl_generate_question *q, const struct pl_cli *cli,
                        struct pl_diag *d) {
    if (!q->job.tokenizer && !q->job.model) {
        pl_diag_set(d, PL_ERR_USAGE, "no tokenizer for the prompt");
        pl_diag_hint(d, "--tokenizer PATH, or --prompt-ids 1,2,3");
        return PL_ERR_USAGE;
    }
    PL_TRY(take_from_adapter(&q->job, pl_cli_has(cli, PL_FLAG_CHAT), d));
    return open_tokenizer(q, d);
}

static pl_err encode(struct pl_generate_question *q, bool chats, const char *text, size_t n,
                     struct pl_diag *d) {
    const struct pl_chat_message message = {PL_CHAT_USER, text, n};
    return chats ? pl_prompt_text_encode_chat(&q->text, &message, 1, &q->job.chat_template, d)
                 : pl_prompt_text_encode(&q->text, text, n, d);
}

static pl_err add_text(struct pl_generate_question *q, bool chats, const char *text, size_t n,
                       struct pl_diag *d) {
    struct pl_question_prompt *prompt;
    PL_TRY(encode(q, chats, text, n, d));
    PL_TRY(add_prompt(q, q->text.prompt.n, &prompt, d));
    prompt->n = q->text.prompt.n;
    memcpy(prompt->ids, q->text.prompt.ids, (size_t)prompt->n * sizeof *prompt->ids);
    return PL_ERR_OK;
}

/* Lines without text are no prompts. */
static pl_err add_lines(struct pl_generate_question *q, bool chats, const struct pl_text *text,
                        struct pl_diag *d) {
    const char *const end = text->data + text->len;
    for (const char *line = text->data, *next; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        if (!next) next = end;
        if (next > line) PL_TRY(add_text(q, chats, line, (size_t)(next - line), d));
    }
    return PL_ERR_OK;
}

static pl_err nothing_to_continue(struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_USAGE, "nothing to continue");
    pl_diag_hint(d, "--prompt TEXT, --prompt-ids 1,2,3, text on standard input, or --chat on a "
                    "terminal");
    return PL_ERR_USAGE;
}

static pl_err read_stdin(struct pl_generate_question *q, const struct pl_cli *cli,
                         struct pl_diag *d) {
    const bool chats = pl_cli_has(cli, PL_FLAG_CHAT);
    struct pl_text text = {0};
    pl_err err;
    PL_TRY_GOTO(pl_input_read_all(&text, d), out);
    err = text.len ? open_text(q, cli, d) : nothing_to_continue(d);
    if (err != PL_ERR_OK) goto out;
    err = pl_cli_has(cli, PL_FLAG_LINES) ? add_lines(q, chats, &text, d)
                                         : add_text(q, chats, text.data, text.len, d);
    if (err == PL_ERR_OK && !q->n_prompts) err = nothing_to_continue(d);
out:
    pl_text_finish(&text);
    return err;
}

/* A template that is missing is told before anything is loaded. */
static pl_err read_nothing_given(struct pl_generate_question *q, const struct pl_cli *cli,
                                 struct pl_diag *d) {
    if (!isatty(STDIN_FILENO)) return read_stdin(q, cli, d);
    if (!pl_cli_has(cli, PL_FLAG_CHAT) || pl_cli_has(cli, PL_FLAG_LINES) ||
        pl_cli_has(cli, PL_FLAG_JSON))
        return nothing_to_continue(d);
    q->converses = true;
    PL_TRY(open_text(q, cli, d));
    return encode(q, true, "x", 1, d);
}

static pl_err wrong_prompt(const char *why, struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_USAGE, "%s", why);
    pl_diag_hint(d, "--prompt TEXT, or --prompt-ids 1,2,3");
    return PL_ERR_USAGE;
}

static pl_err read_prompt(struct pl_generate_question *q, const struct pl_cli *cli,
                          struct pl_diag *d) {
    const char *const prompt = cli->flag[PL_FLAG_PROMPT];
    const bool text = pl_cli_has(cli, PL_FLAG_PROMPT), ids = pl_cli_has(cli, PL_FLAG_PROMPT_IDS);
    const bool chats = pl_cli_has(cli, PL_FLAG_CHAT);
    if (q->job.given[PL_KEY_chat_template] && !chats)
        return pl_diag_set(d, PL_ERR_USAGE, "--chat-template wants --chat");
    if (text && ids) return wrong_prompt("a prompt is text or ids, not both", d);
    if (ids && chats) return wrong_prompt("--chat wants --prompt TEXT", d);
    if ((text || ids) && pl_cli_has(cli, PL_FLAG_LINES))
        return wrong_prompt("--lines reads prompts from standard input: a prompt is given, too", d);
    if (ids) return read_ids(q, cli->flag[PL_FLAG_PROMPT_IDS], d);
    if (!text) return read_nothing_given(q, cli, d);
    PL_TRY(open_text(q, cli, d));
    return add_text(q, chats, prompt, strlen(prompt), d);
}

/* ---- how to choose ---- */

static pl_err read_sampling(struct pl_generate_question *q, const struct pl_cli *cli,
                            struct pl_diag *d) {
    struct pl_sampling *s = &q->sampling;
    double top_k = 0, tokens = NEW_TOKENS;
    *s = (struct pl_sampling){.top_p = 1, .repetition_penalty = 1, .seed = q->job.seed};
    PL_TRY(pl_cli_number(cli, PL_FLAG_MAX_NEW_TOKENS, 0, INT32_MAX / 2, true, &tokens, d));
    PL_TRY(pl_cli_number(cli, PL_FLAG_TEMPERATURE, 0, 1e3, false, &s->temperature, d));
    PL_TRY(pl_cli_number(cli, PL_FLAG_TOP_K, 0, INT32_MAX, true, &top_k, d));
    PL_TRY(pl_cli_number(cli, PL_FLAG_TOP_P, 0, 1, false, &s->top_p, d));
    PL_TRY(pl_cli_number(cli, PL_FLAG_MIN_P, 0, 1, false, &s->min_p, d));
    PL_TRY(pl_cli_number(cli, PL_FLAG_REPETITION_PENALTY, 0.01, 100, false, &s->repetition_penalty,
                         d));
    s->top_k = (uint32_t)top_k;
    q->max_new_tokens = (uint64_t)tokens;
    q->ignore_eos = pl_cli_has(cli, PL_FLAG_IGNORE_EOS);
    bool filters = top_k > 0 || s->top_p < 1 || s->min_p > 0;
    if (pl_cli_has(cli, PL_FLAG_GREEDY) && (s->temperature > 0 || filters))
        return pl_diag_set(d, PL_ERR_USAGE,
                           "--greedy draws nothing: leave out the temperature "
                           "and the filters");
    if (filters && !pl_cli_has(cli, PL_FLAG_TEMPERATURE)) s->temperature = 1;
    return PL_ERR_OK;
}

pl_err pl_generate_read_args(struct pl_generate_question *q, const struct pl_cli *cli,
                             struct pl_diag *d) {
    *q = (struct pl_generate_question){0};
    PL_TRY(read_job(&q->job, cli, d));
    PL_TRY(read_sampling(q, cli, d));
    return read_prompt(q, cli, d);
}

void pl_generate_size_job(struct pl_generate_question *q) {
    uint64_t longest = 0;
    for (uint64_t i = 0; i < q->n_prompts; i++)
        longest = pl_u64_max(longest, q->prompts[i].n);
    const uint64_t context = q->converses ? CONVERSATION : longest + q->max_new_tokens;
    q->job.batch_size = 1;
    if (!q->job.given[PL_KEY_max_seq_length])
        q->job.max_seq_length = (uint32_t)(context < 2 ? 2 : context);
}

void pl_generate_question_finish(struct pl_generate_question *q) {
    pl_job_finish(&q->job);
    for (uint64_t i = 0; i < q->n_prompts; i++)
        free(q->prompts[i].ids);
    free(q->prompts);
    pl_prompt_text_close(&q->text);
    *q = (struct pl_generate_question){0};
}
