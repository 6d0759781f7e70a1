/* absent_weights.c - a directory without the weight files that are looked for: what it has instead,
 * and what to do with that. */
#include "estimator/base/alloc.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/windows.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONVERT                                                                                    \
    "write a safetensors copy: python -c \"from transformers import AutoModelForCausalLM as M; "   \
    "M.from_pretrained('DIR').save_pretrained('NEW')\""
#define FROM_STATE_DICT                                                                            \
    "write it with save_pretrained() from the program that saved it, as a directory with "         \
    "config.json and model.safetensors"
#define DOWNLOAD "download the whole repository: hf download OWNER/NAME"

/* The first row that any file of the directory fits is told. STEM is `model` or `adapter_model`. */
static const struct {
    const char *stem; /* nullable: of every stem */
    const char *begin, *end, *what, *hint;
} others[] = {
    {NULL, "", ".incomplete", "a download that was not finished",
     "give the same `hf download` again: it continues"},
    {"model", "model-", ".safetensors", "a shard, and there is no index of the shards", DOWNLOAD},
    {"model", "adapter_model", ".safetensors", "the weights of an adapter, not of a model",
     "name its base as the model, and this directory as the adapter (`adapter_path`, --adapter)"},
    {"model", "adapter_model", ".bin", "the weights of an adapter, not of a model",
     "name its base as the model, and this directory as the adapter (`adapter_path`, --adapter)"},
    {"adapter_model", "adapter_model", ".bin", "the adapter as torch.save writes it",
     "write a safetensors copy: python -c \"import torch, safetensors.torch as s; "
     "s.save_file(torch.load('adapter_model.bin', weights_only=True), "
     "'adapter_model.safetensors')\""},
    {NULL, "pytorch_model_fsdp", "", "a checkpoint of FSDP, in parts of ranks",
     "join the parts: accelerate merge-weights DIR NEW"},
    {NULL, "zero_to_fp32.py", "", "the script of DeepSpeed that joins the parts of ranks",
     "run it in that directory: python zero_to_fp32.py . NEW --safe_serialization"},
    {"model", "pytorch_model", ".bin.index.json", "the index of shards that torch.save wrote",
     CONVERT},
    {"model", "pytorch_model", ".bin", "the model as torch.save writes it", CONVERT},
    {"model", "consolidated", ".safetensors", "weights in the layout of mistral-inference",
     "download the files model*.safetensors of the same repository, or convert these with "
     "convert_mistral_weights_to_hf.py of transformers"},
    {"model", "consolidated", ".pth", "weights in Meta's own layout",
     "download the repository in the layout of transformers, or convert these with "
     "convert_llama_weights_to_hf.py of transformers"},
    {NULL, "", ".gguf", "a GGUF file, which holds a model for inference",
     "fine-tune the model that it was made from: a directory with config.json and safetensors"},
    {"model", "tf_model", ".h5", "the model as TensorFlow writes it",
     "write a safetensors copy with an earlier transformers: "
     "AutoModelForCausalLM.from_pretrained('DIR', from_tf=True).save_pretrained('NEW')"},
    {"model", "flax_model", ".msgpack", "the model as Flax writes it",
     "write a safetensors copy with an earlier transformers: "
     "AutoModelForCausalLM.from_pretrained('DIR', from_flax=True).save_pretrained('NEW')"},
    {NULL, "", ".safetensors", "a safetensors file of another name",
     "rename it to the name that is looked for, if it holds all of the weights"},
    {NULL, "", ".bin", "weights as torch.save writes them", FROM_STATE_DICT},
    {NULL, "", ".pth", "weights as torch.save writes them", FROM_STATE_DICT},
    {NULL, "", ".pt", "weights as torch.save writes them", FROM_STATE_DICT},
    {NULL, "", ".ckpt", "a checkpoint as torch.save writes it", FROM_STATE_DICT},
};
enum { N_OTHERS = sizeof others / sizeof *others };

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool fits(size_t row, const char *stem, const char *name) {
    return (!others[row].stem || strcmp(others[row].stem, stem) == 0) &&
           strncmp(name, others[row].begin, strlen(others[row].begin)) == 0 &&
           ends_with(name, others[row].end);
}

/* The first row of the table that a name in the directory fits, else N_OTHERS.
 * *name is malloc'd. */
static pl_err find_other(const char *dir, const char *stem, size_t *row, char **name,
                         struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    const struct dirent *e;
    DIR *list = opendir(dir);
    *row = N_OTHERS;
    if (!list) return errno == ENOMEM ? pl_host_oom(d, dir) : PL_ERR_OK;
    while (err == PL_ERR_OK && (e = readdir(list))) {
        size_t r = 0;
        while (r < *row && !fits(r, stem, e->d_name))
            r++;
        if (r == *row) continue;
        *row = r;
        free(*name);
        if (!(*name = pl_strdup(e->d_name))) err = pl_host_oom(d, "a name");
    }
    closedir(list);
    return err;
}

pl_err pl_weight_files_absent(const char *dir, const char *stem, pl_err absent, struct pl_diag *d) {
    char *name = NULL;
    size_t row;
    pl_err err = find_other(dir, stem, &row, &name, d);
    if (err != PL_ERR_OK) goto out;
    err = pl_diag_at(d, absent, dir, 0, 0,
                     "%s has neither %s.safetensors nor %s.safetensors.index.json%s%s%s%s", dir,
                     stem, stem, name ? "; it has " : "", name ? name : "", name ? ": " : "",
                     name ? others[row].what : "");
    if (name) pl_diag_hint(d, "%s", others[row].hint);
out:
    free(name);
    return err;
}

/* The number of shards that the name of one ends with: model-00001-of-00003.safetensors. */
static unsigned shards_of(const char *name) {
    unsigned n = 0;
    const char *of = strstr(name, "-of-");
    return of && sscanf(of, "-of-%5u.safetensors", &n) == 1 ? n : 0;
}

/* A name in the directory that is a shard of another set, malloc'd; NULL: there is none. */
static char *find_other_set(const char *dir, const char *name) {
    const struct dirent *e;
    const unsigned n = shards_of(name);
    char *found = NULL;
    DIR *list = opendir(dir);
    while (list && n && !found && (e = readdir(list)))
        if (shards_of(e->d_name) && shards_of(e->d_name) != n) found = pl_strdup(e->d_name);
    if (list) closedir(list);
    return found;
}

pl_err pl_weight_files_missing(const struct pl_weight_files *f, const char *dir, const char *first,
                               uint64_t missing, pl_err absent, struct pl_diag *d) {
    const uint64_t n = json_object_size(f->shards);
    const char *slash = strrchr(f->path, '/');
    char *path = pl_path_join(dir, first), *other = find_other_set(dir, first), more[48];
    snprintf(more, sizeof more, missing > 1 ? "and %llu more are missing" : "is missing",
             (unsigned long long)missing - 1);
    pl_err err = path ? pl_diag_at(d, absent, path, 0, 0,
                                   "shard %s, named by %s, %s: %llu of %llu shards are there", path,
                                   slash ? slash + 1 : f->path, more,
                                   (unsigned long long)(n - missing), (unsigned long long)n)
                      : pl_host_oom(d, "a path");
    if (path && other)
        pl_diag_hint(d, "%s is of another revision of the model: " DOWNLOAD, other);
    else if (path)
        pl_diag_hint(d, "give the same `hf download` again: it fetches what is missing");
    free(other);
    free(path);
    return err;
}
