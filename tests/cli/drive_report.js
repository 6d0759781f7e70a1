/* drive_report.js - works a page as somebody would, with the keyboard and the mouse, and writes what
 * came of it into the title of the document, where --dump-dom shows it. check_report_page.c appends
 * it to a page. */
addEventListener("load", () => setTimeout(() => {
    const found = [];
    const check = (name, holds) => found.push((holds ? "ok " : "FAILS ") + name);
    const svg = document.querySelector('[data-chart="loss"] svg');
    const key = (name) => svg.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
    const curves = () => document.querySelectorAll('[data-chart="loss"] path.curve').length;
    const ticks = () => [...svg.querySelectorAll("text")].map((t) => t.textContent).join();
    const before = ticks(), shown = curves();
    try {
        key("Home");
        const tip = document.querySelector('[data-chart="loss"] .tip');
        check("a key shows figures", !tip.hidden && tip.textContent.startsWith("step 1"));
        check("figures are spoken", document.getElementById("spoken").textContent.startsWith("step 1:"));
        key("+");
        check("a key zooms", /[#&]x=/.test(location.hash) && ticks() !== before);
        key("0");
        check("a key shows everything", !/[#&]x=/.test(location.hash) && ticks() === before);
        const box = svg.getBoundingClientRect();
        const mouse = (type, share) => svg.dispatchEvent(new PointerEvent(type, {bubbles: true,
            pointerId: 1, clientX: box.left + share * box.width, clientY: box.top + 50}));
        svg.setPointerCapture = () => {};
        mouse("pointerdown", 0.3);
        mouse("pointermove", 0.6);
        check("a range is shaded", svg.querySelector(".shade") !== null);
        mouse("pointerup", 0.6);
        check("a drag zooms", /[#&]x=/.test(location.hash) && ticks() !== before);
        svg.dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
        check("a double click goes back", ticks() === before);
        const toggle = document.querySelector('#figures input[type="checkbox"]');
        toggle.click();
        check("a run can be left out", curves() === shown - 1 && /hide=0/.test(location.hash));
        toggle.click();
        const smooth = document.querySelector('input[type="range"]');
        smooth.value = 0.5;
        smooth.dispatchEvent(new Event("input"));
        check("curves can be smoothed", document.querySelectorAll('[data-chart="loss"] path.raw').length === shown);
        document.querySelector("#tools button").click();
        check("colours can be chosen", document.documentElement.dataset.theme === "light" &&
            getComputedStyle(document.body).backgroundColor === "rgb(246, 247, 249)");
        document.querySelector("#tools button").click();
        check("dark ones too", getComputedStyle(document.body).backgroundColor === "rgb(16, 21, 28)");
        const memory = document.querySelector("#timeline svg");
        check("the timeline is drawn", memory.querySelectorAll("path.band").length > 2);
        memory.dispatchEvent(new KeyboardEvent("keydown", {key: "+", bubbles: true}));
        check("it can be zoomed", /ops=/.test(location.hash));
        const top = () => [...document.querySelectorAll("#timeline svg text")].map((t) => t.textContent).join();
        const stacked = top();
        document.querySelector('#timeline-controls input[type="checkbox"]').click();
        check("the batch arena can be shown alone", top() !== stacked && /batch=1/.test(location.hash));
        check("nothing of a name ran", !window.harm && document.images.length === 0);
    } catch (e) {
        found.push("FAILS " + e);
    }
    document.title = "driven: " + found.join("; ");
}, 100));
