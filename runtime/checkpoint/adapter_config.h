/* adapter_config.h - adapter_config.json of a PEFT directory, as far as it decides arithmetic.
 *
 * In: a directory.  Out: rank, scale and what names the modules.  Needs: base, model, jansson.
 *   A1  a config that asks for more than y = W x + s B A x and modules that are trained whole is
 *       refused by the name of the key, so that no adapter is read as something it is not
 *   A2  a key that is absent has the value that PEFT's LoraConfig gives it (r 8, lora_alpha 8)
 * Use: pl_adapter_config_read(&c, dir, &d); ... pl_adapter_config_finish(&c); */
#ifndef PL_RUNTIME_CHECKPOINT_ADAPTER_CONFIG_H
#define PL_RUNTIME_CHECKPOINT_ADAPTER_CONFIG_H

#include "estimator/base/diag.h"
#include "estimator/model/targets.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PL_ADAPTER_STEM   "adapter_model"
#define PL_ADAPTER_CONFIG "adapter_config.json"

struct pl_adapter_config {
    char *path;   /* owned */
    json_t *root; /* owned */
    uint64_t r;
    double alpha;
    bool use_rslora;
    double scale; /* alpha / r; alpha / sqrt(r) with use_rslora (arXiv 2312.03732) */
    struct pl_target_choice choice;
    const char **names; /* owned: what the lists of the choice point into */
};

/* PL_ERR_CHECKPOINT_FILE, _FORMAT, or _MISMATCH for A1; *c is then finished. */
pl_err pl_adapter_config_read(struct pl_adapter_config *c, const char *dir, struct pl_diag *d);
void pl_adapter_config_finish(struct pl_adapter_config *c); /* safe on {0} */
/* Finds the modules of a model that such an adapter sits on; PL_ERR_CHECKPOINT_MISMATCH. */
pl_err pl_adapter_config_targets(const struct pl_adapter_config *c, const struct pl_model *m,
                                 struct pl_targets *out, struct pl_diag *d);
/* Gives a diagnosis that has no hint the name of the model that the adapter was trained on. */
void pl_adapter_config_hint(const struct pl_adapter_config *c, struct pl_diag *d);
/* Returns PL_ERR_CHECKPOINT_MISMATCH; the message begins with the path, and the hint is that of a
 * run that is to be resumed. */
pl_err pl_adapter_config_refuse(const struct pl_adapter_config *c, struct pl_diag *d,
                                const char *fmt, ...) PL_PRINTF(3, 4);

#endif
