/* snapshot.c - a planned step as PyTorch's memory snapshot, pickled by hand.
 *
 * Opcodes: Python's Lib/pickletools.py, protocol 2. Keys: torch/cuda/_memory_viz.py and
 * torch/csrc/cuda/memory_snapshot.cpp. Nothing is memoised: readers do not need it, and a plan of
 * 80 layers stays below a few megabytes. */
#include "estimator/picture/picture.h"

#include "estimator/base/checked.h"

#include <stdio.h>
#include <string.h>

/* Addresses only have to be distinct; this is where CUDA tends to map device memory. */
#define BASE_ADDRESS      UINT64_C(0x7f0000000000)
#define SEGMENT_ALIGNMENT (UINT64_C(2) << 20)

struct writer {
    const struct pl_plan *plan;
    uint64_t batch_address;
    struct pl_text *out;
};

/* --- opcodes --------------------------------------------------------------------------------- */

static void put_op(struct writer *w, const char *op) {
    pl_text_add(w->out, op);
}

static void put_string(struct writer *w, const char *s) {
    size_t n = strlen(s);
    const char size[5] = {'X', (char)(n & 0xff), (char)(n >> 8 & 0xff), (char)(n >> 16 & 0xff),
                          (char)(n >> 24 & 0xff)};
    pl_text_addn(w->out, size, sizeof size);
    pl_text_addn(w->out, s, n);
}

/* LONG1 with nine bytes: little-endian two's complement, the ninth keeps it positive. */
static void put_uint(struct writer *w, uint64_t v) {
    char bytes[11] = {(char)0x8a, 9};
    for (int i = 0; i < 8; i++)
        bytes[2 + i] = (char)(v >> 8 * i & 0xff);
    pl_text_addn(w->out, bytes, sizeof bytes);
}

static void key_string(struct writer *w, const char *key, const char *value) {
    put_string(w, key);
    put_string(w, value);
}

static void key_uint(struct writer *w, const char *key, uint64_t value) {
    put_string(w, key);
    put_uint(w, value);
}

#define DICT_BEGIN "}("
#define DICT_END   "u"
#define LIST_BEGIN "]("
#define LIST_END   "e"
#define FALSE_OP   "\x89"
#define TUPLE2_OP  "\x86"

/* --- the plan -------------------------------------------------------------------------------- */

static uint64_t address_of(const struct writer *w, uint32_t id) {
    bool job = w->plan->program->tensors[id].scope == PL_SCOPE_JOB;
    return (job ? BASE_ADDRESS : w->batch_address) + w->plan->places[id].offset;
}

/* One frame: the tensor where a function would stand, the op where its file would. */
static void put_frames(struct writer *w, const char *name, const char *where, uint32_t line) {
    put_string(w, "frames");
    put_op(w, LIST_BEGIN DICT_BEGIN);
    key_string(w, "name", name);
    key_string(w, "filename", where);
    key_uint(w, "line", line);
    put_op(w, DICT_END LIST_END);
}

static void put_tensor_frames(struct writer *w, uint32_t id, uint32_t op) {
    const struct pl_program *p = w->plan->program;
    char name[96], where[96];
    pl_tensor_name(p, id, name);
    if (p->tensors[id].scope == PL_SCOPE_JOB)
        snprintf(where, sizeof where, "job/%s", pl_category_name(p->tensors[id].category));
    else if (p->ops[op].layer == PL_NONE)
        snprintf(where, sizeof where, "%s/%s/%s", pl_phase_name(p->ops[op].phase),
                 pl_op_name(p->ops[op].kind), pl_category_name(p->tensors[id].category));
    else
        snprintf(where, sizeof where, "%s/layers.%u/%s/%s", pl_phase_name(p->ops[op].phase),
                 p->ops[op].layer, pl_op_name(p->ops[op].kind),
                 pl_category_name(p->tensors[id].category));
    put_frames(w, name, where, op);
}

static void put_event_head(struct writer *w, const char *action, uint64_t address, uint64_t size,
                           uint64_t time) {
    put_op(w, DICT_BEGIN);
    key_string(w, "action", action);
    key_uint(w, "addr", address);
    key_uint(w, "size", size);
    key_uint(w, "stream", 0);
    key_uint(w, "time_us", time);
}

static void put_event(struct writer *w, const char *action, uint32_t id, uint32_t op) {
    put_event_head(w, action, address_of(w, id), w->plan->program->tensors[id].bytes, op);
    put_tensor_frames(w, id, op);
    put_op(w, DICT_END);
}

static void put_segment_event(struct writer *w, const char *name, uint64_t address,
                              uint64_t bytes) {
    put_event_head(w, "segment_alloc", address, bytes, 0);
    put_frames(w, name, "plan", 0);
    put_op(w, DICT_END);
}

enum edge { EDGE_ALLOC, EDGE_FREE };

static void put_edge(struct writer *w, uint32_t id, uint32_t op, enum edge edge) {
    const struct pl_place_row *at = &w->plan->places[id];
    if (edge == EDGE_ALLOC && at->first_op == op) put_event(w, "alloc", id, op);
    if (edge == EDGE_FREE && at->last_op == op) {
        put_event(w, "free_requested", id, op);
        put_event(w, "free_completed", id, op);
    }
}

static bool is_step_tensor(const struct writer *w, uint32_t id, enum pl_phase phase) {
    const struct pl_tensor *t = &w->plan->program->tensors[id];
    return t->scope == PL_SCOPE_STEP && t->phase == phase && t->place == PL_PLACE_DEVICE;
}

static bool is_job_tensor(const struct writer *w, uint32_t id) {
    const struct pl_tensor *t = &w->plan->program->tensors[id];
    return t->scope == PL_SCOPE_JOB && t->place == PL_PLACE_DEVICE;
}

/* True if the operand at `i` occurs earlier among those of the op. */
static bool seen_before(const struct pl_op *o, int i, uint32_t id) {
    for (int j = 0; j < i; j++)
        if ((j < o->n_in ? o->in[j].id : o->out[j - o->n_in].id) == id) return true;
    return false;
}

static void put_op_edges(struct writer *w, uint32_t op, enum edge edge) {
    const struct pl_op *o = &w->plan->program->ops[op];
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        uint32_t id = i < o->n_in ? o->in[i].id : o->out[i - o->n_in].id;
        if (id == PL_NONE || !is_step_tensor(w, id, o->phase) || seen_before(o, i, id)) continue;
        put_edge(w, id, op, edge);
    }
}

/* The batch's inputs are there before the first op, whether it reads them or not. */
static void put_first_op(struct writer *w, uint32_t op, enum pl_phase phase, enum edge edge) {
    for (uint32_t id = 0; id < w->plan->program->n_tensors; id++)
        if (is_step_tensor(w, id, phase)) put_edge(w, id, op, edge);
}

static void put_phase(struct writer *w, enum pl_phase phase) {
    const struct pl_phase_range *r = &w->plan->program->phases[phase];
    for (uint32_t op = r->first_op; op < r->first_op + r->n_ops; op++) {
        for (enum edge edge = EDGE_ALLOC; edge <= EDGE_FREE; edge++) {
            if (op == r->first_op)
                put_first_op(w, op, phase, edge);
            else
                put_op_edges(w, op, edge);
        }
    }
}

static void put_trace(struct writer *w) {
    const struct pl_plan *plan = w->plan;
    put_string(w, "device_traces");
    put_op(w, LIST_BEGIN LIST_BEGIN);
    put_segment_event(w, "job arena", BASE_ADDRESS, plan->job_bytes);
    put_segment_event(w, "batch arena", w->batch_address, plan->batch_bytes);
    for (uint32_t id = 0; id < plan->program->n_tensors; id++)
        if (is_job_tensor(w, id)) put_event(w, "alloc", id, 0);
    put_phase(w, PL_PHASE_MICRO);
    put_phase(w, PL_PHASE_OPTIMIZER);
    put_op(w, LIST_END LIST_END);
}

/* --- segments -------------------------------------------------------------------------------- */

static void put_block_head(struct writer *w, uint64_t address, uint64_t size, uint64_t requested,
                           const char *state) {
    put_op(w, DICT_BEGIN);
    key_uint(w, "address", address);
    key_uint(w, "size", size);
    key_uint(w, "requested_size", requested);
    key_string(w, "state", state);
}

/* Job tensors lie one after the other in the order of their ids. */
static void put_job_blocks(struct writer *w) {
    const struct pl_plan *plan = w->plan;
    const struct pl_tensor *t = plan->program->tensors;
    uint64_t align = plan->program->traits.align_bytes;
    for (uint32_t id = 0; id < plan->program->n_tensors; id++) {
        uint64_t padded;
        if (!is_job_tensor(w, id) || !pl_u64_align(t[id].bytes, align, &padded)) continue;
        put_block_head(w, address_of(w, id), padded, t[id].bytes, "active_allocated");
        put_tensor_frames(w, id, 0);
        put_op(w, DICT_END);
    }
}

static void put_batch_block(struct writer *w) {
    put_block_head(w, w->batch_address, w->plan->batch_bytes, 0, "inactive");
    put_string(w, "frames");
    put_op(w, LIST_BEGIN LIST_END DICT_END);
}

static void put_segment(struct writer *w, const char *name, uint64_t address, uint64_t bytes,
                        uint64_t active, uint64_t requested, void (*blocks)(struct writer *)) {
    put_op(w, DICT_BEGIN);
    key_uint(w, "device", 0);
    key_uint(w, "address", address);
    key_uint(w, "total_size", bytes);
    key_uint(w, "allocated_size", active);
    key_uint(w, "active_size", active);
    key_uint(w, "requested_size", requested);
    key_uint(w, "stream", 0);
    key_string(w, "segment_type", "large");
    put_string(w, "segment_pool_id");
    put_uint(w, 0);
    put_uint(w, 0);
    put_op(w, TUPLE2_OP);
    put_string(w, "is_expandable");
    put_op(w, FALSE_OP);
    put_frames(w, name, "plan", 0);
    put_string(w, "blocks");
    put_op(w, LIST_BEGIN);
    blocks(w);
    put_op(w, LIST_END DICT_END);
}

void pl_snapshot_pickle(const struct pl_plan *plan, struct pl_text *out) {
    struct writer w = {.plan = plan, .out = out};
    uint64_t requested = 0;
    if (!pl_u64_align(BASE_ADDRESS + plan->job_bytes, SEGMENT_ALIGNMENT, &w.batch_address)) {
        out->failed = true;
        return;
    }
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        requested += plan->job_by_category[c];
    put_op(&w, "\x80\x02" DICT_BEGIN);
    put_string(&w, "segments");
    put_op(&w, LIST_BEGIN);
    put_segment(&w, "job arena", BASE_ADDRESS, plan->job_bytes, plan->job_bytes, requested,
                put_job_blocks);
    put_segment(&w, "batch arena", w.batch_address, plan->batch_bytes, 0, 0, put_batch_block);
    put_op(&w, LIST_END);
    put_trace(&w);
    put_string(&w, "allocator_settings");
    put_op(&w, DICT_BEGIN DICT_END);
    put_string(&w, "external_annotations");
    put_op(&w, LIST_BEGIN LIST_END DICT_END ".");
}
