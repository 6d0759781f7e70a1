/* plimsoll.h - will a fine-tuning job fit, before anything is loaded.
 *
 * In: a model, by name or directory, and the job's settings.  Out: the bill of the plan that
 * training would allocate, to the byte.  Needs: libc, libyaml, jansson; no GPU, no weights.
 *   1  thread-safe: nothing is shared between calls; any number of threads may ask at once, and an
 *      answer may be read from any of them
 *   2  nothing is printed and nothing exits: a failure is NULL and a filled struct pl_vram_error
 * Every figure but `quick` is read off the plan, none off a formula; 1 GB is 10^9 bytes. Structs
 * grow at their end only, and only the library makes them.
 * Use:
 *   struct pl_vram_error error;
 *   struct pl_vram_estimate *e =
 *       pl_estimate_vram("Qwen/Qwen2.5-7B-Instruct", "lora", 16, 2, 2048, NULL, &error);
 *   if (e) printf("%.1f GB: %s\n", e->total_gb, pl_estimate_fits_on_card(e, 24) ? "fits" : "no");
 *   else fprintf(stderr, "%s (%s)\n", error.message, error.hint);
 *   pl_estimate_free(e);
 * Build: cc ask.c $(pkg-config --cflags --libs plimsoll) */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIMSOLL_VERSION_MAJOR 0
#define PLIMSOLL_VERSION_MINOR 2
#define PLIMSOLL_VERSION_PATCH 0
#define PLIMSOLL_VERSION       "0.2.0"

#if defined(__GNUC__)
#define PL_PUBLIC __attribute__((visibility("default")))
#else
#define PL_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct pl_vram_item {
    const char *name;
    uint64_t bytes;
};

struct pl_vram_remedy {
    const char *change; /* "gradient_checkpointing: full" */
    int64_t saves_bytes;
    double total_gb; /* with the change */
    bool fits;
};

/* The closed formula that is published for such questions, fed with the same inputs: approximate,
 * and no part of any verdict. GB, rounded to hundredths. */
struct pl_vram_quick {
    double weights_gb, gradients_gb, optimizer_gb, activations_gb, overhead_gb, total_gb;
};

struct pl_vram_estimate {
    /* GB of 10^9 bytes */
    double total_gb; /* what has to be free: arenas, context and comm */
    double model_weights_gb, lora_adapter_gb, optimizer_state_gb, activations_gb, kv_cache_gb;
    double overhead_gb; /* context, alignment, batch inputs: total_gb is the sum of its parts */
    double param_count_billions;
    const char *mode; /* "full", "lora", "qlora", "inference" */
    uint64_t batch_size, gradient_accumulation, max_seq_length;
    uint64_t lora_r; /* 0 under "full" */
    const char *const *notes;
    size_t n_notes;

    double gradients_gb, logits_gb, workspace_gb, context_gb, fragmentation_gb, host_ram_gb;
    uint64_t recommended_batch_size; /* the largest that fits; 0: none, or no budget */
    uint64_t param_count, trainable_param_count;

    /* exact bytes */
    uint64_t total_bytes, arena_bytes, job_arena_bytes, batch_arena_bytes, context_bytes;
    uint64_t host_bytes, weights_bytes, adapters_bytes, gradients_bytes, optimizer_bytes;
    uint64_t activations_bytes, logits_bytes, workspace_bytes, batch_bytes, alignment_bytes;
    uint64_t fragmentation_bytes;

    const char *verdict; /* "fits", "tight", "no"; "unknown" without a budget */
    bool fits;           /* fits or tight */
    bool approximate;    /* always false: the answer is a plan; `quick` alone is approximate */
    /* what was compared with what; 0 and NULL without a budget */
    double vram_gb;
    uint64_t budget_bytes, margin_bytes, usable_bytes;
    const char *budget_source;

    const char *peak_phase;
    const struct pl_vram_item *phases; /* peak of each */
    size_t n_phases;
    const struct pl_vram_item *ledger; /* sums to arena_bytes exactly */
    size_t n_ledger;
    const struct pl_vram_remedy *remedies; /* when it does not fit, each planned */
    size_t n_remedies;

    const char *json; /* the whole answer, as `plimsoll estimate-vram --json` prints it */

    struct pl_vram_quick quick;
    const char *refusal; /* what training would be refused with, "RUNTIME_DOES_NOT_FIT"; or NULL */

    /* the connections of this rank, not part of arenas and context; 0 where it is alone */
    double comm_gb;
    uint64_t comm_bytes;
};

struct pl_vram_error {
    /* what the command would exit with: 1 memory, 2 usage, 3 an architecture that cannot be
     * computed here (MODEL_UNSUPPORTED), 5 a bad model file */
    int exit_status;
    char code[64]; /* "MODEL_FILE"; stable for ever */
    char message[2048];
    char hint[512]; /* "" when there is none */
};

/* Plans one training step and bills it.
 *   model           a directory with config.json, an id in the Hugging Face hub cache, or a name or
 *                   id of the built-in catalogue ("Qwen/Qwen2.5-7B-Instruct")
 *   mode            "lora", "qlora" or "full"; NULL: "lora"; "inference": generating in place of a
 *                   step, with an adapter where the settings name its rank or modules
 *   lora_r, batch_size, max_seq_length
 *                   0: the default; the default batch is the largest that fits, or 1 without a
 *                   budget; a rank has no meaning under "full", and under "inference" it
 *                   is one of the settings
 *   settings        further "key=value" settings, NULL after the last, or NULL: any key that
 *                   `plimsoll help keys` lists, such as "gradient_checkpointing=none" or
 *                   "vram_budget=16GiB", which asks about a GPU unless "device=cpu" is
 *                   among them, and "gpu=NAME", a GPU that `plimsoll cards` lists
 *   error           may be NULL
 * Returns an estimate for pl_estimate_free(), or NULL. A job that does not fit is an estimate with
 * the verdict "no". */
PL_PUBLIC struct pl_vram_estimate *
pl_estimate_vram(const char *model, const char *mode, uint32_t lora_r, uint32_t batch_size,
                 uint32_t max_seq_length, const char *const *settings, struct pl_vram_error *error);

/* True if the job needs at most vram_gb, on exact bytes: the answer for `vram_gb` x 10^9 bytes that
 * can be had; false for NULL. A card is a GPU: where the settings named no device, no "gpu=NAME"
 * and no budget, the needs are those of the GPU's program and context at e->batch_size, not
 * total_gb, which is the CPU's. A card offers less than its nameplate; "gpu=NAME" makes a verdict
 * that knows by how much. */
PL_PUBLIC bool pl_estimate_fits_on_card(const struct pl_vram_estimate *e, double vram_gb);

/* "VRAM estimate (lora, 7.6B params, batch=2, seq=2048): total=17.4GB" into buf, cut to `size` with
 * its NUL. Returns the length of the whole text, as snprintf does; 0 for NULL. */
PL_PUBLIC size_t pl_estimate_summary(const struct pl_vram_estimate *e, char *buf, size_t size);

/* For languages that cannot read this header: `json` of the estimate, NULL for NULL; and the bytes
 * that pl_estimate_fits_on_card() compares with, 0 for NULL. */
PL_PUBLIC const char *pl_vram_json(const struct pl_vram_estimate *e);
PL_PUBLIC uint64_t pl_vram_card_bytes(const struct pl_vram_estimate *e);

PL_PUBLIC void pl_estimate_free(struct pl_vram_estimate *e); /* NULL-safe */

/* The same question as a receipt: one JSON text with what was asked, what it left open, the answer
 * (`planned`, which is `json` of the estimate) and digests, as `plimsoll estimate-vram --receipt`
 * writes it and `plimsoll plan --diff` compares it. NULL and *error as above. */
PL_PUBLIC char *pl_receipt_vram(const char *model, const char *mode, uint32_t lora_r,
                                uint32_t batch_size, uint32_t max_seq_length,
                                const char *const *settings, struct pl_vram_error *error);
PL_PUBLIC void pl_receipt_free(char *receipt); /* NULL-safe */

PL_PUBLIC const char *pl_version(void); /* of the library; PLIMSOLL_VERSION is the header's */

#ifdef __cplusplus
}
#endif

#endif
