#include "runtime/admit/context.h"

#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/card/cards.h"
#include "runtime/admit/history.h"
#include "runtime/device/device.h"

#include <stdlib.h>

static struct pl_memory memory_of(const struct pl_gpu *gpu) {
    return (struct pl_memory){"context.json", {{"device", gpu->name}, {"driver", gpu->driver}}};
}

/* The figures of an entry; false when they cannot be true. */
static bool read_figures(const json_t *entry, const struct pl_gpu *gpu, struct pl_context *out) {
    json_int_t opened = json_integer_value(json_object_get(entry, "opened_bytes"));
    json_int_t final = json_integer_value(json_object_get(entry, "final_bytes"));
    if (opened <= 0 || final < opened || (uint64_t) final > gpu->total_bytes) return false;
    *out = (struct pl_context){.bytes = (uint64_t) final,
                               .growth_bytes = (uint64_t)(final - opened),
                               .source = "earlier runs"};
    return true;
}

/* Up to drivers of branch 545 a kernel of a graph took 64 KiB of the GPU; from 550 on it takes less
 * (PyTorch, "CUDAGraph Trees", on its overheads), by a figure that is not published: this one is an
 * assumption until a run has measured it. */
#define NODE_BYTES_OLD (UINT64_C(64) << 10)
#define NODE_BYTES     (UINT64_C(4) << 10)

static uint64_t node_bytes(const struct pl_gpu *gpu, const json_t *entry) {
    json_int_t bytes = json_integer_value(json_object_get(entry, "graph_bytes"));
    json_int_t nodes = json_integer_value(json_object_get(entry, "graph_nodes"));
    if (nodes > 0 && bytes >= 0 && (uint64_t)bytes <= gpu->total_bytes)
        return pl_u64_max(pl_u64_div_up((uint64_t)bytes, (uint64_t)nodes), 1);
    return strtoul(gpu->driver, NULL, 10) < 550 ? NODE_BYTES_OLD : NODE_BYTES;
}

static void guess_by_card(const struct pl_gpu *gpu, struct pl_context *out) {
    const struct pl_card *card = pl_card_find(gpu->name);
    *out = (struct pl_context){.bytes = card ? card->context_bytes : PL_CARD_CONTEXT_DEFAULT,
                               .doubt_bytes =
                                   card ? pl_card_context_doubt(card) : PL_CARD_CONTEXT_DEFAULT / 2,
                               .source = card ? "card table" : "default"};
}

void pl_context_predict(const struct pl_gpu *gpu, struct pl_context *out) {
    const struct pl_memory m = memory_of(gpu);
    json_t *entry = pl_memory_find(&m, NULL);
    if (!entry || !read_figures(entry, gpu, out)) guess_by_card(gpu, out);
    out->graph_node_bytes = node_bytes(gpu, entry);
    json_decref(entry);
}

struct pl_growth pl_context_growth(const struct pl_context *c, uint64_t opened) {
    if (c->doubt_bytes == 0) return (struct pl_growth){.bytes = c->growth_bytes};
    const uint64_t left = c->bytes - pl_u64_min(c->bytes, opened);
    const uint64_t bytes = pl_u64_max(PL_KERNEL_ROOM, left);
    return (struct pl_growth){bytes, pl_u64_min(c->doubt_bytes, bytes - PL_KERNEL_ROOM)};
}

/* A run without graphs knows nothing new of them. */
static void keep_graph_figures(const struct pl_memory *m, json_t **figures) {
    static const char *const keys[] = {"graph_bytes", "graph_nodes"};
    json_t *old = pl_memory_find(m, NULL);
    for (int i = 0; i < 2; i++)
        if (json_object_get(old, keys[i]))
            pl_json_set(figures, keys[i], json_incref(json_object_get(old, keys[i])));
    json_decref(old);
}

void pl_context_remember(const struct pl_gpu *gpu, const struct pl_context_seen *seen) {
    const struct pl_memory m = memory_of(gpu);
    if (seen->opened_bytes == 0 || seen->final_bytes < seen->opened_bytes) return;
    json_t *figures = json_pack("{s:I, s:I}", "opened_bytes", (json_int_t)seen->opened_bytes,
                                "final_bytes", (json_int_t)seen->final_bytes);
    if (seen->graph_nodes) {
        pl_json_set(&figures, "graph_bytes", json_integer((json_int_t)seen->graph_bytes));
        pl_json_set(&figures, "graph_nodes", json_integer((json_int_t)seen->graph_nodes));
    } else {
        keep_graph_figures(&m, &figures);
    }
    pl_memory_put(&m, figures);
}
