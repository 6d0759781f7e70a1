/* batch.c - the samples of a step, and the inputs of the micro-batches cut from them. */
#include "runtime/data/batch.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/ops/padding.h"
#include "runtime/data/data.h"

#include <stdlib.h>
#include <string.h>

void pl_step_batch_finish(struct pl_step_batch *b) {
    for (uint64_t i = 0; i < b->cap; i++)
        pl_sample_finish(&b->samples[i]);
    pl_sample_finish(&b->row);
    free(b->samples);
    free(b->members);
    free(b->weights);
    free(b->slot);
    free(b->by_slot);
    free(b->slot_start);
    pl_packer_finish(&b->packer);
    *b = (struct pl_step_batch){0};
}

static void *grown(void *array, uint64_t n, size_t bytes_each) {
    uint64_t bytes;
    if (!pl_u64_mul(n, bytes_each, &bytes) || bytes > SIZE_MAX) return NULL;
    return pl_realloc(array, (size_t)bytes);
}

/* Room for one more sample than the step holds. */
static pl_err reserve_sample(struct pl_step_batch *b, struct pl_diag *d) {
    if (b->n < b->cap) return PL_ERR_OK;
    uint64_t cap = b->cap ? 2 * b->cap : 16;
    struct pl_sample *samples = grown(b->samples, cap, sizeof *samples);
    if (samples) b->samples = samples;
    uint64_t *slot = samples ? grown(b->slot, cap, sizeof *slot) : NULL;
    if (slot) b->slot = slot;
    uint64_t *by_slot = slot ? grown(b->by_slot, cap, sizeof *by_slot) : NULL;
    if (by_slot) b->by_slot = by_slot;
    struct pl_member *members = by_slot ? grown(b->members, cap, sizeof *members) : NULL;
    if (members) b->members = members;
    struct pl_target_weights *weights = members ? grown(b->weights, cap, sizeof *weights) : NULL;
    if (!weights)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a step of %llu samples",
                           (unsigned long long)cap);
    b->weights = weights;
    memset(b->samples + b->cap, 0, (size_t)(cap - b->cap) * sizeof *b->samples);
    b->cap = cap;
    return PL_ERR_OK;
}

static pl_err begin(struct pl_step_batch *b, const struct pl_batch_source *from, uint64_t slots,
                    struct pl_diag *d) {
    b->n = b->rows = b->targets = b->tokens = 0;
    if (from->grouping.samples && !pl_u64_mul(slots, from->grouping.samples, &slots))
        return pl_diag_set(d, PL_ERR_OVERFLOW, "a step of more than 2^64 samples");
    b->slots = slots;
    if (slots >= b->cap_slots) {
        uint64_t *start = grown(b->slot_start, pl_u64_max(slots, slots + 1), sizeof *start);
        if (!start)
            return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a step of %llu samples",
                               (unsigned long long)slots);
        b->slot_start = start;
        b->cap_slots = slots + 1;
    }
    return pl_packer_begin(&b->packer, slots, from->pack_tokens, d);
}

/* --- groups ----------------------------------------------------------------------------------- */

/* Takes tokens [begin, end) of the row as a sample. */
static pl_err take_part(struct pl_step_batch *b, uint64_t begin, uint64_t end, struct pl_diag *d) {
    struct pl_sample *s = &b->samples[b->n];
    struct pl_member *m = &b->members[b->n];
    const unsigned flags = pl_label_part_flags(b->row.labels[begin]);
    if (!pl_sample_reserve(s, end - begin)) return pl_host_oom(d, "a sample");
    s->n = end - begin;
    memcpy(s->ids, b->row.ids + begin, (size_t)s->n * sizeof *s->ids);
    memcpy(s->labels, b->row.labels + begin, (size_t)s->n * sizeof *s->labels);
    s->labels[0] = pl_sample_label(&b->row, begin);
    *m = (struct pl_member){.undesired = flags & PL_PART_UNDESIRED};
    while (m->answer < s->n && s->labels[m->answer] == PL_LABEL_MASKED)
        m->answer++;
    return PL_ERR_OK;
}

/* The answer of the sample at `from` after the prompt of the one at `to`: a sample of its own. */
static pl_err join(struct pl_step_batch *b, uint64_t to, uint64_t from, uint64_t most,
                   struct pl_diag *d) {
    const struct pl_sample *prompt = &b->samples[to], *answer = &b->samples[from];
    const uint64_t cut = b->members[to].answer, begin = b->members[from].answer;
    const uint64_t n = pl_u64_min(cut + answer->n - begin, most);
    struct pl_sample *s = &b->samples[to + 1];
    b->members[to + 1] = (struct pl_member){.answer = cut, .is_partner = true};
    s->n = 0;
    if (!prompt->n || !answer->n) return PL_ERR_OK;
    if (!pl_sample_reserve(s, n)) return pl_host_oom(d, "a sample");
    s->n = n;
    for (uint64_t i = 0; i < n; i++) {
        s->ids[i] = i < cut ? prompt->ids[i] : answer->ids[begin + i - cut];
        s->labels[i] = i < cut ? PL_LABEL_MASKED : s->ids[i];
    }
    return PL_ERR_OK;
}

static pl_err add_partners(struct pl_step_batch *b, const struct pl_grouping *g,
                           struct pl_diag *d) {
    const uint64_t circle = (uint64_t)g->exchange * 2;
    for (uint64_t at = 0; at < b->n; at += 2) {
        const uint64_t first = at - at % circle, end = pl_u64_min(first + circle, b->n);
        PL_TRY(join(b, at, at > first ? at - 2 : end - 2, g->most_tokens, d));
    }
    return PL_ERR_OK;
}

/* A group of which one sample has nothing to score is left out as a whole. */
static void count_group(struct pl_step_batch *b, uint64_t first, uint32_t samples, bool prompts) {
    bool whole = true;
    for (uint64_t i = first; i < first + samples; i++) {
        struct pl_member *m = &b->members[i];
        const struct pl_sample *s = &b->samples[i];
        m->scored = s->n - m->answer;
        m->predicted = pl_sample_targets(s);
        whole = whole && m->predicted;
    }
    for (uint64_t i = first; i < first + samples; i++) {
        struct pl_member *m = &b->members[i];
        struct pl_sample *s = &b->samples[i];
        if (!whole) s->n = 0;
        if (prompts && i == first && s->n) memcpy(s->labels, s->ids, (size_t)s->n * sizeof *s->ids);
        m->targets = pl_sample_targets(s);
        if (s->n && !m->is_partner) b->targets += m->predicted;
        b->tokens += s->n;
    }
}

/* Appends the samples of a row; a sample that other rows make is empty until all are there. */
static pl_err append_group(struct pl_step_batch *b, const struct pl_batch_source *from,
                           uint64_t row, bool *full, struct pl_diag *d) {
    *full = b->n + from->grouping.samples > b->slots;
    if (*full) return PL_ERR_OK;
    PL_TRY(pl_data_sample(from->data, row, &b->row, d));
    uint64_t begin = 0;
    for (uint32_t k = 0; k < from->grouping.samples; k++) {
        PL_TRY(reserve_sample(b, d));
        b->slot[b->n] = b->n;
        b->members[b->n] = (struct pl_member){0};
        b->weights[b->n] = (struct pl_target_weights){.all = 1};
        b->samples[b->n].n = 0;
        if (begin < b->row.n) {
            uint64_t end = begin + 1;
            while (end < b->row.n && !pl_label_begins_part(b->row.labels[end]))
                end++;
            PL_TRY(take_part(b, begin, end, d));
            begin = end;
        }
        b->n++;
    }
    b->rows++;
    return PL_ERR_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* *full: no slot takes the row; it begins the next step. */
static pl_err append(struct pl_step_batch *b, const struct pl_batch_source *from, uint64_t row,
                     bool *full, struct pl_diag *d) {
    struct pl_data *data = from->data;
    if (from->grouping.samples) return append_group(b, from, row, full, d);
    PL_TRY(reserve_sample(b, d));
    *full = !pl_packer_put(&b->packer, pl_data_tokens(data, row), &b->slot[b->n]);
    if (*full) return PL_ERR_OK;
    struct pl_sample *s = &b->samples[b->n];
    b->members[b->n] = (struct pl_member){0};
    PL_TRY(pl_data_sample(data, row, s, d));
    b->weights[b->n] = (struct pl_target_weights){.all = (double)pl_sample_weight(s)};
    uint64_t targets = pl_sample_targets(s);
    if (!targets) s->n = 0;
    b->targets += targets;
    b->tokens += s->n;
    b->n++;
    b->rows++;
    return PL_ERR_OK;
}

/* Sorts the samples by slot, those of one slot in the order they came (counting sort). */
static void sort_by_slot(struct pl_step_batch *b) {
    memset(b->slot_start, 0, (size_t)(b->slots + 1) * sizeof *b->slot_start);
    for (uint64_t i = 0; i < b->n; i++)
        b->slot_start[b->slot[i]]++;
    for (uint64_t s = 0, start = 0; s <= b->slots; s++) {
        uint64_t count = b->slot_start[s];
        b->slot_start[s] = start;
        start += count;
    }
    for (uint64_t i = 0; i < b->n; i++)
        b->by_slot[b->slot_start[b->slot[i]]++] = i;
    /* every start has moved on to the next one's */
    memmove(b->slot_start + 1, b->slot_start, (size_t)b->slots * sizeof *b->slot_start);
    b->slot_start[0] = 0;
}

/* Slots are taken from the first on; those after the last that holds a row are no part of a step.
 * */
static pl_err end(struct pl_step_batch *b, const struct pl_batch_source *from, struct pl_diag *d) {
    uint64_t used = 0;
    const struct pl_grouping *g = &from->grouping;
    if (g->samples && g->exchange) PL_TRY(add_partners(b, g, d));
    for (uint64_t i = 0; g->samples && i < b->n; i += g->samples)
        count_group(b, i, g->samples, g->trains_prompts);
    for (uint64_t i = 0; i < b->n; i++)
        used = pl_u64_max(used, b->slot[i] + 1);
    b->slots = used;
    sort_by_slot(b);
    return PL_ERR_OK;
}

pl_err pl_step_batch_load(struct pl_step_batch *b, const struct pl_batch_source *from,
                          uint64_t position, uint64_t slots, struct pl_diag *d) {
    const uint64_t left = pl_walk_left(from->walk, position);
    bool full = false;
    PL_TRY(begin(b, from, slots, d));
    while (!full && b->rows < left)
        PL_TRY(append(b, from, pl_walk_row(from->walk, position + b->rows), &full, d));
    return end(b, from, d);
}

pl_err pl_step_batch_load_rows(struct pl_step_batch *b, const struct pl_batch_source *from,
                               uint64_t slots, const uint64_t *rows, uint64_t n_rows,
                               struct pl_diag *d) {
    bool full = n_rows == 0;
    PL_TRY(begin(b, from, slots, d));
    while (!full)
        PL_TRY(append(b, from, rows[b->rows % n_rows], &full, d));
    return end(b, from, d);
}

/* n items of `bytes` each, at least one, so that NULL only ever means no memory. */
static void *array(uint64_t n, size_t bytes) {
    return n < SIZE_MAX / bytes ? pl_calloc((size_t)n + 1, bytes) : NULL;
}

pl_err pl_micro_batch_init(struct pl_micro_batch *mb, uint64_t tokens, uint64_t seqs,
                           struct pl_diag *d) {
    *mb = (struct pl_micro_batch){
        .ids = array(tokens, sizeof *mb->ids),
        .positions = array(tokens, sizeof *mb->positions),
        .order = array(tokens, sizeof *mb->order),
        .spare = array(tokens, sizeof *mb->spare),
        .offsets = array(seqs, sizeof *mb->offsets), /* seqs + 1 of them */
        .target_rows = array(tokens, sizeof *mb->target_rows),
        .targets = array(tokens, sizeof *mb->targets),
        .weights = array(tokens, sizeof *mb->weights),
        .samples = array(seqs, sizeof *mb->samples),
        .cap_tokens = tokens,
        .cap_seqs = seqs,
    };
    if (mb->ids && mb->positions && mb->order && mb->spare && mb->offsets && mb->target_rows &&
        mb->targets && mb->weights && mb->samples)
        return PL_ERR_OK;
    pl_micro_batch_finish(mb);
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a micro-batch of %llu tokens",
                       (unsigned long long)tokens);
}

void pl_micro_batch_finish(struct pl_micro_batch *mb) {
    free(mb->ids);
    free(mb->positions);
    free(mb->order);
    free(mb->spare);
    free(mb->offsets);
    free(mb->target_rows);
    free(mb->targets);
    free(mb->weights);
    free(mb->samples);
    *mb = (struct pl_micro_batch){0};
}

void pl_micro_batch_clear(struct pl_micro_batch *mb) {
    mb->n_tokens = mb->n_seqs = mb->n_targets = mb->max_len = 0;
    mb->padding.tokens = mb->padding.seqs = mb->padding.targets = 0;
}

/* The weight of token t of a sample as a target. */
static double weight_of(const struct pl_step_batch *b, uint64_t number, uint64_t t) {
    const struct pl_target_weights *w = &b->weights[number];
    const uint64_t first = pl_u64_max(b->members[number].answer, 1);
    if (t < first) return w->all;
    return w->all + w->answer * (t - first < w->tail ? 1 : w->tail_factor);
}

/* The last token of a sample predicts nothing: a target's row never leaves its own sequence. */
static void add_sample(struct pl_micro_batch *mb, const struct pl_step_batch *b, uint64_t number) {
    const struct pl_sample *s = &b->samples[number];
    const uint64_t base = mb->n_tokens, position = s->n > mb->long_from ? mb->long_base : 0;
    memcpy(mb->ids + base, s->ids, (size_t)s->n * sizeof *s->ids);
    for (uint64_t t = 0; t < s->n; t++) {
        mb->positions[base + t] = (int32_t)(position + t);
        if (t + 1 == s->n || s->labels[t + 1] == PL_LABEL_MASKED) continue;
        mb->weights[mb->n_targets] = (float)weight_of(b, number, t + 1);
        mb->target_rows[mb->n_targets] = (int32_t)(base + t);
        mb->targets[mb->n_targets++] = s->labels[t + 1];
    }
    mb->samples[mb->n_seqs++] = number;
    mb->n_tokens += s->n;
    mb->offsets[mb->n_seqs] = (int32_t)mb->n_tokens;
    mb->max_len = pl_u64_max(mb->max_len, s->n);
}

static bool takes(const struct pl_micro_batch *mb, const struct pl_member *m) {
    return mb->members == PL_MEMBERS_ALL || m->is_partner == (mb->members == PL_MEMBERS_PARTNERS);
}

void pl_micro_batch_weigh(struct pl_micro_batch *mb, const struct pl_step_batch *b) {
    uint64_t target = 0;
    for (uint64_t k = 0; k < mb->n_seqs; k++) {
        const struct pl_sample *s = &b->samples[mb->samples[k]];
        for (uint64_t t = 1; t < s->n; t++)
            if (pl_label_is_target(s->labels[t]))
                mb->weights[target++] = (float)weight_of(b, mb->samples[k], t);
    }
}

pl_err pl_micro_batch_fill(struct pl_micro_batch *mb, const struct pl_step_batch *b, uint64_t first,
                           uint64_t n, struct pl_diag *d) {
    pl_micro_batch_clear(mb);
    mb->offsets[0] = 0;
    uint64_t end = b->slot_start[pl_u64_min(first + n, b->slots)];
    for (uint64_t k = b->slot_start[pl_u64_min(first, b->slots)]; k < end; k++) {
        uint64_t i = b->by_slot[k];
        const struct pl_sample *s = &b->samples[i];
        if (!s->n || !takes(mb, &b->members[i])) continue;
        if (mb->n_seqs >= mb->cap_seqs || s->n > mb->cap_tokens - mb->n_tokens) /* B3 */
            return pl_diag_set(d, PL_ERR_PLAN_BROKEN,
                               "a micro-batch of %llu tokens and %llu samples was planned, and a "
                               "sample of %llu tokens is too much for it",
                               (unsigned long long)mb->cap_tokens, (unsigned long long)mb->cap_seqs,
                               (unsigned long long)s->n);
        add_sample(mb, b, i);
    }
    return PL_ERR_OK;
}

/* Two passes for a vocabulary of four million. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static uint32_t digit(int32_t id, uint32_t shift) {
    return (uint32_t)id >> shift & (DIGITS - 1);
}

/* One digit of a radix sort; tokens that agree in it keep their order. */
static void sort_digit(const int32_t *ids, uint64_t n, uint32_t shift, const int32_t *from,
                       int32_t *to) {
    uint64_t start[DIGITS] = {0};
    for (uint64_t i = 0; i < n; i++)
        start[digit(ids[i], shift)]++;
    for (uint64_t d = 0, before = 0; d < DIGITS; d++) {
        uint64_t count = start[d];
        start[d] = before;
        before += count;
    }
    for (uint64_t i = 0; i < n; i++)
        to[start[digit(ids[from[i]], shift)]++] = from[i];
}

void pl_micro_batch_sort(struct pl_micro_batch *mb) {
    const uint64_t n = mb->n_tokens + mb->padding.tokens;
    uint32_t bits = 0;
    for (uint64_t i = 0; i < n; i++) {
        mb->order[i] = (int32_t)i;
        bits |= (uint32_t)mb->ids[i];
    }
    for (uint32_t shift = 0; shift < 32 && bits >> shift; shift += DIGIT_BITS) {
        sort_digit(mb->ids, n, shift, mb->order, mb->spare);
        int32_t *sorted = mb->spare;
        mb->spare = mb->order;
        mb->order = sorted;
    }
}

/* --- padding ---------------------------------------------------------------------------------- */

/* Micro-batches have few sizes, so that what was recorded for one serves many: so many numbers of
 * an octave, with an eighth more rows at most, and twice that of targets, which meet the head alone
 * and vary independently of the tokens. */
enum { TOKEN_STEPS = 8, TARGET_STEPS = 4 };

static uint64_t padded(uint64_t n, uint64_t steps, uint64_t most) {
    return pl_u64_max(n, pl_u64_min(pl_octave_step(n, steps), most));
}

/* Tokens come again from the first on, so that no id has all of them: the gradient of an embedding
 * adds up the tokens of an id one by one. */
static void pad_tokens(struct pl_micro_batch *mb, uint64_t end) {
    for (uint64_t i = mb->n_tokens; i < end; i++) {
        mb->ids[i] = mb->ids[i - mb->n_tokens];
        mb->positions[i] = 0;
    }
    mb->offsets[mb->n_seqs] = (int32_t)end;
    mb->padding.tokens = end - mb->n_tokens;
}

static void pad_samples(struct pl_micro_batch *mb, uint64_t end) {
    for (uint64_t k = mb->n_seqs; k < end; k++) {
        mb->samples[k] = 0;
        mb->offsets[k + 1] = mb->offsets[k];
    }
    mb->padding.seqs = end - mb->n_seqs;
}

/* A row stands at most once in target_rows, which ascend, so the last rows that are not among them
 * are taken. */
static void pad_targets(struct pl_micro_batch *mb, uint64_t end) {
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
        padded(mb->n_tokens, TOKEN_STEPS, pl_u64_min(most_tokens, mb->cap_tokens));
    pad_tokens(mb, tokens);
    pad_samples(mb, padded(mb->n_seqs, 1, pl_u64_min(most_seqs, mb->cap_seqs)));
    pad_targets(mb, padded(mb->n_targets, TARGET_STEPS, tokens));
}
