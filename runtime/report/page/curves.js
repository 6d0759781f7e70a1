/* curves.js - the curves of the runs, laid over each other, one chart for each figure of the log. */

const hidden = new Set((state.get("hide") || "").split(",").filter(Boolean).map(Number));
const view = {smooth: Number(state.get("smooth")) || 0, log: state.get("log") === "1"};

function last(list) { return list[list.length - 1]; }

/* The index of the last x that is not above v; -1: there is none. */
function indexAt(list, v) {
    let lo = 0, hi = list.length;
    while (lo < hi) {
        const middle = (lo + hi) >> 1;
        if (list[middle] <= v) lo = middle + 1; else hi = middle;
    }
    return lo - 1;
}

/* An exponential mean that forgets by steps and not by points, of which thinned curves have fewer;
 * it is corrected for its beginning. */
function smoothed(curve, factor) {
    if (!factor || curve.x.length < 3) return curve.y;
    const pace = (last(curve.x) - curve.x[0]) / (curve.x.length - 1) || 1;
    let sum = 0, weight = 0, before = curve.x[0];
    return curve.y.map((y, i) => {
        if (y === null) return null;
        const keepShare = factor ** ((curve.x[i] - before) / pace);
        before = curve.x[i];
        sum = sum * keepShare + y * (1 - factor);
        weight = weight * keepShare + (1 - factor);
        return sum / weight;
    });
}

class Chart extends Plot {
    constructor(card, range, chart) {
        super(card, range, chart.title + " over steps");
        this.chart = chart;
        this.xLabel = "step";
        this.least = 1;
        this.log = false;
    }

    /* The curves that are shown: {run, x, y} as logged, and a line {x, y} through them where they
     * are smoothed, or thinned to their extremes. */
    curves() {
        const found = [];
        data.runs.forEach((run, i) => {
            if (hidden.has(i)) return;
            const step = run.steps[this.chart.key], test = run.evals[this.chart.key];
            if (step) found.push({run: i, x: step.x, y: step.y, line: this.lineOf(step), dense: step.mean_x});
            if (test) found.push({run: i, x: test.x, y: test.y, eval: true});
        });
        return found;
    }

    lineOf(step) {
        const middle = step.mean_x ? {x: step.mean_x, y: step.mean_y} : step;
        const factor = this.chart.noisy ? view.smooth : 0;
        if (!factor && !step.mean_x) return null;
        return {x: middle.x, y: smoothed(middle, factor)};
    }

    height(v) { return v === null || (this.log && v <= 0) ? null : this.log ? Math.log10(v) : v; }

    limits(lo, hi) {
        let least = Infinity, most = -Infinity;
        this.list = this.curves();
        this.log = view.log && this.list.every((c) => c.y.every((v) => v === null || v >= 0));
        for (const c of this.list) {
            const from = Math.max(0, indexAt(c.x, lo)), to = indexAt(c.x, hi);
            for (let i = from; i <= to; i++) {
                const v = this.height(c.y[i]);
                if (v === null) continue;
                least = Math.min(least, v);
                most = Math.max(most, v);
            }
        }
        if (least > most) return [0, 1];
        const air = (most - least) * 0.05 || Math.abs(most) * 0.05 || 0.5;
        const floor = !this.log && least >= 0 && least - air < 0 ? 0 : least - air;
        return [floor, most + air];
    }

    yTicks(lo, hi) {
        if (this.log) return logTicks(lo, hi).map((t) => [t, tickText(10 ** t, 10 ** Math.floor(t))]);
        if (this.chart.unit === "bytes")
            return linearTicks(lo, hi, 5, 2).ticks.map((t) => [t, bytesTick(t)]);
        const whole = this.list.every((c) => c.y.every((v) => v === null || Number.isInteger(v)));
        const {ticks, step} = linearTicks(lo, hi, whole ? Math.max(1, Math.min(6, hi - lo)) : 6, 10);
        return ticks.map((t) => [t, tickText(t, step)]);
    }

    path(xs, ys) {
        const [lo, hi] = this.shown;
        const from = Math.max(0, indexAt(xs, lo)), to = Math.min(xs.length - 1, indexAt(xs, hi) + 1);
        let open = false, d = "";
        for (let i = from; i <= to; i++) {
            const v = this.height(ys[i]);
            if (v === null) { open = false; continue; }
            d += (open ? "L" : "M") + this.x(xs[i]).toFixed(1) + " " + this.y(v).toFixed(1);
            open = true;
        }
        return d;
    }

    dots(layer, c, radius) {
        const [lo, hi] = this.shown;
        const from = Math.max(0, indexAt(c.x, lo)), to = indexAt(c.x, hi);
        if (to - from > 80) return;
        for (let i = from; i <= to; i++) {
            const v = this.height(c.y[i]);
            if (v === null) continue;
            draw(layer, "circle", {class: "dot", cx: this.x(c.x[i]).toFixed(1),
                cy: this.y(v).toFixed(1), r: radius, fill: colourOf(c.run)});
        }
    }

    paint(layer) {
        this.marks(layer);
        for (const c of this.list) {
            const stroke = colourOf(c.run);
            const kind = c.eval ? "eval" : c.dense ? "raw dense" : c.line ? "raw" : "curve";
            draw(layer, "path", {class: kind, stroke, d: this.path(c.x, c.y)});
            if (c.line) draw(layer, "path", {class: "curve", stroke, d: this.path(c.line.x, c.line.y)});
            if (c.eval) this.dots(layer, c, 3.2);
            else if (c.x.length === 1) this.dots(layer, c, 3);
        }
    }

    marks(layer) {
        const bottom = this.high - margin.bottom;
        data.runs.forEach((run, i) => {
            if (hidden.has(i)) return;
            for (const step of run.recoveries) {
                const x = this.x(step);
                draw(layer, "line", {class: "recovery", x1: x, x2: x, y1: margin.top, y2: bottom});
                draw(layer, "path", {class: "flag", d: `M${x} ${margin.top + 5}l-5 -8h10z`});
            }
            for (const step of run.resumes) {
                const x = this.x(step + 0.5);
                draw(layer, "line", {class: "resume", stroke: colourOf(i), x1: x, x2: x, y1: margin.top, y2: bottom});
            }
            for (const step of run.skips) {
                const x = this.x(step);
                draw(layer, "line", {class: "skip", x1: x, x2: x, y1: bottom - 7, y2: bottom});
            }
        });
    }

    text(v) { return this.chart.unit === "bytes" ? bytesText(v) : numberText(v); }

    /* The figures at the drawn point that is nearest to x. */
    tell(x) {
        let near = null;
        for (const c of this.list) {
            const i = indexAt(c.x, x);
            for (const at of [c.x[i], c.x[i + 1]])
                if (at !== undefined && (near === null || Math.abs(at - x) < Math.abs(near - x))) near = at;
        }
        if (near === null) return null;
        const lines = [];
        for (const c of this.list) {
            const i = indexAt(c.x, near);
            if (i < 0 || (c.eval ? c.x[i] !== near : near > last(c.x))) continue;
            lines.push({colour: colourOf(c.run), text: this.text(c.y[i]), value: c.y[i],
                name: data.runs[c.run].label + (c.eval ? ", evaluation" : "")});
        }
        lines.sort((a, b) => b.value - a.value);
        return {at: near, title: "step " + near.toLocaleString("en-US"), lines};
    }
}

/* --- controls -------------------------------------------------------------------------------- */

/* What the marks of the charts mean, of those that there are. */
function legend() {
    const any = (list) => data.runs.some((run) => list(run).length);
    return [[(run) => Object.keys(run.evals), "dashed: evaluation"],
        [(run) => run.recoveries, "▼ out of memory, batch halved"],
        [(run) => run.skips, "red ticks: skipped steps"],
        [(run) => run.resumes, "dotted: resumed"]]
        .filter(([list]) => any(list)).map(([, words]) => words).join("  ·  ");
}

function wholeRange() {
    let lo = Infinity, hi = -Infinity;
    for (const run of data.runs)
        for (const curve of [...Object.values(run.steps), ...Object.values(run.evals)]) {
            lo = Math.min(lo, curve.x[0]);
            hi = Math.max(hi, last(curve.x));
        }
    return lo > hi ? [0, 1] : lo === hi ? [lo - 1, hi + 1] : [lo, hi];
}

const steps = new Range("x", wholeRange());

function buildControls() {
    const smooth = make("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: view.smooth,
        "aria-label": "smoothing"});
    const shown = make("output", {}, view.smooth.toFixed(2));
    const log = make("input", {type: "checkbox"});
    const all = make("button", {type: "button"}, "Show all steps");
    log.checked = view.log;
    smooth.addEventListener("input", () => {
        view.smooth = Number(smooth.value);
        shown.textContent = view.smooth.toFixed(2);
        keep("smooth", view.smooth || "");
        steps.render();
    });
    log.addEventListener("change", () => {
        view.log = log.checked;
        keep("log", view.log ? 1 : "");
        steps.render();
    });
    all.addEventListener("click", () => steps.show(null));
    steps.changed = () => { all.disabled = !steps.chosen; };
    steps.changed();
    document.getElementById("controls").append(make("label", {}, "Smoothing", smooth, shown),
        make("label", {}, log, "Logarithmic"), all, make("span", {class: "hint"}, legend()),
        make("span", {class: "hint"}, "Drag to zoom all charts, double-click to go back."));
}

function buildCharts() {
    const place = document.getElementById("charts");
    place.classList.toggle("pairs", data.charts.length === 2 || data.charts.length === 4);
    for (const chart of data.charts) {
        const card = make("div", {class: "card", "data-chart": chart.key},
            make("div", {class: "head"}, make("h3", {}, chart.title),
                make("span", {class: "unit"}, chart.unit)));
        place.append(card);
        new Chart(card, steps, chart);
    }
    if (!data.charts.length) place.append(make("p", {class: "none"}, "No step was logged yet."));
}

/* Each run can be left out of the charts, in the table of the final figures. */
function buildToggles() {
    document.querySelectorAll("#figures tbody tr").forEach((row, i) => {
        if (data.runs.length < 2) return;
        const box = make("input", {type: "checkbox", "aria-label": "show " + data.runs[i].label});
        const set = () => {
            if (box.checked) hidden.delete(i); else hidden.add(i);
            row.classList.toggle("off", !box.checked);
        };
        box.checked = !hidden.has(i);
        set();
        box.addEventListener("change", () => {
            set();
            keep("hide", [...hidden].join(","));
            steps.render();
        });
        row.cells[0].prepend(box);
    });
}
