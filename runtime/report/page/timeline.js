/* timeline.js - the planned bytes over the operations of all phases, one phase after the other. */

class Timeline extends Plot {
    constructor(card, range, timeline, alone) {
        super(card, range, "Planned memory over the operations");
        this.xLabel = "operation";
        this.least = 1;
        this.timeline = timeline;
        this.alone = alone;
        this.bands = this.listBands(alone);
        this.columns = this.listColumns();
    }

    /* What lives as long as the run lies below, what lives for some operations above. */
    listBands(alone) {
        const lives = (name) => this.timeline.phases.some((p) => p.live[name]);
        const names = Object.keys(data.categories);
        return [...names.filter((n) => !alone && this.timeline.job[n]).map((name) => ({name, job: true})),
            ...names.filter(lives).map((name) => ({name, job: false}))];
    }

    /* A column: the operations [from, to) of the whole line, and the tops of the bands. */
    listColumns() {
        const columns = [];
        let first = 0;
        for (const phase of this.timeline.phases) {
            phase.first = first;
            const n = phase.op.length;
            for (let i = 0; i < n; i++) {
                let top = 0;
                const tops = this.bands.map((b) => top += this.bytes(b, phase, i));
                columns.push({phase, i, from: first + Math.floor(i * phase.ops / n),
                    to: first + Math.floor((i + 1) * phase.ops / n), tops});
            }
            first += phase.ops;
        }
        return columns;
    }

    bytes(band, phase, i) {
        if (band.job) return this.timeline.job[band.name];
        return phase.live[band.name] ? phase.live[band.name][i] : 0;
    }

    visible() {
        const [lo, hi] = this.shown;
        return this.columns.filter((c) => c.to > lo && c.from < hi);
    }

    budgetInSight(top) { return this.timeline.budget_bytes && this.timeline.budget_bytes < 2.5 * top; }

    limits() {
        if (this.alone) return [0, 1.1 * Math.max(1, ...this.visible().map((c) => last(c.tops) || 0))];
        let top = this.timeline.arena_bytes;
        if (this.budgetInSight(top)) top = Math.max(top, this.timeline.budget_bytes);
        return [0, top * 1.1 || 1];
    }

    yTicks(lo, hi) { return linearTicks(lo, hi, 6, 2).ticks.map((t) => [t, bytesTick(t)]); }

    paint(layer) {
        const shown = this.visible();
        this.bands.forEach((band, b) => this.paintBand(layer, shown, band, b));
        for (const phase of this.timeline.phases) this.paintPhase(phase);
        if (this.alone) return;
        this.paintLevel(layer, this.timeline.arena_bytes, "ink", "planned " + bytesText(this.timeline.arena_bytes));
        if (this.budgetInSight(this.timeline.arena_bytes))
            this.paintLevel(layer, this.timeline.budget_bytes, "alarm",
                "budget " + bytesText(this.timeline.budget_bytes));
    }

    /* Steps, not slopes: bytes do not change within an operation. */
    paintBand(layer, shown, band, b) {
        let d = "", back = "";
        for (const c of shown) {
            const left = this.x(c.from).toFixed(1), right = this.x(c.to).toFixed(1);
            const top = this.y(c.tops[b]).toFixed(1), low = this.y(b ? c.tops[b - 1] : 0).toFixed(1);
            d += `${d ? "L" : "M"}${left} ${top}H${right}`;
            back = `L${right} ${low}H${left}` + back;
        }
        if (d) draw(layer, "path", {class: "band", d: d + back + "z", fill: data.categories[band.name],
            "fill-opacity": band.job ? 1 : 0.7});
    }

    paintLevel(layer, bytes, kind, text) {
        const y = this.y(bytes), right = this.width - margin.right;
        draw(layer, "line", {class: kind === "alarm" ? "budget" : "cross", x1: margin.left, x2: right, y1: y, y2: y});
        draw(layer, "text", {class: kind, x: right - 4, y: y - 5, "text-anchor": "end"}, text);
    }

    paintPhase(phase) {
        const [lo, hi] = this.shown, bottom = this.high - margin.bottom;
        const parts = [[phase.name, 0, phase.ops]];
        const turn = phase.backward_op;
        if (turn > 0 && turn < phase.ops)
            parts.splice(0, 1, [phase.name + ", forward", 0, turn], [phase.name + ", backward", turn, phase.ops]);
        for (const [name, from, to] of parts) {
            const left = this.x(Math.max(lo, phase.first + from)), right = this.x(Math.min(hi, phase.first + to));
            if (right <= left) continue;
            draw(this.svg, "line", {class: "base", x1: left, x2: left, y1: margin.top - 8, y2: bottom});
            if (right - left > 6.4 * name.length)
                draw(this.svg, "text", {x: left + 4, y: margin.top - 3}, name);
        }
    }

    tell(x) {
        const c = this.columns.find((one) => one.from <= x && x < one.to);
        if (!c) return null;
        const {phase, i} = c, layer = phase.layer[i];
        const lines = this.bands.map((band) => ({name: band.name + (band.job ? ", the whole run" : ""),
            colour: data.categories[band.name], value: this.bytes(band, phase, i)}))
            .filter((line) => line.value).reverse();
        for (const line of lines) line.text = bytesText(line.value);
        lines.push({name: "in all", text: bytesText(last(c.tops) || 0)});
        if (phase.op[i] === phase.peak_op)
            for (const t of phase.largest) lines.push({name: t.name, text: bytesText(t.bytes)});
        return {at: (c.from + c.to) / 2, lines, title: `${phase.name}, operation ${phase.op[i]}: ` +
            this.timeline.names[phase.what[i]] + (layer < 0 ? "" : ` of layer ${layer}`) +
            (phase.op[i] === phase.peak_op ? ", the peak of the phase; its largest tensors last" : "")};
    }
}

function showTimeline(run, alone) {
    const place = document.getElementById("timeline"), timeline = data.runs[run].timeline;
    place.replaceChildren();
    const all = timeline.phases.reduce((sum, p) => sum + p.ops, 0);
    const range = new Range("ops", [0, Math.max(1, all)]);
    const plot = new Timeline(place, range, timeline, alone);
    place.append(make("div", {class: "keys"}, ...plot.bands.map((band) => {
        const key = make("span", {}, swatch(data.categories[band.name]), band.name + (band.job ? ", the whole run" : ""));
        if (!band.job) key.firstChild.style.opacity = 0.7;
        return key;
    })));
    plot.render();
    return range;
}

/* Returns the function that gives the range of the timeline that is shown, or null. */
function buildTimeline() {
    const with_ = data.runs.map((run, i) => i).filter((i) => data.runs[i].timeline);
    if (!with_.length) return () => null;
    document.getElementById("memory").hidden = false;
    const choice = make("select", {"aria-label": "run"}), all = make("button", {type: "button"}, "Show all operations");
    for (const i of with_) choice.append(make("option", {value: i}, data.runs[i].label));
    const alone = make("input", {type: "checkbox"});
    const kept = Number(state.get("run"));
    alone.checked = state.get("batch") === "1";
    choice.value = with_.includes(kept) ? kept : with_[0];
    let range;
    const show = () => {
        range = showTimeline(Number(choice.value), alone.checked);
        range.changed = () => { all.disabled = !range.chosen; };
        range.changed();
    };
    choice.addEventListener("change", () => {
        keep("run", choice.value);
        keepRange("ops", null);
        show();
    });
    alone.addEventListener("change", () => {
        keep("batch", alone.checked ? 1 : "");
        show();
    });
    all.addEventListener("click", () => range.show(null));
    document.getElementById("timeline-controls").append(
        ...(with_.length > 1 ? [make("label", {}, "Run", choice)] : []),
        make("label", {}, alone, "Batch arena alone"), all,
        make("span", {class: "hint"}, "Drag to zoom, double-click to go back."));
    show();
    return () => range;
}
