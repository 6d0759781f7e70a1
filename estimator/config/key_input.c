#include "estimator/config/key_input.h"

#include "estimator/base/alloc.h"
#include "estimator/base/home_path.h"
#include "estimator/config/scalar.h"

#include <stdlib.h>

pl_err pl_key_fail_hint(const struct pl_key_input *in, pl_err err, const char *hint) {
    pl_diag_hint(in->d, "%s", hint);
    return err;
}

pl_err pl_key_wrong_type(const struct pl_key_input *in, const struct pl_node *node,
                         const char *wanted) {
    static const char *const kinds[] = {"", "a list", "a mapping"};
    char buf[PL_EXCERPT_BYTES];
    if (node->kind != PL_NODE_SCALAR)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`%s` must be %s, not %s", in->written, wanted, kinds[node->kind]);
    if (node->plain && !*node->text)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`%s` must be %s, not an empty value", in->written, wanted);
    return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                          node->plain ? "`%s` must be %s, not `%s`" : "`%s` must be %s, not \"%s\"",
                          in->written, wanted, pl_scalar_excerpt(node->text, buf));
}

pl_err pl_key_out_of_memory(const struct pl_key_input *in) {
    return pl_host_oom(in->d, in->written);
}

/* A non-empty text. Plain numbers pass (a run may be called 2024); a plain true is more likely a
 * misunderstanding of the key, and an empty text never means anything. */
pl_err pl_key_copy_text(const struct pl_key_input *in, const struct pl_node *node,
                        const char *wanted, char **out) {
    bool flag;
    if (node->kind != PL_NODE_SCALAR) return pl_key_wrong_type(in, node, wanted);
    if (node->plain && pl_scalar_bool(node->text, &flag))
        return pl_key_fail_hint(in, pl_key_wrong_type(in, node, wanted),
                                in->id == PL_KEY_resume ? PL_RESUME_HINT
                                                        : "put it in quotes if it is a name");
    if (!*node->text) {
        pl_err err = pl_origin_fail(in->origin, node, PL_ERR_CONFIG_RANGE, in->d,
                                    "`%s` holds an empty text", in->written);
        return pl_key_fail_hint(in, err, "give a value, or leave the key out for its default");
    }
    *out = pl_strdup(node->text);
    return *out ? PL_ERR_OK : pl_key_out_of_memory(in);
}

pl_err pl_key_copy_path(const struct pl_key_input *in, const struct pl_node *node,
                        const char *wanted, char **out) {
    struct pl_home_problem problem;
    char *text = NULL;
    PL_TRY(pl_key_copy_text(in, node, wanted, &text));
    pl_err err = pl_home_path(text, out, &problem);
    free(text);
    if (err == PL_ERR_OK) return err;
    if (err == PL_ERR_HOST_OOM) return pl_key_out_of_memory(in);
    pl_origin_fail(in->origin, node, err, in->d, "`%s`: %s", in->written, problem.what);
    return pl_key_fail_hint(in, err, problem.hint);
}

/* First node of a sequence, or the one node itself where a scalar stands for a list of one. */
const struct pl_node *pl_key_first_item(const struct pl_key_input *in) {
    if (in->node->kind == PL_NODE_SCALAR) return in->node;
    return in->node->first ? &in->doc->nodes[in->node->first] : NULL;
}

const struct pl_node *pl_key_next_item(const struct pl_key_input *in, const struct pl_node *item) {
    return item != in->node && item->next ? &in->doc->nodes[item->next] : NULL;
}
