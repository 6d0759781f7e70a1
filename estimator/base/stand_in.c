/* stand_in.c - see stand_in.h. */
#include "estimator/base/stand_in.h"

#include <string.h>

#define DOWNLOAD                                                                                   \
    "fetch the content with `git lfs pull` in its directory, or with `hf download OWNER/NAME`"
#define AGAIN "download it again with `hf download OWNER/NAME`"
#define CONVERT                                                                                    \
    "a safetensors copy is written by: python -c \"from transformers import AutoModelForCausalLM " \
    "as M; M.from_pretrained('DIR').save_pretrained('NEW')\""

/* How they begin: pointers of Git LFS (github.com/git-lfs/git-lfs, docs/spec.md), what a server
 * sends in place of a file, and other formats of weights. */
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
     {"a GGUF file, which holds a model for inference",
      "fine-tune the model it was made from: a directory with config.json and safetensors"}},
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
