/* encode.c - the tokenizer and the template of a data set, and text as tokens and labels. */
#include "estimator/base/alloc.h"
#include "estimator/base/digest.h"
#include "estimator/base/open_file.h"
#include "estimator/config/job_values.h"
#include "estimator/find/find.h"
#include "estimator/gguf/gguf_tokenizer.h"
#include "runtime/data/chat/row_program.h"
#include "runtime/data/encode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES_LEAST 256u
#define BYTES_MOST  259u /* with ids for padding, begin and end */

/* --- tokenizer -------------------------------------------------------------------------------- */
/* Tokens that only tokenizer_config.json names may lie beyond the model: a row that holds one is
 * refused when it is read. */
static pl_err check_size(const struct pl_encoder *e, const char *path, struct pl_diag *d) {
    uint64_t size = pl_tokenizer_file_size(e->tokenizer);
    if (e->bytes || size <= e->vocab) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_TOKENIZER_FILE, path, 0, 0,
               "the tokenizer has ids up to %llu, the model a vocabulary of %llu",
               (unsigned long long)size - 1, (unsigned long long)e->vocab);
    pl_diag_hint(
        d,
        "use the model's own tokenizer, or let transformers resize the model: " PL_ENCODE_RESIZE);
    return PL_ERR_TOKENIZER_FILE;
}

/* It is appended to texts without being looked for in them. */
static pl_err check_end(const struct pl_encoder *e, const char *path, struct pl_diag *d) {
    if (e->eos < 0 || (uint64_t)e->eos < e->vocab) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_TOKENIZER_FIELD, path, 0, 0,
               "the end of sequence `%.60s` has id %lld, the model a vocabulary of %llu",
               pl_tokenizer_piece(e->tokenizer, (int32_t)e->eos), (long long)e->eos,
               (unsigned long long)e->vocab);
    pl_diag_hint(d, "let transformers resize the model: " PL_ENCODE_RESIZE);
    return PL_ERR_TOKENIZER_FIELD;
}

static pl_err add_file(struct pl_digest *h, const char *path, struct pl_diag *d) {
    char buf[4096];
    pl_err err = PL_ERR_OK;
    FILE *f = pl_fopen_file(path, NULL);
    if (!f) return PL_ERR_OK; /* the tokenizer does without it as well */
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) != 0;)
        pl_digest_add(h, buf, n);
    if (ferror(f))
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_TOKENIZER_FILE), path, 0, 0, "cannot read: %s",
                         strerror(errno));
    fclose(f);
    return err;
}

/* A digest of the files that pl_tokenizer_open reads; the chat template counts by its name
 * (pl_encoder_add_facts). */
static pl_err identify(struct pl_encoder *e, const char *path, struct pl_diag *d) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.json.gz",
                                        "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    struct pl_digest h;
    struct stat st;
    struct pl_text file = {0};
    bool directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const char *slash = strrchr(path, '/');
    int n_dir = directory ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    pl_err err = PL_ERR_OK;
    pl_digest_init(&h, 0);
    if (pl_gguf_is(path)) {
        PL_TRY(pl_gguf_tokenizer_identify(path, &h, d));
        e->identity = pl_digest_value(&h);
        return PL_ERR_OK;
    }
    if (!directory) PL_TRY_GOTO(add_file(&h, path, d), out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        file.len = 0;
        pl_text_addf(&file, "%.*s%s%s", n_dir, path, directory || slash ? "/" : "", names[i]);
        pl_digest_add(&h, names[i], strlen(names[i]));
        PL_TRY_GOTO(add_file(&h, pl_text_str(&file), d), out);
    }
    e->identity = pl_digest_value(&h);
    if (file.failed) err = pl_host_oom(d, path);
out:
    pl_text_finish(&file);
    return err;
}

/* Finds the tokens that end a sequence for the tokenizer or the model, and those that end a turn in
 * a known template, if they are tokens here. */
static void find_stops(struct pl_encoder *e, const struct pl_model *m) {
    const struct pl_chat_template *t;
    if (e->eos >= 0) e->stops[e->n_stops++] = e->eos;
    for (uint32_t i = 0; i < m->n_eos && e->n_stops < PL_ENCODER_STOPS; i++)
        e->stops[e->n_stops++] = m->eos[i];
    e->n_ends = e->n_stops;
    for (size_t i = 0; (t = pl_chat_nth(i)) != NULL && e->n_stops < PL_ENCODER_STOPS; i++) {
        const int64_t id = pl_tokenizer_id(e->tokenizer, pl_chat_turn_end(t));
        if (id >= 0 && pl_tokenizer_is_special(e->tokenizer, (int32_t)id))
            e->stops[e->n_stops++] = id;
    }
}

pl_err pl_encoder_open(struct pl_encoder *e, const struct pl_job *job, const struct pl_model *m,
                       struct pl_diag *d) {
    char *path = NULL;
    pl_err err = PL_ERR_OK;
    if (e->tokenizer) return PL_ERR_OK;
    e->vocab = m->vocab;
    e->train_on = job->train_on;
    e->tokens.most =
        job->stage == PL_STAGE_SFT ? job->max_seq_length : 0; /* either end may count */
    PL_TRY_GOTO(pl_find_tokenizer(job, &path, d), out);
    e->bytes = strcmp(path, "byte") == 0;
    PL_TRY_GOTO(pl_tokenizer_open(path, &e->tokenizer, d), out);
    PL_TRY_GOTO(check_size(e, path, d), out);
    e->eos = pl_tokenizer_eos(e->tokenizer);
    if (e->eos < 0 && m->n_eos) e->eos = m->eos[0];
    PL_TRY_GOTO(check_end(e, path, d), out);
    if (!e->bytes) PL_TRY_GOTO(identify(e, path, d), out);
    PL_TRY_GOTO(pl_tokenizer_scratch_create(e->tokenizer, &e->scratch, d), out);
    find_stops(e, m);
out:
    free(path);
    if (err != PL_ERR_OK) pl_tokenizer_close(&e->tokenizer);
    return err;
}

void pl_encoder_note_tokenizer(const struct pl_encoder *e, const struct pl_job *job,
                               struct pl_text *notes) {
    if (!notes) return;
    pl_text_add(notes, pl_tokenizer_notes(e->tokenizer));
    bool fits = e->vocab >= BYTES_LEAST && e->vocab <= BYTES_MOST;
    if (e->bytes && job->init == PL_INIT_PRETRAINED && !fits)
        pl_text_addf(notes,
                     "warning: `tokenizer: byte` gives the ids 0 to 255 another meaning than the "
                     "model's vocabulary of %llu tokens was trained with; use the model's own "
                     "tokenizer\n",
                     (unsigned long long)e->vocab);
}

void pl_encoder_finish(struct pl_encoder *e) {
    pl_tokenizer_scratch_destroy(&e->scratch);
    pl_tokenizer_close(&e->tokenizer);
    pl_chat_text_finish(&e->rendered);
    pl_chat_own_finish(&e->own);
    pl_text_finish(&e->file);
    free(e->wanted);
    pl_token_list_finish(&e->tokens);
    *e = (struct pl_encoder){0};
}

/* --- chat template ---------------------------------------------------------------------------- */
static pl_err no_template(const struct pl_job *job, struct pl_diag *d, const char *why) {
    struct pl_text names = {0};
    pl_chat_list_names(&names);
    pl_job_error(job, PL_KEY_chat_template, PL_ERR_DATA_TEMPLATE, d, "%s", why);
    pl_diag_hint(d, "set `chat_template` to the one the model was trained with: %s",
                 pl_text_str(&names));
    pl_text_finish(&names);
    return PL_ERR_DATA_TEMPLATE;
}

static pl_err read_own(struct pl_encoder *e, const struct pl_job *job, struct pl_diag *d) {
    char *path = pl_job_input_path(job, job->chat_template.path);
    if (!path) return pl_host_oom(d, "the path of the template");
    pl_err err = pl_chat_program_read(&e->own.program, path, &e->file, d);
    free(path);
    return err;
}

static pl_err find_template(struct pl_encoder *e, const struct pl_job *job, struct pl_diag *d) {
    uint32_t choice = job->chat_template.choice;
    e->by_program = choice == PL_CHAT_TEMPLATE_AUTO || choice == PL_CHAT_TEMPLATE_FILE;
    if (choice == PL_CHAT_TEMPLATE_FILE) return read_own(e, job, d);
    if (choice == PL_CHAT_TEMPLATE_AUTO)
        return pl_tokenizer_template(e->tokenizer, 0)
                   ? pl_chat_program_take(&e->own.program, e->tokenizer, d)
                   : no_template(job, d,
                                 "conversations need a chat template, and the tokenizer brings "
                                 "none");
    e->chat = pl_chat_nth(choice - 1);
    return PL_ERR_OK;
}

void pl_encoder_write_program(const struct pl_encoder *e, struct pl_text *out) {
    if (e->bytes) return; /* has no marks that a program could write */
    if (e->by_program)
        pl_text_addn(out, pl_text_str(&e->file), e->file.len);
    else if (e->chat)
        pl_chat_write_program(e->chat, out);
}

pl_err pl_encoder_take_program(struct pl_encoder *e, struct pl_diag *d) {
    if (e->by_program || e->bytes || !e->chat) return PL_ERR_OK;
    e->file.len = 0;
    pl_chat_write_program(e->chat, &e->file);
    if (e->file.failed) return pl_host_oom(d, "the template");
    PL_TRY(pl_chat_program_add(&e->own.program, NULL, pl_text_str(&e->file), e->file.len,
                               pl_chat_name(e->chat), d));
    e->by_program = true;
    return PL_ERR_OK;
}

/* Programs count by their text, which is a fact of its own. */
static const char *template_name(const struct pl_encoder *e) {
    return e->by_program ? "of its own" : pl_chat_name(e->chat);
}

/* The spelling of an id; NULL = it has none. */
static const char *piece(const struct pl_encoder *e, int64_t id) {
    return id >= 0 && id <= INT32_MAX ? pl_tokenizer_piece(e->tokenizer, (int32_t)id) : NULL;
}

/* A byte tokenizer has no marks of its own: the template's are spelled out. Another one writes what
 * it has, as its Jinja program would. */
static pl_err spell_marks(struct pl_encoder *e, const struct pl_job *job, struct pl_diag *d) {
    if (e->bytes) return PL_ERR_OK;
    const char *bos = piece(e, pl_tokenizer_bos(e->tokenizer));
    e->own.request.bos = bos;
    e->options.bos = bos ? bos : "";
    e->options.eos = e->own.request.eos = piece(e, e->eos);
    if (e->by_program || e->options.eos || !pl_chat_writes_eos(e->chat)) return PL_ERR_OK;
    return pl_job_error(job, PL_KEY_chat_template, PL_ERR_DATA_TEMPLATE, d,
                        "template %s ends answers with the end of sequence, and neither tokenizer "
                        "nor model names one",
                        pl_chat_name(e->chat));
}

bool pl_encoder_shows_date(const struct pl_encoder *e) {
    static const char name[] = "strftime_now";
    const struct pl_chat_program *p = &e->own.program;
    if (!e->by_program) return e->chat && pl_chat_shows_date(e->chat);
    return (p->plain && pl_jinja_mentions(p->plain, name, sizeof name - 1)) ||
           (p->with_tools && pl_jinja_mentions(p->with_tools, name, sizeof name - 1));
}

static pl_err choose_date(struct pl_encoder *e, const struct pl_job *job, struct pl_text *notes,
                          struct pl_diag *d) {
    struct pl_chat_date *date = &e->options.date;
    if (job->chat_date && !pl_chat_date_parse(job->chat_date, date))
        return pl_job_error(job, PL_KEY_chat_date, PL_ERR_CONFIG_RANGE, d,
                            "`chat_date: %.40s` is not a day such as 2025-01-31", job->chat_date);
    if (!job->chat_date && pl_encoder_shows_date(e)) {
        *date = pl_chat_today();
        if (notes)
            pl_text_addf(notes,
                         "template %s shows the date: `chat_date: %04d-%02d-%02d` repeats it\n",
                         template_name(e), date->year, date->month, date->day);
    }
    e->own.request.date = *date;
    return PL_ERR_OK;
}

/* A mark that ends turns and is not one token is trained on letter by letter. */
static void note_turn_end(const struct pl_encoder *e, struct pl_text *notes) {
    if (!notes || e->by_program || e->bytes || pl_chat_writes_eos(e->chat)) return;
    const char *end = pl_chat_turn_end(e->chat);
    if (pl_tokenizer_id(e->tokenizer, end) < 0)
        pl_text_addf(notes, "template %s: `%s` is no token of the tokenizer, but several\n",
                     pl_chat_name(e->chat), end);
}

pl_err pl_encoder_choose_chat(struct pl_encoder *e, const struct pl_job *job, struct pl_text *notes,
                              struct pl_diag *d) {
    if (e->chat || e->by_program) return PL_ERR_OK;
    pl_err err;
    PL_TRY_GOTO(find_template(e, job, d), out);
    PL_TRY_GOTO(spell_marks(e, job, d), out);
    PL_TRY_GOTO(choose_date(e, job, notes, d), out);
    note_turn_end(e, notes);
out:
    if (err == PL_ERR_OK) return err;
    e->chat = NULL;
    e->by_program = false;
    pl_chat_own_finish(&e->own);
    return err;
}

const char *pl_encoder_write_day(const struct pl_encoder *e, char buf[PL_DAY_TEXT]) {
    const struct pl_chat_date *day = &e->options.date;
    buf[0] = 0;
    if (pl_encoder_shows_date(e))
        snprintf(buf, PL_DAY_TEXT, "%04d-%02d-%02d", day->year, day->month, day->day);
    return buf;
}

void pl_encoder_add_facts(const struct pl_encoder *e, struct pl_text *out) {
    const struct pl_chat_options *o = &e->options;
    pl_text_addf(out, "tokenizer %016llx, end %lld, train_on %u\n", (unsigned long long)e->identity,
                 (long long)e->eos, e->train_on);
    if (!e->chat && !e->by_program) return;
    pl_text_addf(out, "template %s %016llx, marks %s %s", template_name(e),
                 (unsigned long long)e->own.program.identity, o->bos ? o->bos : "-",
                 o->eos ? o->eos : "-");
    if (pl_encoder_shows_date(e))
        pl_text_addf(out, ", date %d-%d-%d", o->date.year, o->date.month, o->date.day);
    pl_text_add(out, "\n");
}

/* --- text ------------------------------------------------------------------------------------- */
/* Puts the end of sequence after the tokens; there is room for it. */
static void add_end(const struct pl_encoder *e, struct pl_sample *out) {
    if (out->beyond) {
        out->beyond++;
        return;
    }
    out->ids[out->n] = out->labels[out->n] = (int32_t)e->eos;
    out->n++;
}

pl_err pl_encode_text(struct pl_encoder *e, const char *text, size_t n, size_t prompt_bytes,
                      struct pl_sample *out, struct pl_diag *d) {
    out->n = 0;
    if (!n) return PL_ERR_OK;
    PL_TRY(pl_tokenizer_encode(e->tokenizer, e->scratch, text, n, true, &e->tokens, d));
    PL_TRY(pl_encode_take_tokens(e, true, out, d));
    if (e->eos >= 0 && (!out->n || e->tokens.last != e->eos)) add_end(e, out);
    /* the text may begin with what was put before it */
    const int64_t bos = pl_tokenizer_bos(e->tokenizer);
    if (bos >= 0 && out->n > 1 && out->ids[0] == bos && out->ids[1] == bos)
        pl_row_traits_add(&e->traits, PL_TRAIT_TWO_BOS, 1);
    if (e->train_on == PL_TRAIN_ON_ALL || !prompt_bytes) return PL_ERR_OK;
    pl_encode_label(e, out, 0, prompt_bytes, false);
    if (prompt_bytes < n && pl_encode_is_inside(e, prompt_bytes))
        pl_row_traits_add(&e->traits, PL_TRAIT_INSIDE_TOKEN, 1);
    return PL_ERR_OK;
}
