#include "estimator/base/stand_in.h"

#include "estimator/base/alloc.h"
#include "estimator/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DOWNLOAD                                                                                   \
    "`git lfs pull` in its directory fetches the content, and so does `plimsoll fetch OWNER/NAME`"
#define AGAIN "`plimsoll fetch OWNER/NAME` downloads it again"
#define CONVERT                                                                                    \
    "a safetensors copy is written by: python -c \"from transformers import AutoModelForCausalLM " \
    "as M; M.from_pretrained('DIR').save_pretrained('NEW')\""

/* The first bytes of such files: pointers of Git LFS (github.com/git-lfs/git-lfs, docs/spec.md),
 * pages that a server sends in place of a file, and other formats of weights. */
static const struct {
    const char *bytes;
    size_t n;
    struct pl_stand_in is;
} beginnings[] = {
    {"version https://git-lfs", 23, {"a Git LFS pointer, not the file itself", DOWNLOAD}},
    {"version https://hawser", 22, {"a Git LFS pointer, not the file itself", DOWNLOAD}},
    {"<", 1, {"looks like HTML or XML, as a failed download leaves it", AGAIN}},
    {"Entry not found", 15, {"an error message of the hub, not the file itself", AGAIN}},
    {"Repository not found", 20, {"an error message of the hub, not the file itself", AGAIN}},
    {"Access to model", 15, {"an error message of the hub, not the file itself", AGAIN}},
    {"Invalid username or password",
     28,
     {"an error message of the hub, not the file itself", AGAIN}},
    {"GGUF",
     4,
     {"a GGUF file", "name the file itself as the model, with a name that ends in .gguf"}},
    {"PK\x03\x04", 4, {"a zip archive, as torch.save writes it", CONVERT}},
    {"\x80\x02", 2, {"a pickle, as torch.save writes it", CONVERT}},
    {"\x89HDF\r\n", 6, {"an HDF5 file, as TensorFlow writes it", CONVERT}},
    {"\0\0\0\0\0\0\0\0", 8, {"zeros, as a download that was cut short leaves them", AGAIN}},
    {"\x1F\x8B", 2, {"compressed (gzip)", "unpack it first: gunzip FILE"}},
};

const struct pl_stand_in *pl_stand_in_find(const void *bytes, size_t n) {
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (n >= beginnings[i].n && memcmp(bytes, beginnings[i].bytes, beginnings[i].n) == 0)
            return &beginnings[i].is;
    return NULL;
}

/* --- directories --- */

#define FROM_STATE_DICT                                                                            \
    "write it with save_pretrained() from the program that saved it, as a directory with "         \
    "config.json and model.safetensors"
#define ALL "`plimsoll fetch OWNER/NAME` downloads what a job needs of the repository"

/* The first row that any file of the directory fits is told. STEM is `model` or `adapter_model`. */
static const struct {
    const char *stem; /* nullable: of every stem */
    const char *begin, *end;
    struct pl_stand_in is;
} others[] = {
    {NULL,
     "",
     ".incomplete",
     {"a download that was not finished",
      "the same download again continues: `plimsoll fetch OWNER/NAME`"}},
    {"model", "model-", ".safetensors", {"a shard, and there is no index of the shards", ALL}},
    {"model",
     "adapter_model",
     ".safetensors",
     {"the weights of an adapter, not of a model",
      "name its base as the model, and this directory as the adapter (`adapter_path`, --adapter)"}},
    {"model",
     "adapter_model",
     ".bin",
     {"the weights of an adapter, not of a model",
      "name its base as the model, and this directory as the adapter (`adapter_path`, --adapter)"}},
    {"adapter_model",
     "adapter_model",
     ".bin",
     {"the adapter as torch.save writes it",
      "write a safetensors copy: python -c \"import torch, safetensors.torch as s; "
      "s.save_file(torch.load('adapter_model.bin', weights_only=True), "
      "'adapter_model.safetensors')\""}},
    {NULL,
     "pytorch_model_fsdp",
     "",
     {"a checkpoint of FSDP, in parts of ranks",
      "join the parts: accelerate merge-weights DIR NEW"}},
    {NULL,
     "zero_to_fp32.py",
     "",
     {"the script of DeepSpeed that joins the parts of ranks",
      "run it in that directory: python zero_to_fp32.py . NEW --safe_serialization"}},
    {"model",
     "pytorch_model",
     ".bin.index.json",
     {"the index of shards that torch.save wrote", CONVERT}},
    {"model", "pytorch_model", ".bin", {"the model as torch.save writes it", CONVERT}},
    {"model",
     "consolidated",
     ".safetensors",
     {"weights in the layout of mistral-inference",
      "download the files model*.safetensors of the same repository, or convert these with "
      "convert_mistral_weights_to_hf.py of transformers"}},
    {"model",
     "consolidated",
     ".pth",
     {"weights in Meta's own layout",
      "download the repository in the layout of transformers, or convert these with "
      "convert_llama_weights_to_hf.py of transformers"}},
    {NULL,
     "",
     ".gguf",
     {"a GGUF file", "name the file itself as the model; adapters are read as safetensors"}},
    {"model",
     "tf_model",
     ".h5",
     {"the model as TensorFlow writes it",
      "write a safetensors copy with an earlier transformers: "
      "AutoModelForCausalLM.from_pretrained('DIR', from_tf=True).save_pretrained('NEW')"}},
    {"model",
     "flax_model",
     ".msgpack",
     {"the model as Flax writes it",
      "write a safetensors copy with an earlier transformers: "
      "AutoModelForCausalLM.from_pretrained('DIR', from_flax=True).save_pretrained('NEW')"}},
    {NULL,
     "",
     ".safetensors",
     {"a safetensors file of another name",
      "rename it to the name that is looked for, if it holds all of the weights"}},
    {NULL, "", ".bin", {"weights as torch.save writes them", FROM_STATE_DICT}},
    {NULL, "", ".pth", {"weights as torch.save writes them", FROM_STATE_DICT}},
    {NULL, "", ".pt", {"weights as torch.save writes them", FROM_STATE_DICT}},
    {NULL, "", ".ckpt", {"a checkpoint as torch.save writes it", FROM_STATE_DICT}},
};
enum { N_OTHERS = sizeof others / sizeof *others };

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool name_fits(size_t row, const char *stem, const char *name) {
    return (!others[row].stem || strcmp(others[row].stem, stem) == 0) &&
           strncmp(name, others[row].begin, strlen(others[row].begin)) == 0 &&
           ends_with(name, others[row].end);
}

pl_err pl_stand_in_list(const char *dir, const char *stem, char **name,
                        const struct pl_stand_in **is, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    const struct dirent *e;
    DIR *list = opendir(dir);
    size_t best = N_OTHERS;
    *name = NULL;
    *is = NULL;
    if (!list) return errno == ENOMEM ? pl_host_oom(d, dir) : PL_ERR_OK;
    while (err == PL_ERR_OK && (e = readdir(list))) {
        size_t r = 0;
        while (r < best && !name_fits(r, stem, e->d_name))
            r++;
        if (r == best) continue;
        best = r;
        *is = &others[r].is;
        free(*name);
        if (!(*name = pl_strdup(e->d_name))) err = pl_host_oom(d, "a name");
    }
    closedir(list);
    return err;
}

void pl_stand_in_hint(const struct pl_stand_in *is, const char *dir, struct pl_diag *d) {
    struct pl_text hint = {0};
    const char *at = is->hint;
    for (const char *word; (word = strstr(at, "DIR")); at = word + 3)
        pl_text_addf(&hint, "%.*s%s", (int)(word - at), at, dir);
    pl_text_add(&hint, at);
    pl_diag_hint(d, "%s", hint.failed ? is->hint : pl_text_str(&hint));
    pl_text_finish(&hint);
}
