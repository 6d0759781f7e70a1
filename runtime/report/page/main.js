/* main.js - puts the page together, and loads it again while a run lives. */

function buildTheme() {
    const themes = ["system", "light", "dark"], button = make("button", {type: "button"});
    const set = (theme) => {
        document.documentElement.dataset.theme = theme;
        button.textContent = {system: "◐ System", light: "☀ Light", dark: "☾ Dark"}[theme];
        button.setAttribute("aria-label", "colours: " + theme);
        keep("theme", theme === "system" ? "" : theme);
    };
    set(themes.includes(state.get("theme")) ? state.get("theme") : "system");
    button.addEventListener("click", () =>
        set(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]));
    document.getElementById("tools").append(button);
}

buildTheme();
buildToggles();
buildControls();
buildCharts();
const shownOperations = buildTimeline();

function renderAll() {
    steps.render();
    if (shownOperations()) shownOperations().render();
}

renderAll();
new ResizeObserver(renderAll).observe(document.querySelector("main"));

/* What is pointed at is not taken away: the page waits. */
if (data.refresh) {
    setInterval(() => {
        const busy = steps.busy() || (shownOperations() && shownOperations().busy());
        if (!busy && !document.hidden) location.reload();
    }, data.refresh * 1000);
}
