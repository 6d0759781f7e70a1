/* batch_padding.c - micro-batches of few sizes, so that what was recorded for one serves many. */
#include "estimator/ops/padding.h"
#include "runtime/data/batch.h"

/* Numbers of an octave: an eighth more rows at most, and twice that of targets, which meet the head
 * alone and vary independently of the tokens. */
enum { TOKEN_STEPS = 8, TARGET_STEPS = 4 };

static uint64_t to_step(uint64_t n, uint64_t steps, uint64_t most) {
    return pl_u64_max(n, pl_u64_min(pl_octave_step(n, steps), most));
}

/* Tokens come again from the first on, so that no id has all of them: the gradient of an embedding
 * adds up the tokens of an id one by one. */
static void add_tokens(struct pl_micro_batch *mb, uint64_t end) {
    for (uint64_t i = mb->n_tokens; i < end; i++) {
        mb->ids[i] = mb->ids[i - mb->n_tokens];
        mb->positions[i] = 0;
    }
    mb->offsets[mb->n_seqs] = (int32_t)end;
    mb->padding.tokens = end - mb->n_tokens;
}

static void add_samples(struct pl_micro_batch *mb, uint64_t end) {
    for (uint64_t k = mb->n_seqs; k < end; k++) {
        mb->samples[k] = 0;
        mb->offsets[k + 1] = mb->offsets[k];
    }
    mb->padding.seqs = end - mb->n_seqs;
}

/* A row stands at most once in target_rows, which ascend, so the last rows that are not among them
 * are taken. */
static void add_targets(struct pl_micro_batch *mb, uint64_t end) {
    uint64_t at = mb->n_targets, real = mb->n_targets;
    for (uint64_t row = mb->n_tokens + mb->padding.tokens; row-- > 0 && at < end;) {
        if (real && (uint64_t)mb->target_rows[real - 1] == row) {
            real--;
            continue;
        }
        mb->target_rows[at] = (int32_t)row;
        mb->weights[at] = 0;
        mb->targets[at++] = PL_TARGET_NONE;
    }
    mb->padding.targets = at - mb->n_targets;
}

void pl_micro_batch_pad(struct pl_micro_batch *mb, uint64_t most_tokens, uint64_t most_seqs) {
    if (mb->n_seqs == 0) return;
    const uint64_t tokens =
        to_step(mb->n_tokens, TOKEN_STEPS, pl_u64_min(most_tokens, mb->cap_tokens));
    add_tokens(mb, tokens);
    add_samples(mb, to_step(mb->n_seqs, 1, pl_u64_min(most_seqs, mb->cap_seqs)));
    add_targets(mb, to_step(mb->n_targets, TARGET_STEPS, tokens));
}
