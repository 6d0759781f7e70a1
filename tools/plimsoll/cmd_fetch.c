/* cmd_fetch.c - `plimsoll fetch`: has `hf` download what a job needs into the hub cache, and says
 * what came of it. */
#include "tools/plimsoll/cli.h"

#include "estimator/config/safe_text.h"
#include "estimator/base/units.h"
#include "estimator/model/hub_cache.h"
#include "estimator/model/resolve.h"
#include "runtime/checkpoint/model_io.h"
#include "tools/plimsoll/hf_run.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files of a model that are read here end in .json, .jinja, .safetensors, .txt or .model. That
 * is one pattern, since older versions of the command take the last one alone. Weights in the
 * layouts of other programs fit it too; the copy in Mistral's is the common one, and the last. */
#define MODEL_FILES   "--include=*.[jstm][aijosx]*"
#define NOT_FLAX      "--exclude=*.msgpack"
#define NOT_A_MISTRAL "--exclude=*consolidated*"

struct fetch {
    enum pl_hub_kind kind;
    char id[PL_KNOWN_ID];
    const char *revision, *pattern; /* nullable */
};

/* --- what to fetch --------------------------------------------------------------------------- */

/* True for what the hub allows as the name of a repository: no word that begins with `-` is an
 * option of another program, and no `..` leads out of the cache. */
static bool is_repository(const char *s) {
    const size_t n = strlen(s);
    const char *slash = strchr(s, '/');
    return n > 0 && n <= 96 && !strchr("-./", s[0]) && !strchr("-./", s[n - 1]) &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == n &&
           !strstr(s, "--") && !strstr(s, "..") &&
           (!slash || (!strchr(slash + 1, '/') && !strchr("-.", slash[1])));
}

static bool is_revision(const char *s) {
    return s[0] && !strchr("-./", s[0]) && !strstr(s, "..") && strlen(s) <= 200 &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./")] == 0;
}

static pl_err refuse_name(const char *name, const struct fetch *f, struct pl_diag *d) {
    struct pl_text near = {0};
    pl_diag_set(d, PL_ERR_USAGE, "`%.120s` is no Hugging Face id", name);
    if (f->kind == PL_HUB_MODEL) pl_catalogue_nearest(name, &near);
    if (near.len)
        pl_diag_hint(d, "did you mean %s? an id is OWNER/NAME, such as Qwen/Qwen2.5-0.5B",
                     pl_text_str(&near));
    else
        pl_diag_hint(d, "an id is OWNER/NAME, such as %s",
                     f->kind == PL_HUB_MODEL ? "Qwen/Qwen2.5-0.5B" : "tatsu-lab/alpaca");
    pl_text_finish(&near);
    return PL_ERR_USAGE;
}

static pl_err read_request(const struct pl_cli *cli, struct fetch *f, struct pl_diag *d) {
    const char *name = cli->args[0];
    f->kind = pl_cli_has(cli, PL_FLAG_DATASET) ? PL_HUB_DATASET : PL_HUB_MODEL;
    f->revision = cli->flag[PL_FLAG_REVISION];
    f->pattern = cli->flag[PL_FLAG_INCLUDE];
    const bool known =
        f->kind == PL_HUB_DATASET ? is_repository(name) : pl_model_hub_id(name, f->id);
    if (!known || !is_repository(f->kind == PL_HUB_DATASET ? name : f->id))
        return refuse_name(name, f, d);
    if (f->kind == PL_HUB_DATASET) memcpy(f->id, name, strlen(name) + 1);
    if (f->revision && !is_revision(f->revision))
        return pl_diag_set(d, PL_ERR_USAGE, "--revision wants a branch, a tag or a commit");
    if (f->pattern && !f->pattern[0])
        return pl_diag_set(d, PL_ERR_USAGE, "--include wants a pattern, such as '*.json'");
    if (strcmp(f->id, name) == 0) return PL_ERR_OK;
    struct pl_text note = {0};
    pl_text_addf(&note, "`%s` is taken for %s\n", name, f->id);
    pl_cli_print_notes(cli, &note);
    pl_text_finish(&note);
    return PL_ERR_OK;
}

/* --- the command ----------------------------------------------------------------------------- */

/* The bars of `hf` are for terminals; its output goes through a pipe here, so it is told. */
static void say_how_to_show(const struct pl_cli *cli) {
    const bool shown = !pl_cli_has(cli, PL_FLAG_QUIET) && !pl_cli_has(cli, PL_FLAG_NO_PROGRESS);
    if (!shown)
        setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1", 1);
    else if (isatty(STDERR_FILENO))
        setenv("TQDM_POSITION", "-1", 1);
}

static pl_err add_option(const char *words[], size_t *n, struct pl_text *text, const char *option,
                         const char *value, struct pl_diag *d) {
    if (!value) return PL_ERR_OK;
    pl_text_addf(text, "%s=%s", option, value);
    if (text->failed) return pl_host_oom(d, "the command line");
    words[(*n)++] = text->data;
    return PL_ERR_OK;
}

static pl_err run(const struct pl_cli *cli, const struct fetch *f,
                  const volatile sig_atomic_t *stop, struct pl_hf_end *end, struct pl_diag *d) {
    struct pl_text revision = {0}, pattern = {0};
    const char *words[10] = {NULL, "download", f->id};
    size_t n = 3;
    if (f->kind == PL_HUB_DATASET) words[n++] = "--repo-type=dataset";
    if (pl_cli_has(cli, PL_FLAG_QUIET)) words[n++] = "--quiet";
    if (f->kind == PL_HUB_MODEL && !f->pattern) {
        words[n++] = MODEL_FILES;
        words[n++] = NOT_FLAX;
        words[n++] = NOT_A_MISTRAL;
    }
    pl_err err = add_option(words, &n, &revision, "--revision", f->revision, d);
    if (err == PL_ERR_OK) err = add_option(words, &n, &pattern, "--include", f->pattern, d);
    if (err == PL_ERR_OK) say_how_to_show(cli);
    if (err == PL_ERR_OK) err = pl_hf_run(words, stop, end, d);
    pl_text_finish(&revision);
    pl_text_finish(&pattern);
    return err;
}

/* --- what went wrong ------------------------------------------------------------------------- */

enum cause { DISK, GATED, REVISION, NETWORK, ABSENT, TOKEN, OLD, CAUSES };

/* Words of the last lines of `hf`, of its versions 0.24 to 2.4. The first row that one of them is
 * in says what was wrong: a repository that is not there may be said to be gated perhaps, and
 * another reason may stand next to the number of HTTP. */
static const struct {
    enum cause cause;
    const char *words[8];
} signs[] = {
    {DISK, {"no space left", "disk quota"}},
    {REVISION, {"revision not found", "revisionnotfound", "invalid rev id"}},
    {ABSENT, {"repository not found", "repositorynotfound", "' not found"}},
    {GATED, {"gated", "access denied", "requires approval", "is restricted", "403 client"}},
    {NETWORK,
     {"local entry not found", "localentrynotfound", "connection", "name resolution",
      "name or service", "timed out", "offline mode", "max retries"}},
    {ABSENT, {"404 client"}},
    {TOKEN, {"401 client", "unauthorized", "invalid user token", "not logged in"}},
    {OLD, {"no such option", "unrecognized arguments", "invalid choice", "no such command"}},
};

static enum cause find_cause(const char *tail) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        for (size_t j = 0; j < 8 && signs[i].words[j]; j++)
            if (strcasestr(tail, signs[i].words[j])) return signs[i].cause;
    return CAUSES;
}

static const struct {
    bool of_repository; /* an error of the model or of the data, else of the machine */
    const char *what, *hint;
} causes[CAUSES + 1] = {
    [DISK] = {false, "the disk is full", "free space, or set HF_HOME to another disk"},
    [GATED] = {true, "it is gated",
               "accept its licence on its page of huggingface.co, then `hf auth login` with a "
               "token of that account"},
    [REVISION] = {true, "it has no such revision",
                  "give --revision a branch, a tag or a commit of its page"},
    [NETWORK] = {false, "the hub cannot be reached",
                 "check the connection, and HF_ENDPOINT and HF_HUB_OFFLINE; the same command "
                 "continues"},
    [ABSENT] = {true, "the hub shows no repository of that name",
                "check owner and name; a private one needs `hf auth login`"},
    [TOKEN] = {true, "the hub refuses the token", "`hf auth login` with a valid token"},
    [OLD] = {false, "it does not know these options", "pip install -U huggingface_hub"},
    [CAUSES] = {false, NULL, "what it said is above; the same command continues"},
};

static pl_err refuse_fetch(const struct fetch *f, const struct pl_hf_end *end, struct pl_diag *d) {
    const enum cause cause = end->signal ? CAUSES : find_cause(end->tail);
    const pl_err of_it = f->kind == PL_HUB_MODEL ? PL_ERR_MODEL_FILE : PL_ERR_DATA_FILE;
    const pl_err err = causes[cause].of_repository ? of_it : PL_ERR_IO;
    if (end->signal)
        pl_diag_set(d, err, "`%s` was ended by signal %d (%s) while it fetched %s", end->program,
                    end->signal, strsignal(end->signal), f->id);
    else if (cause == CAUSES)
        pl_diag_set(d, err, "`%s` failed to fetch %s: exit status %d", end->program, f->id,
                    end->status);
    else
        pl_diag_set(d, err, "`%s` failed to fetch %s: %s", end->program, f->id, causes[cause].what);
    pl_diag_hint(d, "%s", causes[cause].hint);
    return err;
}

/* --- what came of it ------------------------------------------------------------------------- */

static pl_err find_directory(const struct fetch *f, struct pl_text *dir, struct pl_diag *d) {
    struct pl_text why = {0};
    char *repository = NULL;
    pl_err err = pl_hub_repository(f->kind, f->id, &repository, d);
    if (err == PL_ERR_OK && !repository)
        err = pl_diag_set(d, PL_ERR_IO, "no variable says where the hub cache is: HF_HOME or HOME");
    if (err == PL_ERR_OK)
        err = pl_hub_snapshot(repository, f->revision ? f->revision : "main", dir, &why, d);
    if (err == PL_ERR_OK && why.len) {
        err = pl_diag_set(d, PL_ERR_IO, "`hf` reports no failure, and %s", pl_text_str(&why));
        pl_diag_hint(d, "does `hf` use another cache? HF_HOME and HF_HUB_CACHE say where it is");
    }
    pl_text_finish(&why);
    free(repository);
    return err;
}

/* The files of a snapshot, through the links that it is made of. */
struct files {
    uint64_t n, bytes;
    bool has_config; /* config.json, in the directory itself */
};

#define DEEPEST 8 /* directories below that of the snapshot */

static pl_err count_files(const char *dir, unsigned depth, struct files *out, struct pl_diag *d);

static pl_err count_entry(const char *dir, const char *name, unsigned depth, struct files *out,
                          struct pl_diag *d) {
    struct pl_text path = {0};
    struct stat st;
    pl_err err = PL_ERR_OK;
    pl_text_addf(&path, "%s/%s", dir, name);
    if (path.failed) {
        err = pl_host_oom(d, "a path");
    } else if (stat(path.data, &st) != 0) {
        errno = 0; /* a link whose file is gone is none of the files */
    } else if (S_ISDIR(st.st_mode)) {
        if (depth < DEEPEST) err = count_files(path.data, depth + 1, out, d);
    } else if (S_ISREG(st.st_mode)) {
        out->n++;
        out->bytes += (uint64_t)st.st_size;
        out->has_config |= depth == 0 && strcmp(name, "config.json") == 0;
    }
    pl_text_finish(&path);
    return err;
}

/* Adds the files of a directory and of those in it. */
static pl_err count_files(const char *dir, unsigned depth, struct files *out, struct pl_diag *d) {
    const struct dirent *e;
    pl_err err = PL_ERR_OK;
    DIR *list = opendir(dir);
    if (!list)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), dir, 0, 0, "cannot list: %s",
                          strerror(errno));
    while (err == PL_ERR_OK && (e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            err = count_entry(dir, e->d_name, depth, out, d);
    closedir(list);
    return err;
}

/* A model without what every job needs is told at once, not by the job. */
static pl_err check_model(const struct fetch *f, const struct files *files, const char *dir,
                          struct pl_diag *d) {
    bool weights;
    if (f->kind == PL_HUB_DATASET || f->pattern) return PL_ERR_OK;
    if (!files->has_config) {
        pl_diag_set(d, PL_ERR_MODEL_FILE, "%s has no config.json: it is no model of transformers",
                    f->id);
        pl_diag_hint(d,
                     "where it holds GGUF files, `plimsoll fetch %s --include NAME.gguf` fetches "
                     "one, which is a model; else fetch the model that it was made from",
                     f->id);
        return PL_ERR_MODEL_FILE;
    }
    PL_TRY(pl_model_has_weights(dir, &weights, d));
    if (weights) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_MODEL_WEIGHTS, "%s has no weights in safetensors", f->id);
    pl_diag_hint(d,
                 "write a copy with them: python -c \"from transformers import "
                 "AutoModelForCausalLM as M; M.from_pretrained('%s').save_pretrained('NEW')\"",
                 f->id);
    return PL_ERR_MODEL_WEIGHTS;
}

/* The name that a job has for it: the id where refs/main leads to it, else the directory. */
static void add_next(const struct fetch *f, const char *dir, struct pl_text *out) {
    const char *name = f->revision ? dir : f->id;
    if (f->kind == PL_HUB_DATASET)
        pl_text_addf(out, "next: plimsoll train job.yaml dataset=%s\n", dir);
    else
        pl_text_addf(out,
                     "next: plimsoll estimate-vram %s\n"
                     "      plimsoll train job.yaml model=%s\n",
                     name, name);
}

static pl_err print_answer(const struct pl_cli *cli, const struct fetch *f, const char *dir,
                           const struct files *files, struct pl_diag *d) {
    char bytes[PL_BYTES_TEXT];
    struct pl_text text = {0};
    if (pl_cli_has(cli, PL_FLAG_JSON))
        return pl_cli_print_json(json_pack("{s:s, s:s, s:s, s:o, s:I, s:I}", "id", f->id, "kind",
                                           f->kind == PL_HUB_MODEL ? "model" : "dataset",
                                           "revision", f->revision ? f->revision : "main",
                                           "directory", pl_cli_json_string(dir), "files",
                                           (json_int_t)files->n, "bytes", (json_int_t)files->bytes),
                                 d);
    pl_text_addf(&text, "%s: %llu files, %s, in\n  ", f->id, (unsigned long long)files->n,
                 pl_bytes_text(files->bytes, bytes));
    pl_text_add_safe(&text, dir, strlen(dir));
    pl_text_add(&text, "\n");
    add_next(f, dir, &text);
    return pl_cli_print_text(&text, d);
}

static pl_err fetch(const struct pl_cli *cli, const volatile sig_atomic_t *stop,
                    struct pl_diag *d) {
    struct fetch f = {0};
    struct pl_hf_end end;
    struct files files = {0};
    struct pl_text dir = {0};
    PL_TRY(read_request(cli, &f, d));
    PL_TRY(run(cli, &f, stop, &end, d));
    if (*stop) return pl_diag_set(d, PL_ERR_INTERRUPTED, "fetching %s was interrupted", f.id);
    if (end.status || end.signal) return refuse_fetch(&f, &end, d);
    pl_err err = find_directory(&f, &dir, d);
    if (err == PL_ERR_OK) err = count_files(pl_text_str(&dir), 0, &files, d);
    if (err == PL_ERR_OK) err = check_model(&f, &files, pl_text_str(&dir), d);
    if (err == PL_ERR_OK) err = print_answer(cli, &f, pl_text_str(&dir), &files, d);
    pl_text_finish(&dir);
    return err;
}

int pl_cmd_fetch(const struct pl_cli *cli) {
    struct pl_diag d = {0};
    const volatile sig_atomic_t *stop = pl_cli_catch_signals();
    pl_err err = fetch(cli, stop, &d);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    return err == PL_ERR_INTERRUPTED ? 128 + (int)*stop : status;
}
