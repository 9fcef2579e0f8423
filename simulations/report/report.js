"use strict";
// Light or dark: the system's choice until the reader makes one.
(() => {
  const root = document.documentElement;
  const kept = (() => { try { return localStorage.getItem("fedhist-theme"); } catch { return null; } })();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  document.querySelector("button.theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("fedhist-theme", root.dataset.theme); } catch { /* no storage: only for now */ }
  });
})();
