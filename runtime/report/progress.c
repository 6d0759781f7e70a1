/* progress.c - the progress line: rewritten in place on a terminal, one line a call elsewhere. */
#include "runtime/report/report.h"

#include "estimator/base/units.h"
#include "estimator/config/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_SECONDS 0.1
#define DEFAULT_WIDTH  80
#define BAR_MIN        10
#define BAR_MAX        30
#define PIECE_TEXT     64

static double monotonic_seconds(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_terminal(FILE *out) {
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && !(term && strcmp(term, "dumb") == 0);
}

/* https://no-color.org: set and not empty means none; it wins over FORCE_COLOR. */
bool pl_colour_wanted(FILE *out) {
    const char *no = getenv("NO_COLOR"), *force = getenv("FORCE_COLOR");
    if (no && *no) return false;
    if (force && *force) return strcmp(force, "0") != 0;
    return is_terminal(out);
}

static int terminal_width(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return DEFAULT_WIDTH;
    return size.ws_col;
}

void pl_progress_init(struct pl_progress *p, FILE *out, bool quiet, uint64_t first_step) {
    *p = (struct pl_progress){.out = out, .quiet = quiet, .first_step = first_step};
    p->terminal = is_terminal(out);
    p->colour = pl_colour_wanted(out);
    p->started = monotonic_seconds();
    p->last_drawn = p->started - 2 * REDRAW_SECONDS; /* the first step is always drawn */
}

/* --- pieces of the line ---------------------------------------------------------------------- */

/* Two units are enough: 59s, 1m05s, 1h02m, 3d04h. */
static void duration_text(double seconds, char *buf, size_t cap) {
    static const struct {
        uint64_t large, small;
        char large_name, small_name;
    } units[] = {{86400, 3600, 'd', 'h'}, {3600, 60, 'h', 'm'}, {60, 1, 'm', 's'}};
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(buf, cap, "--");
        return;
    }
    uint64_t s = (uint64_t)(seconds + 0.5);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (s < units[i].large) continue;
        snprintf(buf, cap, "%llu%c%02llu%c", (unsigned long long)(s / units[i].large),
                 units[i].large_name, (unsigned long long)(s % units[i].large / units[i].small),
                 units[i].small_name);
        return;
    }
    snprintf(buf, cap, "%llus", (unsigned long long)s);
}

/* Seconds to go at the pace of this process so far; steps of an earlier one took other time. */
static double seconds_left(const struct pl_progress *p, const struct pl_step_report *r,
                           double now) {
    if (r->step >= r->total_steps) return 0;
    if (r->step <= p->first_step) return NAN;
    double done = (double)(r->step - p->first_step);
    return (now - p->started) / done * (double)(r->total_steps - r->step);
}

enum piece { STEP, BAR, LOSS, RATE, SCALE, SPEED, MEMORY, ETA, PIECES };

/* The pieces that are dropped, in this order, if the line is too long for the terminal; the step is
 * always kept. */
static const enum piece sacrifice[] = {BAR, SCALE, RATE, MEMORY, SPEED, ETA, LOSS};

struct line {
    char text[PIECES][PIECE_TEXT]; /* "" = left out; ASCII: bytes are columns */
};

static void fill_memory(const struct pl_step_report *r, char *buf, size_t cap) {
    char used[PL_BYTES_TEXT], budget[PL_BYTES_TEXT];
    pl_bytes_text(r->device_bytes, used);
    if (r->budget_bytes && r->budget_bytes != PL_AUTO_BYTES)
        snprintf(buf, cap, "%s of %s", used, pl_bytes_text(r->budget_bytes, budget));
    else
        snprintf(buf, cap, "%s", used);
}

static void fill_pieces(const struct pl_progress *p, const struct pl_step_report *r, double now,
                        struct line *l) {
    char n[PL_COUNT_TEXT], eta[32];
    memset(l, 0, sizeof *l);
    snprintf(l->text[STEP], PIECE_TEXT, "step %llu/%llu", (unsigned long long)r->step,
             (unsigned long long)r->total_steps);
    if (isnan(r->loss)) /* a step without a target */
        snprintf(l->text[LOSS], PIECE_TEXT, "loss none");
    else
        snprintf(l->text[LOSS], PIECE_TEXT, "loss %.4f%s", r->loss, r->skipped ? " skipped" : "");
    if (r->loss_scale)
        snprintf(l->text[SCALE], PIECE_TEXT, "scale %llu", (unsigned long long)r->loss_scale);
    snprintf(l->text[RATE], PIECE_TEXT, "lr %.2e", r->learning_rate);
    double speed = r->tokens_per_second;
    pl_count_text(speed >= 0 && speed < 1e18 ? (uint64_t)(speed + 0.5) : 0, n);
    snprintf(l->text[SPEED], PIECE_TEXT, "%s tok/s", n);
    fill_memory(r, l->text[MEMORY], PIECE_TEXT);
    duration_text(seconds_left(p, r, now), eta, sizeof eta);
    snprintf(l->text[ETA], PIECE_TEXT, "ETA %s", eta);
}

#define GAP 2 /* columns between pieces */

static int line_columns(const struct line *l) {
    int columns = -GAP;
    for (int i = 0; i < PIECES; i++) {
        if (l->text[i][0]) columns += (int)strlen(l->text[i]) + GAP;
    }
    return columns;
}

/* `width` columns, brackets included. */
static void fill_bar(const struct pl_step_report *r, int width, char *buf) {
    double share = r->total_steps ? (double)r->step / (double)r->total_steps : 0;
    int inner = width - 2, full = (int)(fmin(share, 1) * inner + 0.5);
    buf[0] = '[';
    memset(buf + 1, '#', (size_t)full);
    memset(buf + 1 + full, '.', (size_t)(inner - full));
    buf[width - 1] = ']';
    buf[width] = '\0';
}

/* The bar takes what is left; when nothing is, pieces go one by one. */
static void fit(struct line *l, const struct pl_step_report *r, int width) {
    int spare = width - line_columns(l) - GAP;
    if (spare >= BAR_MIN) fill_bar(r, spare < BAR_MAX ? spare : BAR_MAX, l->text[BAR]);
    for (size_t i = 0; i < sizeof sacrifice / sizeof *sacrifice; i++) {
        if (line_columns(l) <= width) return;
        l->text[sacrifice[i]][0] = '\0';
    }
    if (width < PIECE_TEXT) l->text[STEP][width] = '\0';
}

/* --- drawing --------------------------------------------------------------------------------- */

static bool is_silent(const struct pl_progress *p) {
    return p->quiet || !p->out;
}

/* Loss is what one looks for, the bar what one glances at. */
static const char *const colours[PIECES] = {[BAR] = "\033[36m", [LOSS] = "\033[1m"};

static void print_pieces(const struct pl_progress *p, const struct line *l, bool colour) {
    const char *gap = "";
    for (int i = 0; i < PIECES; i++) {
        if (!l->text[i][0]) continue;
        bool paint = colour && colours[i];
        fprintf(p->out, "%s%s%s%s", gap, paint ? colours[i] : "", l->text[i],
                paint ? "\033[0m" : "");
        gap = "  ";
    }
}

void pl_progress_step(struct pl_progress *p, const struct pl_step_report *r) {
    double now = monotonic_seconds();
    if (is_silent(p) || p->notes_alone) return;
    if (p->terminal && now - p->last_drawn < REDRAW_SECONDS && r->step < r->total_steps) return;
    p->last_drawn = now;
    struct line l;
    fill_pieces(p, r, now, &l);
    if (p->terminal) {
        /* the last column stays free: writing it makes some terminals wrap */
        fit(&l, r, terminal_width(p->out) - 1);
        fputs("\r", p->out);
        print_pieces(p, &l, p->colour);
        fputs("\033[K", p->out);
    } else {
        print_pieces(p, &l, false);
        fputs("\n", p->out);
    }
    fflush(p->out);
}

/* The last part of a path, cut to what a line has room for; a name must not drive the terminal. */
static void print_name(FILE *out, const char *path, size_t room) {
    const char *slash = strrchr(path, '/');
    for (const char *s = slash ? slash + 1 : path; *s && room; s++, room--)
        putc((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s, out);
}

#define READING_TEXT 48 /* length of the line without the name */

void pl_progress_reading(struct pl_progress *p, const char *path, uint64_t done_bytes,
                         uint64_t bytes, uint64_t rows) {
    char n[PL_COUNT_TEXT], share[16] = "";
    const double now = monotonic_seconds();
    if (is_silent(p) || p->notes_alone || !p->terminal || now - p->last_drawn < REDRAW_SECONDS)
        return;
    const int width = terminal_width(p->out) - 1;
    p->last_drawn = now;
    p->reads = true;
    if (bytes)
        snprintf(share, sizeof share, "%3.0f %%, ", 100.0 * (double)done_bytes / (double)bytes);
    fputs("\rtokenising ", p->out);
    print_name(p->out, path, width > READING_TEXT ? (size_t)(width - READING_TEXT) : 0);
    fprintf(p->out, ": %s%s rows\033[K", share, pl_count_text(rows, n));
    fflush(p->out);
}

void pl_progress_clear(struct pl_progress *p) {
    if (!p->reads) return;
    p->reads = false;
    fputs("\r\033[K", p->out);
    fflush(p->out);
}

/* The line is wiped and drawn again by the next step, which then may not be held back. */
void pl_progress_note(struct pl_progress *p, const char *text) {
    if (is_silent(p)) return;
    fprintf(p->out, "%s%s\n", p->terminal ? "\r\033[K" : "", text);
    fflush(p->out);
    p->last_drawn -= 2 * REDRAW_SECONDS;
}

void pl_progress_end(struct pl_progress *p) {
    if (is_silent(p) || p->notes_alone || !p->terminal) return;
    fputs("\n", p->out);
    fflush(p->out);
}
