// What the panel's pages cannot do without scripts: draw charts, keep them and
// opened details while parts of a page refresh themselves, ask before what
// cannot be undone, copy, and show when the connection is lost. Everything is
// bound to attributes; there is nothing inline.
(() => {
  "use strict";

  const all = (root, selector) => [
    ...(root.matches?.(selector) ? [root] : []), ...root.querySelectorAll(selector)];

  // Charts. The figures stand in <data class="chart-data" value="JSON">; the box
  // with the canvas is preserved when the figure around it is replaced.
  const charts = new WeakMap();

  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const sequence = ["accent", "second", "good", "warn", "bad", "quiet"];
  const write = (value) => value.toLocaleString("en-GB", { maximumFractionDigits: 2 });

  const datasets = (drawn) => drawn.series.map((s, i) => {
    const colour = tone("tone-" + (s.tone || sequence[i % sequence.length]));
    return { label: s.name, data: s.values, backgroundColor: colour, borderColor: colour,
      borderWidth: 0, pointRadius: 0, pointHitRadius: 12, tension: .25, maxBarThickness: 32, borderRadius: 2 };
  });

  const options = (drawn) => {
    const ink = tone("ink"), grid = tone("rule");
    const narrow = drawn.across && matchMedia("(max-width: 40rem)").matches;
    const along = { stacked: drawn.stacked, grid: { display: false }, ticks: { color: ink, font: { size: narrow ? 9 : 12 }, maxRotation: 0, autoSkip: !drawn.across, autoSkipPadding: 12 } };
    const height = { stacked: drawn.stacked, beginAtZero: true, grid: { color: grid }, border: { display: false },
      ticks: { color: ink, callback: write, maxTicksLimit: 6, precision: drawn.unit === "TRY" ? undefined : 0 } };
    return {
      animation: false, responsive: true, maintainAspectRatio: false, indexAxis: drawn.across ? "y" : "x",
      interaction: { mode: "index", intersect: false, axis: drawn.across ? "y" : "x" },
      scales: drawn.across ? { x: height, y: along } : { x: along, y: height },
      plugins: {
        legend: { display: drawn.series.length > 1, position: "bottom", labels: { color: ink, boxWidth: 12, boxHeight: 12 } },
        tooltip: { callbacks: { label: (at) => `${at.dataset.label}: ${write(at.raw)} ${drawn.unit}` } },
      },
    };
  };

  const draw = (figure) => {
    const canvas = figure.querySelector("canvas"), data = figure.querySelector(".chart-data");
    if (!canvas || !data || typeof Chart === "undefined") return;
    const drawn = JSON.parse(data.value);
    const there = charts.get(canvas);
    if (there) {
      there.data = { labels: drawn.labels, datasets: datasets(drawn) };
      there.options = options(drawn);
      there.update("none");
      return;
    }
    charts.set(canvas, new Chart(canvas, { type: "bar",
      data: { labels: drawn.labels, datasets: datasets(drawn) }, options: options(drawn) }));
  };
  const drawAll = (root) => all(root, ".chart").forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));

  // What is open stays open when the part around it is replaced.
  let open = new Set();
  document.addEventListener("htmx:beforeSwap", (e) => {
    open = new Set(all(e.target, "details[open][id]").map((d) => d.id));
  });
  document.addEventListener("htmx:afterSettle", (e) => {
    all(e.target, "details[id]").forEach((d) => { if (open.has(d.id)) d.open = true; });
    drawAll(e.target);
    say("");
  });

  // The connection, and a session that has ended meanwhile.
  const say = (what) => {
    const lost = document.getElementById("lost");
    const text = what ? lost.dataset[what] : "";
    if (lost.textContent !== text) lost.textContent = text;
    lost.hidden = !what;
  };
  document.addEventListener("htmx:sendError", () => say("lost"));
  document.addEventListener("htmx:timeout", () => say("lost"));
  document.addEventListener("htmx:responseError", (e) => {
    if (e.detail.xhr.status === 401) location.reload(); // leads to the sign-in page and back
    else say("failed");
  });
  // A page that nobody looks at asks for nothing.
  document.addEventListener("htmx:beforeRequest", (e) => {
    if (document.hidden && e.detail.elt.hasAttribute("data-live")) e.preventDefault();
  });

  document.addEventListener("submit", (e) => {
    const form = e.target, question = (e.submitter?.dataset.confirm) || form.dataset.confirm;
    if (question && !confirm(question)) { e.preventDefault(); return; }
    if (form.method === "post") { // not twice by a double click
      if (form.dataset.sent) { e.preventDefault(); return; }
      form.dataset.sent = "yes";
    }
  });
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((f) => delete f.dataset.sent));

  document.addEventListener("click", async (e) => {
    const button = e.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.classList.add("copied");
      setTimeout(() => button.classList.remove("copied"), 1500);
    } catch { /* the text stands beside the button */ }
  });

  // Browsers show a date in a form of their own; beside it stands that of the pages.
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  document.addEventListener("input", (e) => {
    if (!e.target.matches("[data-date]")) return;
    const [day, time] = e.target.value.split("T"), [y, m, d] = day.split("-").map(Number);
    e.target.nextElementSibling.textContent = day ? `${d} ${months[m - 1]} ${y}` + (time ? " " + (time + ":00").slice(0, 8) : "") : "";
  });

  // Filters that are complete by themselves need no button.
  document.addEventListener("change", (e) => {
    if (e.target.matches("form[data-auto] select, form[data-auto] input[type=date]")) e.target.form.requestSubmit();
  });

  drawAll(document);
})();
