/* key_input.h - a value as it was written, for the parsers of types. Internal to config/. */
#ifndef PL_ESTIMATOR_CONFIG_KEY_INPUT_H
#define PL_ESTIMATOR_CONFIG_KEY_INPUT_H

#include "estimator/base/diag.h"
#include "estimator/config/document.h"
#include "estimator/config/job.h"

struct pl_key_info;

struct pl_key_input {
    enum pl_key_id id;
    const struct pl_key_info *info;
    const char *written; /* the key as the user spelled it */
    const struct pl_origin *origin;
    const struct pl_document *doc; /* the document of `node`; NULL for verbatim text, which has no
                                      children */
    const struct pl_node *node;
    bool split; /* verbatim text: a LIST is cut at its separator */
    struct pl_diag *d;
};

/* These are shared by the parsers of values: they record a failure that says what was wanted, and
 * give the items of a list; a scalar is a list of one. */
pl_err pl_key_fail_hint(const struct pl_key_input *in, pl_err err, const char *hint);
pl_err pl_key_wrong_type(const struct pl_key_input *in, const struct pl_node *node,
                         const char *wanted);
pl_err pl_key_out_of_memory(const struct pl_key_input *in);
/* Copies a non-empty text into *out, owned. */
pl_err pl_key_copy_text(const struct pl_key_input *in, const struct pl_node *node,
                        const char *wanted, char **out);
/* pl_key_copy_text for a path, with `~/` expanded. */
pl_err pl_key_copy_path(const struct pl_key_input *in, const struct pl_node *node,
                        const char *wanted, char **out);
const struct pl_node *pl_key_first_item(const struct pl_key_input *in);
const struct pl_node *pl_key_next_item(const struct pl_key_input *in, const struct pl_node *item);

/* The hint for a `resume` that is true or false. */
#define PL_RESUME_HINT                                                                             \
    "`resume: auto`, the default, continues from the newest checkpoint of output_dir; `never` "    \
    "starts over; a path, such as ./true, names a checkpoint"

#endif
