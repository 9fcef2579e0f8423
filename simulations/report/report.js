"use strict";
(() => {
  const tip = document.getElementById("tip");
  const root = document.documentElement;

  // Values under the pointer, or under the arrow keys.
  function show(hit, x, y) {
    for (const other of document.querySelectorAll(".hit.on")) other.classList.remove("on");
    if (!hit) { tip.hidden = true; return; }
    hit.classList.add("on");
    tip.textContent = hit.dataset.tip;
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const left = Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 4));
    const above = y - tip.offsetHeight - 12;
    tip.style.left = left + "px";
    tip.style.top = (above > 4 ? above : y + 16) + "px";
  }

  function showBeside(hit) {
    const box = hit.getBoundingClientRect();
    show(hit, box.left + box.width / 2, box.top + Math.min(box.height / 2, 40));
  }

  for (const chart of document.querySelectorAll("svg.chart")) {
    const hits = [...chart.querySelectorAll(".hit")];
    let place = -1;
    chart.addEventListener("pointermove", (event) => {
      const hit = event.target.closest(".hit");
      place = hits.indexOf(hit);
      show(hit, event.clientX, event.clientY);
    });
    chart.addEventListener("pointerleave", () => show(null));
    chart.addEventListener("blur", () => show(null));
    chart.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key in moves) place = Math.max(0, Math.min(hits.length - 1, place + moves[event.key]));
      else if (event.key === "Home") place = 0;
      else if (event.key === "End") place = hits.length - 1;
      else if (event.key === "Escape") { show(null); return; }
      else return;
      event.preventDefault();
      showBeside(hits[place]);
    });
  }
  document.addEventListener("scroll", () => show(null), { passive: true });

  // Light or dark: the system's choice until the reader makes one.
  const kept = (() => { try { return localStorage.getItem("fedhist-theme"); } catch { return null; } })();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  document.querySelector("button.theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("fedhist-theme", root.dataset.theme); } catch { /* no storage: only for now */ }
  });
})();
