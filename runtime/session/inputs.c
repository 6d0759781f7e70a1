#include "runtime/session/inputs.h"

pl_err pl_session_upload(struct pl_session *s, uint32_t tensor, const void *src, uint64_t bytes) {
    if (tensor == PL_NONE || bytes == 0) return PL_ERR_OK;
    return pl_exec_upload(&pl_session_rung(s)->exec, tensor, src, bytes);
}

pl_err pl_session_upload_inputs(struct pl_session *s, enum pl_phase phase) {
    struct pl_micro_batch *mb = &s->micro;
    const uint32_t *ids = pl_session_rung(s)->inputs[phase];
    if (ids[PL_ROLE_ORDER - PL_ROLE_IDS] != PL_NONE) pl_micro_batch_sort(mb);
    const struct {
        enum pl_role role;
        const void *src;
        uint64_t bytes;
    } rows[] = {{PL_ROLE_IDS, mb->ids, mb->n_tokens * 4},
                {PL_ROLE_ORDER, mb->order, mb->n_tokens * 4},
                {PL_ROLE_POSITIONS, mb->positions, mb->n_tokens * 4},
                {PL_ROLE_OFFSETS, mb->offsets, (mb->n_seqs + 1) * 4},
                {PL_ROLE_SAMPLES, mb->samples, mb->n_seqs * 8},
                {PL_ROLE_TARGET_ROWS, mb->target_rows, mb->n_targets * 4},
                {PL_ROLE_TARGETS, mb->targets, mb->n_targets * 4},
                {PL_ROLE_WEIGHTS_OF_TARGETS, mb->weights, mb->n_targets * 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        PL_TRY(pl_session_upload(s, ids[rows[i].role - PL_ROLE_IDS], rows[i].src, rows[i].bytes));
    return PL_ERR_OK;
}
