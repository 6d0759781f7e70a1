/* svg_vram.c - every planned byte over the ops of a phase. */
#include "estimator/picture/picture.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "estimator/picture/svg.h"
#include "estimator/picture/sweep.h"
#include "estimator/plan/live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 1060,
    HEIGHT = 520,
    LEFT = 84,
    RIGHT = 716,
    TOP = 66,
    BOTTOM = 456,
    LEGEND = 752,                  /* left edge of the words to the right of the picture */
    LEGEND_RIGHT = 1040,           /* right edge of their figures */
    COLUMNS = RIGHT - LEFT,        /* at most one a pixel */
    BANDS = 2 * PL_CATEGORY_COUNT, /* job arena below, batch arena above */
    X_TICKS = 8,
    Y_TICKS = 6,
    LARGEST = 3,
    NAME_COLUMNS = 24, /* columns of a tensor name in the legend */
};

/* A budget this many times the plan would press the picture flat; the legend has it instead. */
#define BUDGET_IN_SIGHT 2.5
#define BATCH_OPACITY   0.72 /* tells transient bytes from resident ones of the same category */

static const char *const category_colours[PL_CATEGORY_COUNT] = {
    [PL_CATEGORY_WEIGHTS] = "#3f5f8a",   [PL_CATEGORY_ADAPTER] = "#2a9d8f",
    [PL_CATEGORY_GRADIENTS] = "#e07a3f", [PL_CATEGORY_OPTIMIZER] = "#8a6fb0",
    [PL_CATEGORY_KV_CACHE] = "#4f8f9d",  [PL_CATEGORY_ACTIVATIONS] = "#5aa45a",
    [PL_CATEGORY_LOGITS] = "#d9a520",    [PL_CATEGORY_WORKSPACE] = "#8d99a6",
    [PL_CATEGORY_BATCH] = "#c2688a",
};

const char *pl_picture_colour(enum pl_category c) {
    return category_colours[c];
}

static const struct pl_svg_stroke budget_stroke = {PL_SVG_ALARM, 1.8, "7 4"},
                                  planned_stroke = {PL_SVG_INK, 1.4, NULL},
                                  measured_stroke = {PL_SVG_QUIET, 1.4, "2 3"},
                                  peak_stroke = {PL_SVG_INK, 1, "3 3"};

struct picture {
    const struct pl_plan *plan;
    enum pl_phase phase;
    uint64_t budget, allocated, measured; /* 0 = not known */
    struct pl_sweep sweep;                /* of the batch arena */
    uint32_t n_columns, peak_column;
    uint32_t op_of[COLUMNS]; /* the fullest op of each column, relative to the phase */
    bool budget_in_sight;
    struct pl_svg_axis x, y;
    struct pl_text *out;
};

/* --- what is alive --------------------------------------------------------------------------- */

/* Bytes of a band at an op: the job arena does not change, the batch arena does. */
static uint64_t band_bytes(const struct picture *s, int band, uint32_t op) {
    if (band < PL_CATEGORY_COUNT) return s->plan->job_by_category[band];
    return pl_sweep_bytes(&s->sweep, op, (uint32_t)(band - PL_CATEGORY_COUNT));
}

static uint64_t stacked_bytes(const struct picture *s, int bands, uint32_t op) {
    uint64_t sum = 0;
    for (int band = 0; band < bands; band++)
        sum += band_bytes(s, band, op);
    return sum;
}

/* --- axes ------------------------------------------------------------------------------------ */

struct unit {
    double bytes;
    const char *name;
};

static struct unit unit_of(double bytes) {
    static const struct unit units[] = {{1, "B"},
                                        {1024.0, "KiB"},
                                        {1048576.0, "MiB"},
                                        {1073741824.0, "GiB"},
                                        {1099511627776.0, "TiB"}};
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof *units && bytes >= units[i + 1].bytes)
        i++;
    return units[i];
}

static void set_axes(struct picture *s) {
    double top = (double)pl_u64_max(s->plan->arena_bytes, pl_u64_max(s->allocated, s->measured));
    s->budget_in_sight = s->budget && (double)s->budget <= BUDGET_IN_SIGHT * top;
    if (s->budget_in_sight) top = fmax(top, (double)s->budget);
    top = fmax(top, 1) * 1.04; /* air above the highest line */
    double unit = unit_of(top).bytes;
    s->x = (struct pl_svg_axis){0, fmax(1, s->sweep.ops->n_ops), LEFT, RIGHT, 0};
    s->x.step = fmax(1, pl_svg_nice_step(s->x.hi, X_TICKS));
    s->y = (struct pl_svg_axis){0, top, BOTTOM, TOP, pl_svg_nice_step(top / unit, Y_TICKS) * unit};
}

static void draw_axes(const struct picture *s) {
    static const struct pl_svg_stroke grid = {PL_SVG_GRID, 1, NULL}, base = {PL_SVG_QUIET, 1, NULL};
    struct unit unit = unit_of(s->y.hi);
    for (double v = 0; v <= s->y.hi; v += s->y.step) {
        double y = pl_svg_at(&s->y, v);
        pl_svg_line(s->out, LEFT, y, RIGHT, y, &grid);
        pl_svg_text(s->out, LEFT - 8, y + 4, PL_SVG_END, 12, PL_SVG_QUIET, "%.*f %s",
                    s->y.step < unit.bytes, v / unit.bytes, unit.name);
    }
    for (double v = 0; v <= s->x.hi; v += s->x.step) {
        char n[PL_COUNT_TEXT];
        double x = pl_svg_at(&s->x, v);
        pl_svg_line(s->out, x, BOTTOM, x, BOTTOM + 5, &base);
        pl_svg_text(s->out, x, BOTTOM + 20, PL_SVG_MIDDLE, 12, PL_SVG_QUIET, "%s",
                    pl_count_text((uint64_t)v, n));
    }
    pl_svg_text(s->out, (LEFT + RIGHT) / 2.0, BOTTOM + 42, PL_SVG_MIDDLE, 13, PL_SVG_QUIET,
                "op of the %s phase%s", pl_phase_name(s->phase),
                s->phase == s->plan->peak_phase ? ", the one that needs most memory" : "");
}

/* --- areas and lines ------------------------------------------------------------------------- */

/* Pixels of a column's left edge; column n_columns is the right end. */
static double column_x(const struct picture *s, uint32_t c) {
    return LEFT + (double)c * (RIGHT - LEFT) / s->n_columns;
}

/* Steps, not slopes: bytes do not change within an op. A vertex only where the level changes. */
static void add_edge(const struct picture *s, int bands, bool leftwards) {
    uint32_t n = s->n_columns;
    double last = -1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = leftwards ? n - 1 - i : i;
        double y = pl_svg_at(&s->y, (double)stacked_bytes(s, bands, s->op_of[c]));
        if (fabs(y - last) < 0.05) continue;
        pl_text_addf(s->out, "H%.1fV%.1f", column_x(s, leftwards ? c + 1 : c), y);
        last = y;
    }
    pl_text_addf(s->out, "H%.1f", column_x(s, leftwards ? 0 : n));
}

/* Along the top to the right, back along the bottom. */
static void draw_band(const struct picture *s, int band) {
    uint64_t any = 0;
    for (uint32_t c = 0; c < s->n_columns; c++)
        any |= band_bytes(s, band, s->op_of[c]);
    if (!any) return;
    pl_text_addf(s->out, "<path fill=\"%s\" fill-opacity=\"%.2f\" d=\"M%d %d",
                 category_colours[band % PL_CATEGORY_COUNT],
                 band < PL_CATEGORY_COUNT ? 1.0 : BATCH_OPACITY, LEFT, BOTTOM);
    add_edge(s, band + 1, false);
    add_edge(s, band, true);
    pl_text_add(s->out, "z\"/>\n");
}

static void draw_level(const struct picture *s, uint64_t bytes,
                       const struct pl_svg_stroke *stroke) {
    double y = pl_svg_at(&s->y, (double)bytes);
    if (bytes) pl_svg_line(s->out, LEFT, y, RIGHT, y, stroke);
}

/* Marks the place where forward ends and backward begins. */
static void draw_directions(const struct picture *s) {
    const uint32_t turn = pl_sweep_turn(&s->sweep);
    if (turn == 0 || turn == s->sweep.ops->n_ops) return;
    double x = pl_svg_at(&s->x, turn);
    pl_svg_text(s->out, (LEFT + x) / 2, TOP - 8, PL_SVG_MIDDLE, 12, PL_SVG_QUIET, "forward");
    pl_svg_text(s->out, (x + RIGHT) / 2, TOP - 8, PL_SVG_MIDDLE, 12, PL_SVG_QUIET, "backward");
    pl_svg_line(s->out, x, TOP - 18, x, TOP, &planned_stroke);
}

static void draw_peak(const struct picture *s) {
    double x = (column_x(s, s->peak_column) + column_x(s, s->peak_column + 1)) / 2;
    double y = pl_svg_at(&s->y, (double)stacked_bytes(s, BANDS, s->op_of[s->peak_column]));
    pl_svg_line(s->out, x, y, x, BOTTOM, &peak_stroke);
    pl_svg_dot(s->out, x, y, 4.5, "#ffffff");
    pl_svg_dot(s->out, x, y, 3.2, PL_SVG_INK);
}

/* --- words next to the picture --------------------------------------------------------------- */

#define ROW 19 /* pixels from one line to the next */

static void legend_row(const struct picture *s, double *y, const char *text, uint64_t bytes) {
    char figure[PL_BYTES_TEXT];
    pl_svg_text(s->out, LEGEND + 24, *y, PL_SVG_START, 12, PL_SVG_INK, "%s", text);
    pl_svg_text(s->out, LEGEND_RIGHT, *y, PL_SVG_END, 12, PL_SVG_INK, "%s",
                pl_bytes_text(bytes, figure));
    *y += ROW;
}

static void legend_line(const struct picture *s, double *y, const char *text, uint64_t bytes,
                        const struct pl_svg_stroke *stroke) {
    if (!bytes) return;
    if (stroke) pl_svg_line(s->out, LEGEND, *y - 4, LEGEND + 16, *y - 4, stroke);
    legend_row(s, y, text, bytes);
}

static void legend_heading(const struct picture *s, double *y, const char *text) {
    *y += 8;
    pl_svg_text(s->out, LEGEND, *y, PL_SVG_START, 12, PL_SVG_QUIET, "%s", text);
    *y += ROW;
}

/* Writes bands in the order of the stack, the topmost first. Figures are those at the peak. */
static void legend_bands(const struct picture *s, double *y, int first, int last) {
    for (int band = last; band >= first; band--) {
        uint64_t bytes = band_bytes(s, band, s->op_of[s->peak_column]);
        int category = band % PL_CATEGORY_COUNT;
        if (!bytes) continue;
        pl_text_addf(s->out,
                     "<rect x=\"%d\" y=\"%.1f\" width=\"16\" height=\"11\" fill=\"%s\" "
                     "fill-opacity=\"%.2f\"/>\n",
                     LEGEND, *y - 10, category_colours[category],
                     band < PL_CATEGORY_COUNT ? 1.0 : BATCH_OPACITY);
        legend_row(s, y, pl_category_name((enum pl_category)category), bytes);
    }
}

/* Long names keep their end, which tells tensors of a layer apart. */
static const char *name_that_fits(char *name) {
    size_t n = strlen(name);
    if (n <= NAME_COLUMNS) return name;
    char *tail = name + n - NAME_COLUMNS;
    memcpy(tail, "..", 2);
    return tail;
}

static void legend_peak(const struct picture *s, double *y) {
    const struct pl_program *p = s->plan->program;
    uint32_t op = s->sweep.ops->first_op + s->op_of[s->peak_column], ids[LARGEST];
    pl_svg_dot(s->out, LEGEND + 8, *y + 4, 3.2, PL_SVG_INK);
    char where[96];
    int n = snprintf(where, sizeof where, "peak at op %u, %s", s->op_of[s->peak_column],
                     pl_op_name(p->ops[op].kind));
    if (p->ops[op].layer != PL_NONE && n > 0 && (size_t)n < sizeof where)
        snprintf(where + n, sizeof where - (size_t)n, " of layer %u", p->ops[op].layer);
    *y += 8;
    pl_svg_text(s->out, LEGEND + 24, *y, PL_SVG_START, 12, PL_SVG_QUIET, "%s", where);
    *y += ROW;
    uint32_t n_ids = pl_plan_largest_live(s->plan, op, LARGEST, ids);
    for (uint32_t i = 0; i < n_ids; i++) {
        char name[96];
        pl_tensor_name(p, ids[i], name);
        legend_row(s, y, name_that_fits(name), p->tensors[ids[i]].bytes);
    }
}

/* Returns the y where the words end. */
static double draw_legend(const struct picture *s) {
    const struct pl_plan *plan = s->plan;
    double y = TOP + 2;
    legend_line(s, &y, s->budget_in_sight ? "budget" : "budget, above the picture", s->budget,
                s->budget_in_sight ? &budget_stroke : NULL);
    legend_line(s, &y, "planned", plan->arena_bytes, &planned_stroke);
    legend_line(s, &y, "allocated", s->allocated, NULL);
    legend_line(s, &y, "measured", s->measured, &measured_stroke);
    if (s->n_columns) {
        legend_heading(s, &y, "batch arena at the peak");
        legend_bands(s, &y, PL_CATEGORY_COUNT, BANDS - 1);
        legend_line(s, &y, "alignment and gaps", plan->alignment_bytes + plan->fragmentation_bytes,
                    NULL);
        legend_heading(s, &y, "job arena, the whole run");
        legend_bands(s, &y, 0, PL_CATEGORY_COUNT - 1);
        legend_peak(s, &y);
    }
    return y;
}

static void draw(struct picture s, const char *title, struct pl_text *out) {
    const struct pl_plan *plan = s.plan;
    if (!pl_sweep_init(&s.sweep, plan, s.phase)) {
        out->failed = true;
        return;
    }
    const uint32_t peak = plan->phases[s.phase].peak_op - s.sweep.ops->first_op;
    s.n_columns = pl_sweep_columns(&s.sweep, peak, COLUMNS, s.op_of, &s.peak_column);
    set_axes(&s);
    struct pl_text legend = {0}; /* first, for the height it needs */
    s.out = &legend;
    double height = fmax(HEIGHT, draw_legend(&s));
    s.out = out;
    pl_svg_begin(out, WIDTH, (int)height, title);
    pl_svg_text(out, LEFT, 26, PL_SVG_START, 16, PL_SVG_INK, "%s", title);
    draw_axes(&s);
    for (int band = 0; band < BANDS; band++)
        draw_band(&s, band);
    draw_level(&s, plan->arena_bytes, &planned_stroke);
    draw_level(&s, s.measured, &measured_stroke);
    if (s.budget_in_sight) draw_level(&s, s.budget, &budget_stroke);
    draw_directions(&s);
    if (s.n_columns) draw_peak(&s);
    pl_text_add(out, pl_text_str(&legend));
    pl_svg_end(out);
    out->failed |= legend.failed;
    pl_text_finish(&legend);
    pl_sweep_finish(&s.sweep);
}

static struct picture picture_of(const struct pl_plan *plan, enum pl_phase phase,
                                 uint64_t budget_bytes) {
    return (struct picture){
        .plan = plan, .phase = phase, .budget = budget_bytes == PL_AUTO_BYTES ? 0 : budget_bytes};
}

void pl_svg_vram(const struct pl_plan *plan, uint64_t budget_bytes, uint64_t allocated_bytes,
                 uint64_t measured_bytes, const char *title, struct pl_text *out) {
    struct picture s = picture_of(plan, plan->peak_phase, budget_bytes);
    s.allocated = allocated_bytes;
    s.measured = measured_bytes;
    draw(s, title, out);
}

void pl_svg_timeline(const struct pl_plan *plan, uint64_t budget_bytes, const char *title,
                     struct pl_text *out) {
    draw(picture_of(plan, PL_PHASE_MICRO, budget_bytes), title, out);
}
