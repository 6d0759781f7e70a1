/* embed4.c - EMBED4: rows of an embedding that is held as 4-bit codes, by token id. A row may begin
 * inside a block. Values are those of DEQUANT4, bit for bit. */
#include "runtime/kernels/cpu/chunk.h"
#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

#define BLOCK PL_QUANT_BLOCK

struct embed4 {
    const int32_t *ids;
    const uint8_t *codes;
    const float *absmax;    /* of blocks, or of nests where there is absmax8 */
    const uint8_t *absmax8; /* NULL = not nested */
    float offset, scale;
    const float *table, *map; /* map: of absmax8 */
    struct pl_view x;         /* [N,C] */
};

static float absmax_of(const struct embed4 *e, uint64_t block) {
    float absmax;
    if (!e->absmax8) return e->absmax[block];
    pl_quant_unnest_by(e->map, e->absmax8 + block, e->absmax + block / PL_QUANT_NEST, e->offset, 1,
                       &absmax);
    return absmax;
}

/* Elements [at, end), all of one block. */
static void dequantise(const struct embed4 *e, uint64_t at, uint64_t end, float *out) {
    const float absmax = absmax_of(e, at / BLOCK);
    float value[PL_QUANT_LEVELS];
    for (int i = 0; i < PL_QUANT_LEVELS; i++)
        value[i] = e->table[i] * absmax;
    for (uint64_t i = at; i < end; i++)
        out[i - at] = value[i % 2 ? e->codes[i / 2] & 15u : e->codes[i / 2] >> 4];
}

/* Rounded before, as rows of a table in the type of x would be. */
static void scale_values(const struct embed4 *e, float *f, uint64_t n) {
    uint16_t rounded[BLOCK];
    if (pl_dtype_is_narrow(e->x.dtype)) {
        pl_narrow(rounded, e->x.dtype, f, n);
        pl_widen(f, rounded, e->x.dtype, n);
    }
    for (uint64_t i = 0; i < n; i++)
        f[i] *= e->scale;
}

static void look_up_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct embed4 *e = arg;
    float f[BLOCK];
    (void)worker;
    for (uint64_t i = row0; i < row1; i++) {
        const uint64_t first = (uint64_t)e->ids[i] * e->x.cols, end = first + e->x.cols;
        for (uint64_t at = first, next; at < end; at = next) {
            next = pl_u64_min((at / BLOCK + 1) * BLOCK, end);
            dequantise(e, at, next, f);
            if (e->scale != 1.0f) scale_values(e, f, next - at);
            pl_narrow(pl_at(&e->x, i, at - first), e->x.dtype, f, next - at);
        }
    }
}

/* in: ids[N]i32, codes[n/2]u8, absmax[..]f32, absmax8?[n/64]u8, offset?[1]f32; out: x[N,C]. */
pl_err PL_CPU(embed4)(struct pl_device *dev, const struct pl_call *c) {
    float map[PL_QUANT_MAP_SIZE];
    struct embed4 e = {.ids = c->in[PL_EMBED4_IDS].p,
                       .codes = c->in[PL_EMBED4_CODES].p,
                       .absmax = c->in[PL_EMBED4_ABSMAX].p,
                       .absmax8 = c->in[PL_EMBED4_ABSMAX8].p,
                       .scale = pl_embed_scale(c->attr),
                       .map = map,
                       .x = c->out[PL_EMBED4_OUT_X]};
    if (e.x.rows == 0) return PL_ERR_OK;
    if (!pl_embed4_is_sound(c) || !pl_indices_below(&c->in[PL_EMBED4_IDS], pl_embed4_vocab(c)))
        return PL_ERR_PLAN_BROKEN;
    e.table = pl_quant_table(c->attr->quant);
    if (e.absmax8) {
        pl_quant_map_values(true, map);
        e.offset = *(const float *)c->in[PL_EMBED4_OFFSET].p;
    }
    pl_cpu_rows(dev, e.x.rows, pl_cpu_grain(e.x.cols), look_up_rows, &e);
    return PL_ERR_OK;
}
