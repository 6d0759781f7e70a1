#include "estimator/gguf/gguf_pre.h"

#include <string.h>

#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                                     \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                                     \
                "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define QWEN2                                                                                      \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define GPT4O                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORT_FORMS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER      \
    "+" LOWER "*" SHORT_FORMS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS

static const struct pl_gguf_pre pres[] = {
    {"default", NULL, false, false},
    {"gpt-2", NULL, false, false},
    {"phi-2", NULL, false, false},
    {"mpt", NULL, false, false},
    {"olmo", NULL, false, false},
    {"jais", NULL, false, false},
    {"trillion", NULL, false, false},
    {"granite-docling", NULL, false, false},
    {"smollm", NULL, true, false},
    {"starcoder", NULL, true, false},
    {"refact", NULL, true, false},
    {"command-r", NULL, true, false},
    {"codeshell", NULL, true, false},
    {"exaone", NULL, true, false},
    {"llama-bpe", LLAMA3, false, true},
    {"llama3", LLAMA3, false, true},
    {"llama-v3", LLAMA3, false, true},
    {"falcon3", LLAMA3, false, true},
    {"pixtral", LLAMA3, false, true},
    {"smaug-bpe", LLAMA3, false, false},
    {"dbrx", LLAMA3, false, false},
    {"qwen2", QWEN2, false, false},
    {"deepseek-r1-qwen", QWEN2, false, false},
    {"megrez", QWEN2, false, false},
    {"tekken", TEKKEN, false, true},
    {"gpt-4o", GPT4O, false, false},
    {"llama4", GPT4O, false, false},
};

const struct pl_gguf_pre *pl_gguf_pre_find(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (strlen(pres[i].name) == n && memcmp(pres[i].name, name, n) == 0) return &pres[i];
    return NULL;
}
