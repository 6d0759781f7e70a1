/* provenance.c - who says so, line by line. */
#include "estimator/gate/provenance.h"

#include "estimator/base/json_tree.h"

#include "estimator/base/units.h"
#include "estimator/model/model.h"

#include <string.h>

const char *pl_provenance_name(enum pl_provenance p) {
    static const char *const names[] = {
#define X(name, word) word,
        PL_PROVENANCE_MAP(X)
#undef X
    };
    return names[p];
}

/* Whoever fills a budget names its source; every other name is a row of the card table. */
enum pl_provenance pl_budget_provenance(const struct pl_budget *b) {
    static const struct {
        const char *source;
        enum pl_provenance is;
    } rows[] = {{"vram_budget", PL_PROVENANCE_USER},
                {"--vram-gb", PL_PROVENANCE_USER},
                {"available memory", PL_PROVENANCE_MEASURED},
                {"memory of the machine", PL_PROVENANCE_MEASURED},
                {"memory limit of the cgroup", PL_PROVENANCE_MEASURED},
                {"RLIMIT_AS", PL_PROVENANCE_MEASURED},
                {"RLIMIT_DATA", PL_PROVENANCE_MEASURED},
                {"free memory of the GPU", PL_PROVENANCE_MEASURED}};
    for (size_t i = 0; b->source && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(b->source, rows[i].source) == 0) return rows[i].is;
    return PL_PROVENANCE_PROFILED;
}

/* A context that was measured is not doubted (budget.h); where there is none, the plan says so. */
enum pl_provenance pl_context_provenance(const struct pl_budget *b) {
    if (!pl_budget_own_context(b)) return PL_PROVENANCE_PLANNED;
    return pl_budget_own_doubt(b) ? PL_PROVENANCE_PROFILED : PL_PROVENANCE_MEASURED;
}

static void assume_context(const struct pl_estimate *e, struct pl_text *out) {
    char bytes[PL_BYTES_TEXT], doubt[PL_BYTES_TEXT];
    const struct pl_budget *b = &e->q->budget;
    const uint64_t context = pl_budget_own_context(b);
    if (!context)
        pl_text_add(out, "no driver context: the back-end keeps none in the budget\n");
    else if (pl_budget_own_doubt(b))
        pl_text_addf(out, "driver and kernels take %s, give or take %s, before the first arena\n",
                     pl_bytes_text(context, bytes), pl_bytes_text(pl_budget_own_doubt(b), doubt));
    else
        pl_text_addf(out, "driver and kernels take the %s they took in an earlier run\n",
                     pl_bytes_text(context, bytes));
    if (b->comm_doubt_bytes)
        pl_text_addf(out, "NCCL takes %s to connect the ranks, give or take %s\n",
                     pl_bytes_text(b->comm_bytes, bytes),
                     pl_bytes_text(b->comm_doubt_bytes, doubt));
}

void pl_estimate_assumptions(const struct pl_estimate *e, struct pl_text *out) {
    static const char *const back_ends[] = {"CPU", "null", "CUDA"};
    char text[PL_BYTES_TEXT];
    const struct pl_program *p = e->planned.program;
    pl_text_addf(
        out,
        e->q->job->inference
            ? "every sequence may reach its full length: %u of %u tokens, prompt and answer\n"
            : "every micro-batch may be full: %u samples of %u tokens, no padding\n",
        e->q->batch_size, e->q->job->max_seq_length);
    pl_text_addf(out, "scratch of the %s back-end", back_ends[p->traits.backend]);
    if (p->traits.backend == PL_BACKEND_CUDA)
        pl_text_addf(out, ", compute capability %u.%u\n", p->traits.sm / 10, p->traits.sm % 10);
    else
        pl_text_addf(out, ", %u threads\n", p->traits.threads);
    if (pl_dtype_is_narrow(p->shape.base_dtype))
        pl_text_addf(out, "frozen weights are held in %s, and computed with in %s\n",
                     pl_dtype_name(p->shape.base_dtype), pl_dtype_name(p->shape.dtype));
    assume_context(e, out);
    if (e->q->budget.known) pl_text_add(out, "nothing else uses the memory of the budget\n");
    uint64_t host = pl_plan_host_total(e->planned.plan);
    if (host > p->traits.pinned_bytes)
        pl_text_addf(out, "the machine has %s of memory to spare for what is offloaded\n",
                     pl_bytes_text(host, text));
    if (e->q->job->max_seq_length > e->q->model->max_positions)
        pl_text_addf(out, "%u tokens go beyond the %llu positions of the model's config.json\n",
                     e->q->job->max_seq_length, (unsigned long long)e->q->model->max_positions);
    if (e->q->job->batch_size == PL_AUTO)
        pl_text_addf(out, "batch_size: auto is taken as %u\n", e->q->batch_size);
}

json_t *pl_estimate_provenance_json(const struct pl_estimate *e) {
    const char *budget =
        e->q->budget.known ? pl_provenance_name(pl_budget_provenance(&e->q->budget)) : NULL;
    bool margin_given = e->q->job->given[PL_KEY_vram_margin];
    return json_pack(
        "{s:s, s:s, s:s?, s:s}", "arena", pl_provenance_name(PL_PROVENANCE_PLANNED), "context",
        pl_provenance_name(pl_context_provenance(&e->q->budget)), "budget", budget, "margin",
        pl_provenance_name(margin_given ? PL_PROVENANCE_USER : PL_PROVENANCE_PROFILED));
}

json_t *pl_estimate_assumptions_json(const struct pl_estimate *e) {
    struct pl_text lines = {0};
    json_t *list = json_array();
    pl_estimate_assumptions(e, &lines);
    for (const char *s = pl_text_str(&lines), *end; list && *s; s = end + 1) {
        end = strchr(s, '\n'); /* every line ends in one */
        if (!end) break;
        pl_json_append(&list, json_stringn(s, (size_t)(end - s)));
    }
    if (lines.failed) {
        json_decref(list);
        list = NULL;
    }
    pl_text_finish(&lines);
    return list;
}
