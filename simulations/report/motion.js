"use strict";
(() => {
  const panel = document.querySelector(".motion");
  const data = JSON.parse(document.getElementById("motion-data").textContent);
  const steps = data.steps;
  const find = (selector) => panel.querySelector(selector);
  const picture = find(".motion-picture svg");
  const slider = find("input[type=range]");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const GOLDEN = Math.PI * (3 - Math.sqrt(5));
  const MOST_FLYING = 100;
  const SPREAD = 700;  // milliseconds from the first dot that moves to the last one

  // What a dot has done by the end of a scene; scenes that are not here leave it as it was.
  const LOOKS = {
    plan: "there", asks: "asked", keys: "keyed", shares: "shared", checks: "shared", masked: "masked",
    confirms: "masked", unmasks: "masked", answers: "answered", sum: "summed",
  };
  const LEGEND = {
    there: "waiting", asked: "asked", keyed: "has sent a key", shared: "has shared its secrets", masked: "has sent masked values",
    answered: "has answered", summed: "in the sum", silent: "dropped out", refused: "answered, and left out",
    late: "dropped out, and in the sum all the same",
  };
  const FLIES = { shares: "key", checks: "key", confirms: "key", unmasks: "open" };
  const HELD = { keys: "public key", shares: "encrypted message", answers: "answer", masked: "masked message" };

  function make(name, parent, attributes = {}) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return parent.appendChild(element);
  }
  const at = ([x, y], scale = 1) => `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) scale(${scale})`;
  const amount = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  // Places inside of a disc: a ring for a few, from the middle outwards for many.
  function places(count, [x, y], radius) {
    return Array.from({ length: count }, (_, place) => {
      if (count === 1) return [x, y];
      const angle = count < 12 ? (2 * Math.PI * place) / count - Math.PI / 2 : place * GOLDEN;
      const away = radius * (count < 12 ? 0.62 : (1 - 0.5 / Math.sqrt(count)) * Math.sqrt((place + 0.5) / count));
      return [x + away * Math.cos(angle), y + away * Math.sin(angle)];
    });
  }

  // The picture after a step: a round begins with everybody, and each of its steps adds to it.
  function state(index) {
    let begin = index;
    while (begin > 0 && steps[begin].scene !== "asks") begin -= 1;
    const first = steps[begin].dots ? steps[begin] : steps.find((step) => step.dots) || {};
    const shown = { dots: first.dots || 0, participants: first.participants || 0, gone: new Map(), look: "there", missing: 0 };
    for (const step of steps.slice(begin, index + 1)) {
      for (const [dot, how] of step.gone || []) shown.gone.set(dot, how);
      shown.look = LOOKS[step.scene] || shown.look;
      shown.missing = step.missing || shown.missing;
      // What the server holds of each: keys and shares, which it passes on to be checked, or values.
      if (["keys", "shares", "answers", "masked"].includes(step.scene)) shown.held = step.scene;
      if (step.scene === "checks") shown.held = undefined;
      if (step.scene === "sum") Object.assign(shown, { summed: step.summed, users: step.users });
      shown.released = step.scene === "released";
    }
    return shown;
  }

  let drawn = null;  // the elements, and for which layout they are
  function draw(dots) {
    const wide = picture.clientWidth >= 520;
    if (drawn && drawn.wide === wide && drawn.count === dots) return false;
    const [width, height] = wide ? [720, 404] : [360, 576];
    const devices = wide ? { centre: [192, 206], radius: 158 } : { centre: [180, 412], radius: 118 };
    const server = wide ? { centre: [556, 206], radius: 116 } : { centre: [180, 120], radius: 78 };
    picture.replaceChildren();
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const noise = make("pattern", make("defs", picture), { id: "motion-noise", width: 8, height: 8, patternUnits: "userSpaceOnUse" });
    for (let cell = 0, seed = 7; cell < 16; cell += 1) {
      seed = (seed * 48271) % 2147483647;
      const box = { x: 2 * (cell % 4), y: 2 * Math.floor(cell / 4), width: 2, height: 2 };
      make("rect", noise, { ...box, class: "motion-grain", opacity: (0.15 + (0.85 * (seed % 1000)) / 1000).toFixed(2) });
    }
    const [[dx, dy], [sx, sy]] = [devices.centre, server.centre];
    const reach = [dx + devices.radius + 24, sx - server.radius - 24];
    if (wide) make("path", picture, { class: "motion-wire", d: `M${reach[0]} ${dy}H${reach[1]}` });
    for (const [side, { centre: [x, y], radius }] of Object.entries({ devices, server })) {
      make("circle", picture, { class: `motion-disc ${side}`, cx: x, cy: y, r: radius + 14 });
      make("text", picture, { class: `motion-name ${side}`, x, y: y - radius - 24 });
      make("text", picture, { class: `motion-count ${side}`, x, y: y + radius + 34 });
    }
    const own = places(dots, devices.centre, devices.radius);
    const theirs = places(dots, server.centre, server.radius);
    const size = (radius) => Math.max(2.6, Math.min(22, (dots === 1 ? 22 : 0.64 * radius / Math.sqrt(dots))));
    const layer = make("g", picture);
    const elements = own.map((place, dot) => {
      const group = make("g", layer, { class: "dot", "data-dot": dot });
      group.style.transform = at(place);
      group.style.setProperty("--late", `${Math.round((SPREAD * dot) / Math.max(1, dots))}ms`);
      const radius = dots === 1 ? devices.radius : size(devices.radius);
      if (dots === 1) crowd(group, devices.radius);
      glyph(group, radius, dots === 1);
      if (data.noun !== "process") make("title", group).textContent = name(dot, dots);
      return group;
    });
    const sum = make("g", picture, { class: "motion-sum" });
    make("circle", sum, { r: server.radius * 0.62 });
    make("text", sum, { y: 14 }).textContent = "Σ";
    sum.style.transform = at(server.centre);
    const bars = make("g", picture, { class: "motion-final" });
    bars.style.transform = at([sx - server.radius * 0.8, sy - server.radius * 0.55]);
    columns(bars, data.released, server.radius * 1.6, server.radius * 1.1);
    const answers = make("g", picture);
    const particles = own.map((_, dot) => {
      const group = make("g", answers, { class: "particle" });
      group.style.setProperty("--late", `${Math.round((SPREAD * dot) / Math.max(1, dots))}ms`);
      glyph(group, dots === 1 ? 34 : size(server.radius));
      return group;
    });
    drawn = { wide, count: dots, own, theirs, devices, server, elements, particles, sum, bars, flying: make("g", picture) };
    return true;
  }

  // The users of a process, for scale.
  function crowd(group, radius) {
    const shown = Math.min(data.users, 240);
    const inside = make("g", group, { class: "crowd" });
    for (const [x, y] of places(shown, [0, 0], radius * 0.92)) {
      make("circle", inside, { cx: x.toFixed(1), cy: y.toFixed(1), r: Math.max(1.6, (0.5 * radius) / Math.sqrt(shown)).toFixed(1) });
    }
  }

  function glyph(group, radius, open = false) {
    const arm = (0.62 * Math.min(radius, 30)).toFixed(1);
    make("circle", group, { class: open ? "body open" : "body", r: radius.toFixed(1) });
    make("path", group, { class: "cross", d: `M-${arm} -${arm}L${arm} ${arm}M-${arm} ${arm}L${arm} -${arm}` });
    make("path", group, { class: "stop", d: `M-${arm} 0H${arm}` });
  }

  function columns(parent, values, width, height) {
    const low = Math.min(0, ...values);
    const [zero, pitch] = [height / (1 - low), width / Math.max(1, values.length)];
    for (const [place, value] of values.entries()) {
      const tall = Math.max(1, Math.abs(value) * zero);
      const box = { x: place * pitch + pitch * 0.12, width: pitch * 0.76, y: value < 0 ? zero : zero - tall, height: tall };
      make("rect", parent, Object.fromEntries(Object.entries(box).map(([key, size]) => [key, size.toFixed(1)])));
    }
    make("path", parent, { class: "motion-zero", d: `M0 ${zero.toFixed(1)}H${width.toFixed(1)}` });
  }

  function name(dot, dots) {
    const step = steps.find((one) => one.dots === dots);
    const each = Math.ceil(step.participants / dots);
    const last = Math.min((dot + 1) * each, step.participants);
    return each === 1 ? `participant ${dot + 1}` : `participants ${dot * each + 1} to ${last}`;
  }

  function place(shown) {
    const { own, theirs, server, elements, particles, sum, bars } = drawn;
    const summed = shown.summed !== undefined;
    const refused = [...shown.gone.keys()].filter((dot) => shown.gone.get(dot) === "refused").sort((a, b) => a - b);
    for (const [dot, element] of elements.entries()) {
      const how = shown.gone.get(dot);
      const look = how === undefined || how === "late" ? shown.look : "";
      element.setAttribute("class", ["dot", look, how && "gone", how].filter(Boolean).join(" "));
      element.dataset.state = how || shown.look;
      const particle = particles[dot];
      const sent = shown.held && how !== "silent";
      let [where, scale, seen] = [own[dot], 0.3, 0];
      if (sent && how === "refused") {
        // Side by side before the server's door.
        const [[x, y], [dx, dy], far] = [server.centre, drawn.devices.centre, server.radius + 14];
        const angle = Math.atan2(dy - y, dx - x) + (refused.indexOf(dot) - (refused.length - 1) / 2) * Math.min(0.14, 5 / refused.length);
        [where, scale, seen] = [[x + far * Math.cos(angle), y + far * Math.sin(angle)], 1, summed ? 0 : 1];
      } else if (sent) {
        [where, scale, seen] = summed ? [server.centre, 0.3, 0] : [theirs[dot], 1, 1];
      }
      particle.setAttribute("class", `particle ${how === "refused" ? "gone refused" : shown.held || ""}`);
      particle.style.transform = at(where, scale);
      particle.style.opacity = seen;
      particle.dataset.here = String(seen);
    }
    sum.classList.toggle("on", summed && !shown.released);
    bars.classList.toggle("on", Boolean(shown.released));
  }

  // Messages that pass: to the devices, and then back.
  function fly(step, shown) {
    const { own, server, flying, elements } = drawn;
    const here = [...own.keys()].filter((dot) => !shown.gone.has(dot) || (step.gone || []).every(([gone]) => gone !== dot));
    const some = here.filter((_, place) => place % Math.ceil(here.length / MOST_FLYING) === 0);
    const ways = [];
    if (["asks", "shares", "checks", "confirms", "unmasks"].includes(step.scene)) ways.push(["ask", true, 0]);
    if (FLIES[step.scene]) ways.push([FLIES[step.scene], false, ways.length ? 700 : 0]);
    for (const [kind, down, delay] of ways) {
      for (const dot of some) {
        if (!down && elements[dot].classList.contains("gone") && !elements[dot].classList.contains("late")) continue;
        const message = make("circle", flying, { class: `message ${kind}`, r: 3.4 });
        const [from, to] = down ? [server.centre, own[dot]] : [own[dot], server.centre];
        const frames = [
          { transform: at(from), opacity: 0 }, { opacity: 1, offset: 0.15 }, { opacity: 1, offset: 0.85 }, { transform: at(to), opacity: 0 },
        ];
        const timing = { duration: 800, delay: delay + (SPREAD * dot) / own.length, easing: "ease-in-out", fill: "both" };
        message.animate(frames, timing).onfinish = () => message.remove();
      }
    }
  }

  function legend(shown) {
    const looks = new Set(drawn.elements.map((element) => element.dataset.state));
    const items = Object.keys(LEGEND).filter((look) => looks.has(look)).map((look) => {
      const item = document.createElement("li");
      const swatch = make("svg", item, { class: "motion-swatch", viewBox: "-9 -9 18 18", "aria-hidden": "true" });
      const base = look === "late" ? `${shown.look} gone late` : ["silent", "refused"].includes(look) ? `gone ${look}` : look;
      glyph(make("g", swatch, { class: `dot ${base}` }), 7);
      item.append(LEGEND[look]);
      return item;
    });
    if (data.lying && ["answers", "masked"].includes(shown.held)) {
      const item = document.createElement("li");
      item.className = "motion-lying";
      item.textContent = `${data.lying.toLocaleString("en")} of these lie: the server can't see which`;
      items.push(item);
    }
    find(".motion-legend").replaceChildren(...items);
  }

  function counts(step, shown) {
    const say = (side, what, words) => { picture.querySelector(`.motion-${what}.${side}`).textContent = words; };
    say("devices", "name", data.noun === "process" ? `1 process, ${amount(data.users, "user")}` : amount(shown.participants, "participant"));
    const missing = shown.missing ? `${shown.missing.toLocaleString("en")} dropped out` : "";
    const answered = step.answered === undefined || data.noun === "process" ? "" : `${step.answered.toLocaleString("en")} ${step.scene === "answers" ? "in the sum" : "answered"}`;
    say("devices", "count", [answered, missing].filter(Boolean).join(" · "));
    say("server", "name", "server");
    const users = shown.users === undefined ? "" : `, ${amount(shown.users, "user")}`;
    const who = data.noun === "process" ? amount(shown.users || 0, "user") : amount(shown.summed || 0, "participant") + users;
    // Keys may have come before the round.
    const messages = step.scene === "keys" ? shown.participants - shown.missing : step.answered || 0;
    const held = HELD[step.scene] && amount(messages, HELD[step.scene]);
    const words = shown.released ? "released" : shown.summed === undefined ? held : who;
    say("server", "count", words || "");
  }

  function bars(step) {
    const strip = find(".motion-bars");
    const [values, look, words] = step.scene === "released"
      ? [data.released, "released", `The ${amount(data.released.length, "largest released value")}`]
      : [step.noise || [], "noise", `${amount((step.noise || []).length, "value")} of one message, as they reached the server`];
    strip.replaceChildren();
    strip.toggleAttribute("hidden", !values.length);
    find(".motion-bars-words").textContent = values.length ? words : "";
    if (!values.length) return;
    strip.setAttribute("viewBox", "0 0 300 84");
    strip.setAttribute("class", `motion-bars ${look}`);
    strip.setAttribute("aria-label", words);
    columns(strip, values, 300, 84);
  }

  let now = -1;
  let timer = 0;
  function go(to) {
    const before = now;
    now = Math.max(0, Math.min(steps.length - 1, to));
    const [step, shown] = [steps[now], state(now)];
    // Only one step forward in a picture that is there already moves; all else is simply shown.
    const moves = !draw(shown.dots) && now === before + 1 && !calm.matches;
    picture.classList.toggle("still", !moves);
    drawn.flying.replaceChildren();
    place(shown);
    if (moves) fly(step, shown);
    counts(step, shown);
    legend(shown);
    bars(step);
    find(".motion-round").textContent = step.round ? `Round ${step.round}` : "";
    find(".motion-title").textContent = step.title;
    find(".motion-what").textContent = step.caption;
    find(".motion-counts").textContent = step.counts || "";
    find(".motion-seen").textContent = step.sees;
    find(".motion-spent").textContent = step.spent ? `Spent so far: ${step.spent.join(" + ")}` : "";
    find(".motion-where").textContent = `${now + 1} of ${steps.length}`;
    slider.value = String(now);
    slider.setAttribute("aria-valuetext", `step ${now + 1} of ${steps.length}: ${step.title}`);
    find("[data-motion=back]").disabled = now === 0;
    find("[data-motion=forward]").disabled = now === steps.length - 1;
    panel.dataset.now = String(now);
  }

  function play(on) {
    clearTimeout(timer);
    panel.dataset.playing = String(on);
    find("[data-motion=play]").textContent = on ? "❚❚ pause" : "▶ play";
    if (!on) return;
    if (now === steps.length - 1) go(0);
    const next = () => {
      timer = setTimeout(() => {
        go(now + 1);
        if (now === steps.length - 1) play(false);
        else next();
      }, Math.max(3000, Math.min(9000, 1500 + 24 * find(".motion-caption").textContent.length)));
    };
    next();
  }

  const acts = {
    play: () => play(panel.dataset.playing !== "true"),
    back: () => { play(false); go(now - 1); },
    forward: () => { play(false); go(now + 1); },
    first: () => { play(false); go(0); },
    last: () => { play(false); go(steps.length - 1); },
  };
  panel.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-motion]");
    if (button) acts[button.dataset.motion]();
  });
  panel.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    // A button answers to the space bar by itself, and a slider to the arrows.
    const keys = event.target.closest("button")
      ? { ArrowRight: "forward", ArrowLeft: "back" }
      : event.target === slider ? { " ": "play" } : { " ": "play", ArrowRight: "forward", ArrowLeft: "back", Home: "first", End: "last" };
    if (!(event.key in keys)) return;
    event.preventDefault();
    acts[keys[event.key]]();
  });
  slider.addEventListener("input", () => { play(false); go(Number(slider.value)); });
  document.addEventListener("visibilitychange", () => { if (document.hidden) play(false); });
  new ResizeObserver(() => { if (drawn && drawn.wide !== picture.clientWidth >= 520) go(now); }).observe(picture);

  slider.max = String(steps.length - 1);
  find(".motion-controls").hidden = false;
  play(false);
  go(0);
})();
