#include "runtime/session/inputs.h"

pl_err pl_session_upload(struct pl_session *s, uint32_t tensor, const void *src, uint64_t bytes) {
    if (tensor == PL_NONE || bytes == 0) return PL_ERR_OK;
    return pl_exec_upload(&pl_session_rung(s)->exec, tensor, src, bytes);
}

/* Routing counts every token, so padding would have a part in the loss of experts. */
pl_err pl_session_fill(struct pl_session *s, const struct pl_step_batch *b, uint64_t first,
                       uint64_t n, struct pl_diag *d) {
    const struct pl_rung *rung = pl_session_rung(s);
    const struct pl_program *p = rung->planned.program;
    const bool routes = p->model->kinds >> PL_LAYER_EXPERTS & 1;
    PL_TRY(pl_micro_batch_fill(&s->micro, b, first, n, d));
    if (rung->pads) pl_micro_batch_pad(&s->micro, routes ? s->micro.n_tokens : p->tokens, p->seqs);
    return PL_ERR_OK;
}

struct pl_batch pl_session_counts(const struct pl_session *s) {
    const struct pl_micro_batch *mb = &s->micro;
    return (struct pl_batch){.n_tokens = mb->n_tokens + mb->padding.tokens,
                             .n_seqs = mb->n_seqs + mb->padding.seqs,
                             .n_targets = mb->n_targets + mb->padding.targets,
                             .max_len = mb->max_len};
}

pl_err pl_session_upload_inputs(struct pl_session *s, enum pl_phase phase) {
    struct pl_micro_batch *mb = &s->micro;
    const uint32_t *ids = pl_session_rung(s)->inputs[phase];
    const struct pl_batch n = pl_session_counts(s);
    if (ids[PL_ROLE_ORDER - PL_ROLE_IDS] != PL_NONE) pl_micro_batch_sort(mb);
    const struct {
        enum pl_role role;
        const void *src;
        uint64_t bytes;
    } rows[] = {{PL_ROLE_IDS, mb->ids, n.n_tokens * 4},
                {PL_ROLE_ORDER, mb->order, n.n_tokens * 4},
                {PL_ROLE_POSITIONS, mb->positions, n.n_tokens * 4},
                {PL_ROLE_OFFSETS, mb->offsets, (n.n_seqs + 1) * 4},
                {PL_ROLE_SAMPLES, mb->samples, n.n_seqs * 8},
                {PL_ROLE_TARGET_ROWS, mb->target_rows, n.n_targets * 4},
                {PL_ROLE_TARGETS, mb->targets, n.n_targets * 4},
                {PL_ROLE_WEIGHTS_OF_TARGETS, mb->weights, n.n_targets * 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        PL_TRY(pl_session_upload(s, ids[rows[i].role - PL_ROLE_IDS], rows[i].src, rows[i].bytes));
    return PL_ERR_OK;
}
