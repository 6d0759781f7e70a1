"use strict";
/* plot.js - state that outlives a reload, figures as text, and the frame that every plot shares:
 * axes, a cross, and a range that is chosen with the mouse or the keyboard. Text enters the page
 * as textContent and attributes alone, so that no name of a run can become markup. */

const data = JSON.parse(document.getElementById("data").textContent);

/* --- state: it stands in the address, and so outlives a reload ------------------------------- */

const state = new Map(location.hash.slice(1).split("&").filter(Boolean).map((part) => {
    const [key, ...value] = part.split("=");
    return [key, value.join("=")];
}));

function keep(key, value) {
    if (value === null || value === "") state.delete(key); else state.set(key, String(value));
    const hash = "#" + [...state].map(([k, v]) => k + "=" + v).join("&");
    try { history.replaceState(null, "", hash); } catch (e) { location.hash = hash; }
}

/* A range that was chosen, or null. */
function keptRange(key) {
    const ends = (state.get(key) || "").split("~").map(Number);
    return ends.length === 2 && ends[0] < ends[1] ? ends : null;
}

function keepRange(key, range) {
    keep(key, range && range.map((v) => Number(v.toPrecision(9))).join("~"));
}

/* --- elements -------------------------------------------------------------------------------- */

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    for (const child of children || []) node.append(child);
    return node;
}

function make(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
}

function draw(parent, tag, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    if (text !== undefined) node.textContent = text;
    parent.append(fill(node, attributes));
    return node;
}

function say(text) { document.getElementById("spoken").textContent = text; }
function colourOf(run) { return "var(--run" + run + ")"; }
function swatch(colour) { return make("i", {class: "swatch", style: "background:" + colour}); }

/* --- figures as text ------------------------------------------------------------------------- */

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

function bytesText(v) {
    let i = 0;
    while (Math.abs(v) >= 1024 && i < units.length - 1) { v /= 1024; i++; }
    return (i && Math.abs(v) < 100 ? v.toFixed(2) : v.toFixed(0)) + " " + units[i];
}

function bytesTick(v) { return bytesText(v).replace(/\.00 /, " ").replace(/(\.\d)0 /, "$1 "); }

function numberText(v) {
    if (v === null || v === undefined) return "-";
    const size = Math.abs(v);
    if (size === 0) return "0";
    if (size < 1e-3 || size >= 1e7) return v.toExponential(3);
    if (Number.isInteger(v)) return v.toLocaleString("en-US");
    return size >= 1000 ? v.toLocaleString("en-US", {maximumFractionDigits: 1}) : v.toPrecision(5);
}

/* --- axes ------------------------------------------------------------------------------------ */

function niceStep(span, most, base) {
    const power = base === 2 ? 2 ** Math.floor(Math.log2(span / most)) :
        10 ** Math.floor(Math.log10(span / most));
    const factors = base === 2 ? [1, 2] : [1, 2, 5, 10];
    return power * (factors.find((f) => span / (power * f) <= most) || factors.at(-1));
}

function linearTicks(lo, hi, most, base) {
    const step = niceStep(hi - lo, most, base), ticks = [];
    for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) ticks.push(i * step);
    return {ticks, step};
}

function logTicks(lo, hi) {
    const ticks = [], decades = hi - lo;
    for (let e = Math.floor(lo); e <= Math.ceil(hi); e++)
        for (const f of decades > 3 ? [1] : decades > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8]) {
            const at = e + Math.log10(f);
            if (at >= lo && at <= hi) ticks.push(at);
        }
    return ticks.length < 10 ? ticks : ticks.filter((t, i) => i % Math.ceil(ticks.length / 8) === 0);
}

function tickText(v, step) {
    if (Math.abs(v) < step * 1e-6) return "0";
    if (Math.abs(v) >= 1e6 || step < 1e-4)
        return v.toExponential(Math.max(0, Math.ceil(Math.log10(Math.abs(v) / step) - 1e-9)))
            .replace("e+", "e");
    const decimals = step < 1 ? Math.ceil(-Math.log10(step) - 1e-9) : 0;
    return v.toLocaleString("en-US", {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
}

/* --- the frame ------------------------------------------------------------------------------- */

const margin = {left: 62, right: 22, top: 14, bottom: 34};

/* A plot has `full` (the whole range of x), `xLabel`, and the methods limits(lo, hi) -> [lo, hi],
 * yTicks(lo, hi) -> [[at, text]], paint(layer) and tell(x) -> rows of the tip. `range` holds the
 * range of x that is shown, for all plots that share it. */
class Plot {
    constructor(card, range, label) {
        this.card = card;
        this.range = range;
        this.svg = draw(card, "svg", {class: "plot", tabindex: 0, role: "group", "aria-label": label +
            "; arrow keys read the figures, plus and minus zoom, zero shows everything"});
        this.tip = make("div", {class: "tip", hidden: ""});
        this.card.append(this.tip);
        range.plots.push(this);
        this.listen();
    }

    listen() {
        const svg = this.svg;
        svg.addEventListener("pointerdown", (e) => this.press(e));
        svg.addEventListener("pointermove", (e) => this.move(e));
        svg.addEventListener("pointerup", (e) => this.release(e));
        svg.addEventListener("pointercancel", () => this.drop());
        svg.addEventListener("pointerleave", () => { if (!this.from) this.range.point(null, null); });
        svg.addEventListener("dblclick", () => this.range.show(null));
        svg.addEventListener("keydown", (e) => this.key(e));
        svg.addEventListener("blur", () => this.range.point(null, null));
    }

    x(v) {
        const [lo, hi] = this.shown;
        return margin.left + (v - lo) / (hi - lo) * (this.width - margin.left - margin.right);
    }

    y(v) {
        const [lo, hi] = this.heights;
        return this.high - margin.bottom -
            (v - lo) / (hi - lo) * (this.high - margin.bottom - margin.top);
    }

    valueAt(event) {
        const box = this.svg.getBoundingClientRect(), [lo, hi] = this.shown;
        const share = (event.clientX - box.left - margin.left) / (this.width - margin.left - margin.right);
        return lo + Math.min(1, Math.max(0, share)) * (hi - lo);
    }

    press(event) {
        if (event.button) return;
        this.from = {x: event.clientX, value: this.valueAt(event)};
        this.svg.setPointerCapture(event.pointerId);
    }

    move(event) {
        const value = this.valueAt(event);
        if (this.from) this.choose(this.from.value, value);
        else this.range.point(value, this);
    }

    release(event) {
        const from = this.from;
        this.drop();
        if (!from || Math.abs(event.clientX - from.x) < 5) return;
        const ends = [from.value, this.valueAt(event)].sort((a, b) => a - b);
        this.range.show(ends);
    }

    drop() {
        this.from = null;
        if (this.shade) this.shade.remove();
    }

    choose(a, b) {
        if (this.shade) this.shade.remove();
        const left = this.x(Math.min(a, b));
        this.shade = draw(this.svg, "rect", {class: "shade", x: left, y: margin.top,
            width: this.x(Math.max(a, b)) - left, height: this.high - margin.top - margin.bottom});
    }

    key(event) {
        const [lo, hi] = this.shown, span = hi - lo;
        const at = this.range.at === null ? (lo + hi) / 2 : this.range.at;
        const step = event.shiftKey ? span / 10 : Math.max(this.least, span / 100);
        const deeds = {
            ArrowLeft: () => this.range.point(Math.max(lo, at - step), this, true),
            ArrowRight: () => this.range.point(Math.min(hi, at + step), this, true),
            Home: () => this.range.point(lo, this, true),
            End: () => this.range.point(hi, this, true),
            "+": () => this.range.show([at - (at - lo) / 2, at + (hi - at) / 2]),
            "-": () => this.range.show([at - 2 * (at - lo), at + 2 * (hi - at)]),
            "0": () => this.range.show(null),
            Escape: () => this.range.show(null),
        };
        const deed = deeds[event.key === "=" ? "+" : event.key];
        if (!deed || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        deed();
    }

    render() {
        const box = this.svg.getBoundingClientRect();
        if (box.width < 2) return;
        this.width = box.width;
        this.high = box.height;
        this.shown = this.range.shown();
        this.heights = this.limits(...this.shown);
        this.svg.replaceChildren();
        this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.high}`);
        this.axes();
        const id = "clip-" + this.range.key + this.range.plots.indexOf(this);
        draw(draw(this.svg, "clipPath", {id}), "rect", {x: margin.left, y: margin.top - 6,
            width: Math.max(0, this.width - margin.left - margin.right),
            height: this.high - margin.top - margin.bottom + 8});
        this.paint(draw(this.svg, "g", {"clip-path": `url(#${id})`}));
        this.cross = draw(this.svg, "line", {class: "cross", y1: margin.top,
            y2: this.high - margin.bottom, visibility: "hidden"});
    }

    axes() {
        const right = this.width - margin.right, bottom = this.high - margin.bottom;
        for (const [at, text] of this.yTicks(...this.heights)) {
            const y = this.y(at);
            draw(this.svg, "line", {class: "grid", x1: margin.left, x2: right, y1: y, y2: y});
            draw(this.svg, "text", {x: margin.left - 8, y: y + 4, "text-anchor": "end"}, text);
        }
        draw(this.svg, "line", {class: "base", x1: margin.left, x2: right, y1: bottom, y2: bottom});
        const {ticks, step} = linearTicks(...this.shown, Math.max(2, (this.width - 80) / 65), 10);
        for (const v of ticks) {
            if (step < 1 && this.least === 1 && !Number.isInteger(v)) continue;
            const x = this.x(v);
            draw(this.svg, "line", {class: "base", x1: x, x2: x, y1: bottom, y2: bottom + 4});
            draw(this.svg, "text", {x: Math.min(x, this.width - 24), y: bottom + 16, "text-anchor": "middle"},
                tickText(v, step));
        }
        draw(this.svg, "text", {x: right, y: this.high - 3, "text-anchor": "end"}, this.xLabel);
    }

    /* x null: nothing is pointed at. */
    point(x, mine, aloud) {
        this.tip.hidden = true;
        if (!this.cross) return;
        const rows = x === null ? null : this.tell(x);
        this.cross.setAttribute("visibility", rows ? "visible" : "hidden");
        if (!rows) return;
        const at = this.x(rows.at);
        this.cross.setAttribute("x1", at);
        this.cross.setAttribute("x2", at);
        if (!mine) return;
        this.tip.replaceChildren(make("div", {class: "when"}, rows.title), ...rows.lines.map((line) =>
            make("div", {}, ...(line.colour ? [swatch(line.colour)] : []), make("span", {}, line.name),
                make("b", {}, line.text))));
        this.tip.hidden = false;
        const left = this.svg.offsetLeft + at, wide = this.tip.offsetWidth;
        const fits = left + 14 + wide <= this.card.clientWidth;
        this.tip.style.left = (fits ? left + 14 : Math.max(4, left - 14 - wide)) + "px";
        this.tip.style.top = this.svg.offsetTop + margin.top + 4 + "px";
        if (aloud) say(rows.title + ": " + rows.lines.map((l) => l.name + " " + l.text).join(", "));
    }
}

/* A range of x that plots share, and the place on it that is pointed at. */
class Range {
    constructor(key, full) {
        this.key = key;
        this.full = full;
        this.plots = [];
        this.at = null;
        this.chosen = keptRange(key);
    }

    shown() {
        if (!this.chosen) return this.full;
        const lo = Math.max(this.full[0], this.chosen[0]), hi = Math.min(this.full[1], this.chosen[1]);
        return hi > lo ? [lo, hi] : this.full;
    }

    show(range) {
        const [lo, hi] = this.full;
        const whole = !range || (range[0] <= lo && range[1] >= hi);
        if (!whole && range[1] - range[0] < (hi - lo) / 1e5) return;
        this.chosen = whole ? null : [Math.max(lo, range[0]), Math.min(hi, range[1])];
        keepRange(this.key, this.chosen);
        this.render();
        if (this.changed) this.changed();
    }

    point(x, plot, aloud) {
        this.at = x;
        this.moved = Date.now();
        for (const p of this.plots) p.point(x, p === plot, aloud);
    }

    render() { for (const p of this.plots) p.render(); }
    /* True while somebody chooses a range, or has just pointed at a figure. */
    busy() {
        return this.plots.some((p) => p.from) || (this.at !== null && Date.now() - this.moved < 5000);
    }
}
