"use strict";
(() => {
  const { run, cases } = window.segconfData;
  const find = (id) => document.getElementById(id);
  const key = `segconf-review-${run.id}`;
  const marks = { accept: "\u2713", edit: "\u270e", reject: "\u2715" };
  const byName = new Map(cases.map((row) => [row.case, row]));
  const maps = new Map(); // confidence and mask of the cases seen last
  const KEPT_MAPS = 12;
  const LOW = [255, 234, 70], MIDDLE = [74, 163, 255];
  const view = { layer: true, contour: true, heat: false, zoom: 1, x: 0, y: 0, current: null, shown: [] };

  // Decisions survive a reload: they are kept under the id of the prediction.
  let decisions = {};
  const load = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(key) || "{}");
      decisions = kept && typeof kept === "object" ? kept : {};
    } catch { find("storage").hidden = false; }
  };
  const save = () => {
    try { localStorage.setItem(key, JSON.stringify(decisions)); }
    catch { find("storage").hidden = false; }
  };
  const decided = (name) => (Object.hasOwn(decisions, name) ? decisions[name] : {});
  const change = (name, values) => {
    const next = { ...decided(name), ...values, decided_at: new Date().toISOString() };
    if (next.decision || next.note) decisions[name] = next;
    else delete decisions[name];
    save();
  };

  const percent = (share) => (share === null || share === undefined ? "\u2013" : `${(100 * share).toFixed(share >= 0.0995 || share === 0 ? 0 : 1)}%`);
  const url = (folder, name, suffix) => `review/${folder}/${name.split("/").map(encodeURIComponent).join("/")}${suffix}`;
  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // The queue.
  const items = new Map();
  const makeItem = (row) => {
    const item = element("li");
    const button = element("button");
    button.type = "button";
    button.tabIndex = -1;
    if (row.error) {
      button.append(element("span", "blank", "!"));
    } else {
      const picture = element("img");
      picture.loading = "lazy";
      picture.decoding = "async";
      picture.alt = "";
      picture.src = url("thumbnails", row.case, ".jpg");
      button.append(picture);
    }
    const words = element("span");
    const name = element("span", "name", row.case);
    name.title = row.case;
    words.append(name);
    const facts = element("span", "facts", row.error ? "cannot be read" : `Dice ${row.expected_dice === null ? "\u2013" : row.expected_dice.toFixed(2)}`);
    if (!row.error) facts.append(element("span", "more", `, border ${percent(row.border_confidence)}`));
    words.append(facts);
    if (row.severity === "refer") {
      const reason = element("span", "facts flagged", `\u2691 ${row.flags[0]}`);
      reason.title = row.flags[0];
      words.append(reason);
    }
    button.append(words, element("span", "mark"));
    button.addEventListener("click", () => show(row.case));
    item.append(button);
    items.set(row.case, item);
  };
  const updateItem = (name) => {
    const mark = items.get(name).querySelector(".mark");
    const decision = decided(name).decision;
    mark.className = `mark ${decision || ""}`;
    mark.textContent = decision ? marks[decision] : "";
    mark.setAttribute("aria-label", decision || "undecided");
    mark.setAttribute("role", "img");
  };
  const worst = (row, column) => {
    if (row.error) return -2;
    const value = row[column];
    if (value === null) return -1; // nothing was found: look whether that is right
    return column === "shaded_fraction" ? -value : value;
  };
  const matches = (row) => {
    const wanted = find("filter").value, text = find("search").value.trim().toLowerCase();
    if (text && !row.case.toLowerCase().includes(text)) return false;
    const decision = decided(row.case).decision;
    if (wanted === "all") return true;
    if (wanted === "refer") return row.severity === "refer";
    if (wanted === "undecided") return !decision;
    if (wanted.startsWith("is:")) return decision === wanted.slice(3);
    return row.flags.includes(wanted.slice(5));
  };
  const refresh = () => {
    const column = find("order").value;
    const rows = cases.filter(matches);
    rows.sort((a, b) => (column === "case" ? 0 : worst(a, column) - worst(b, column)) || (a.case < b.case ? -1 : 1));
    view.shown = rows.map((row) => row.case);
    const list = find("list");
    list.replaceChildren(...(rows.length ? view.shown.map((name) => items.get(name)) : [element("li", "nothing", "No case matches.")]));
    const done = cases.filter((row) => decided(row.case).decision).length;
    find("progress").textContent = `${done} of ${cases.length} decided \u00b7 ${rows.length} shown`;
    find("meter").style.width = `${(100 * done) / Math.max(1, cases.length)}%`;
    markPosition();
  };
  const markPosition = () => {
    const at = view.shown.indexOf(view.current);
    find("position").textContent = at < 0 ? `${view.shown.length} shown` : `${at + 1} of ${view.shown.length}`;
    find("previous").disabled = at === 0;
    find("next").disabled = at === view.shown.length - 1;
  };
  const fillFilter = () => {
    const known = [["all", "All"], ["refer", "Referred"], ["undecided", "Undecided"], ["is:accept", "Accepted"], ["is:edit", "To edit"], ["is:reject", "Rejected"]];
    const flags = [...new Set(cases.flatMap((row) => row.flags))].sort();
    for (const [value, text] of [...known, ...flags.map((flag) => [`flag:${flag}`, flag])]) {
      const option = element("option", "", text);
      option.value = value;
      find("filter").append(option);
    }
  };

  // The confidence map of a case is a script beside the page, run when it is needed.
  window.segconfMap = (name, png) => {
    const picture = new Image();
    picture.onload = () => {
      const canvas = document.createElement("canvas");
      const { width, height } = picture;
      canvas.width = width;
      canvas.height = height;
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.drawImage(picture, 0, 0);
      const pixels = context.getImageData(0, 0, width, height).data;
      const share = new Uint8Array(width * height), mask = new Uint8Array(width * height);
      for (let i = 0; i < share.length; i += 1) { share[i] = pixels[4 * i]; mask[i] = pixels[4 * i + 1]; }
      maps.set(name, { width, height, share, mask });
      if (maps.size > KEPT_MAPS) maps.delete([...maps.keys()].find((other) => other !== view.current));
      if (name === view.current) draw();
    };
    picture.src = `data:image/png;base64,${png}`;
  };
  const fetchMap = (name) => {
    const row = byName.get(name);
    if (!row || row.error || maps.has(name)) return;
    const script = element("script");
    script.src = url("maps", name, ".js");
    script.onload = () => script.remove();
    script.onerror = () => { script.remove(); if (name === view.current) say("The confidence map of this case is missing: keep the folder review/ beside this page."); };
    document.head.append(script);
  };

  // Drawing.
  const lowest = 1 / run.classes;
  // The slider has the error rates that the model knows. What is wrong more often than the step before is striped.
  const shaded = () => run.steps[Number(find("threshold").value)];
  const striped = () => run.steps[Math.max(0, Number(find("threshold").value) - 1)];
  const rate = (step) => (run.measured ? `1 in ${step.times}` : percent(step.confidence));
  const rateWords = (step) => (run.measured ? `wrong more than 1 time in ${step.times}` : `confidence below ${percent(step.confidence)}`);
  const colourTable = () => {
    // Colour of each of the 256 levels, without and within a stripe, as little-endian RGBA.
    const plain = new Uint32Array(256), stripes = new Uint32Array(256);
    const pack = ([r, g, b], alpha) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
    const low = striped().level, middle = shaded().level;
    for (let i = 0; i < 256; i += 1) {
      if (view.heat) plain[i] = stripes[i] = pack(run.ramp[i], 255);
      else if (i < low) { plain[i] = pack(LOW, 90); stripes[i] = pack(LOW, 255); }
      else if (i < middle) plain[i] = stripes[i] = pack(MIDDLE, 110);
    }
    return { plain, stripes, middle };
  };
  const draw = () => {
    const map = maps.get(view.current), canvas = find("heatmap");
    if (!map) return;
    const { width, height, share } = map;
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    const context = canvas.getContext("2d");
    const picture = context.createImageData(width, height);
    const out = new Uint32Array(picture.data.buffer);
    const { plain, stripes, middle } = colourTable();
    let under = 0;
    for (let y = 0, i = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1, i += 1) {
        const value = share[i];
        out[i] = (x + y) % 8 < 3 ? stripes[value] : plain[value];
        if (value < middle) under += 1;
      }
    }
    context.putImageData(picture, 0, 0);
    find("share").textContent = `${percent(under / share.length)} of the image is shaded`;
    if (!map.path) map.path = outline(map);
    const svg = find("outline");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    for (const path of svg.querySelectorAll("path")) path.setAttribute("d", map.path);
    layers();
  };
  // Marching squares between pixel centres. Confidence tells how far the border is from a centre.
  const outline = ({ width, height, share, mask }) => {
    const parts = [];
    const last = mask.reduce((most, value) => Math.max(most, value), 0);
    for (let label = 1; label <= last; label += 1) {
      const value = (i) => (mask[i] === label ? share[i] + 1 : -share[i] - 1);
      for (let y = 0; y + 1 < height; y += 1) {
        for (let x = 0; x + 1 < width; x += 1) {
          const i = y * width + x;
          const a = value(i), b = value(i + 1), c = value(i + width + 1), d = value(i + width);
          const inside = (a > 0) + (b > 0) + (c > 0) + (d > 0);
          if (inside === 0 || inside === 4) continue;
          const points = [];
          if (a > 0 !== b > 0) points.push([x + 0.5 + a / (a - b), y + 0.5]);
          if (b > 0 !== c > 0) points.push([x + 1.5, y + 0.5 + b / (b - c)]);
          if (c > 0 !== d > 0) points.push([x + 0.5 + d / (d - c), y + 1.5]);
          if (d > 0 !== a > 0) points.push([x + 0.5, y + 0.5 + a / (a - d)]);
          for (let p = 0; p + 1 < points.length; p += 2) {
            const [[x0, y0], [x1, y1]] = [points[p], points[p + 1]];
            parts.push(`M${x0.toFixed(2)} ${y0.toFixed(2)}L${x1.toFixed(2)} ${y1.toFixed(2)}`);
          }
        }
      }
    }
    return parts.join("");
  };
  const layers = () => {
    const ready = maps.has(view.current);
    find("heatmap").style.visibility = ready && view.layer ? "visible" : "hidden";
    find("heatmap").style.opacity = Number(find("opacity").value) / 100;
    find("outline").style.visibility = ready && view.layer && view.contour ? "visible" : "hidden";
    for (const [id, on] of [["layer", view.layer], ["contour", view.contour], ["heat", view.heat]]) find(id).setAttribute("aria-pressed", String(on));
    for (const band of document.querySelectorAll("#legend .band")) band.hidden = view.heat;
    document.querySelector("#legend .scale").hidden = !view.heat;
    find("opacity-value").textContent = `${find("opacity").value}%`;
    find("threshold-value").textContent = rate(shaded());
    find("threshold").setAttribute("aria-valuetext", rateWords(shaded()));
    find("low-words").textContent = rateWords(striped());
    find("middle-words").textContent = rateWords(shaded());
    find("lowest-words").textContent = `confidence ${percent(lowest)}`;
  };
  const say = (text) => { find("message").textContent = text; find("message").hidden = !text; };

  // Zoom and pan.
  const place = () => { find("sheet").style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.zoom})`; };
  const fit = () => {
    const stage = find("stage"), row = byName.get(view.current);
    if (!row || row.error) return;
    const margin = 16;
    const base = Math.min((stage.clientWidth - 2 * margin) / row.width, (stage.clientHeight - 2 * margin) / row.height);
    const width = row.width * base, height = row.height * base;
    find("sheet").style.width = `${width}px`;
    find("sheet").style.height = `${height}px`;
    Object.assign(view, { zoom: 1, x: (stage.clientWidth - width) / 2, y: (stage.clientHeight - height) / 2 });
    place();
  };
  const zoom = (factor, x, y) => {
    const stage = find("stage");
    const cx = x === undefined ? stage.clientWidth / 2 : x, cy = y === undefined ? stage.clientHeight / 2 : y;
    const next = Math.min(40, Math.max(0.5, view.zoom * factor));
    view.x = cx - ((cx - view.x) * next) / view.zoom;
    view.y = cy - ((cy - view.y) * next) / view.zoom;
    view.zoom = next;
    place();
  };
  const fingers = new Map();
  const listenToStage = () => {
    const stage = find("stage");
    stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = stage.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => {
      stage.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      stage.classList.add("dragging");
    });
    stage.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const now = [event.clientX, event.clientY];
      if (others.length) {
        const box = stage.getBoundingClientRect(), [ox, oy] = others[0];
        const grown = Math.hypot(now[0] - ox, now[1] - oy) / Math.max(1, Math.hypot(before[0] - ox, before[1] - oy));
        zoom(grown, (now[0] + ox) / 2 - box.left, (now[1] + oy) / 2 - box.top);
      } else {
        view.x += now[0] - before[0];
        view.y += now[1] - before[1];
        place();
      }
      fingers.set(event.pointerId, now);
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      stage.addEventListener(kind, (event) => { fingers.delete(event.pointerId); stage.classList.remove("dragging"); });
    }
    stage.addEventListener("dblclick", fit);
    window.addEventListener("resize", fit);
  };

  // The case.
  const flagItem = (flag) => (flag.startsWith("note: ") ? element("li", "aside", flag.slice(6)) : element("li", "", `Refer: ${flag}`));
  const show = (name) => {
    const row = byName.get(name);
    if (!row) return;
    if (view.current && items.has(view.current)) {
      const before = items.get(view.current).firstChild;
      before.removeAttribute("aria-current");
      before.tabIndex = -1;
    }
    view.current = name;
    const button = items.get(name).firstChild;
    button.setAttribute("aria-current", "true");
    button.tabIndex = 0;
    items.get(name).scrollIntoView({ block: "nearest", inline: "nearest" });
    find("name").textContent = row.case;
    find("size").textContent = row.error ? "" : `${row.width} \u00d7 ${row.height} pixels${row.slices > 1 ? ` \u00b7 slice ${row.slice + 1} of ${row.slices}` : ""}`;
    const flags = row.flags.map(flagItem);
    find("flags").replaceChildren(...(flags.length ? flags : [element("li", "calm", "Nothing stands out.")]));
    const number = (value) => (value === null ? "\u2013" : value.toFixed(2));
    const facts = row.error ? [] : [
      ["Expected Dice", number(row.expected_dice)],
      ["Border confidence", percent(row.border_confidence)],
      ["Mean confidence", percent(row.mean_confidence)],
      ["Least sure 5% below", percent(row.confidence_p05)],
      [`Area ${run.measured ? "wrong more than " : "below "}${rate(run.steps[run.shaded])}`, percent(row.shaded_fraction)],
      ["Foreground area", percent(row.foreground_fraction)],
    ];
    find("numbers").replaceChildren(...facts.flatMap(([term, value]) => [element("dt", "", term), element("dd", "", value)]));
    find("stage").setAttribute("aria-label", `Image ${row.case}`);
    find("sheet").hidden = Boolean(row.error);
    find("share").textContent = "";
    say(row.error ? `This image was not predicted. ${row.error}` : "");
    if (row.error) find("image").removeAttribute("src");
    else find("image").src = url("images", row.case, ".jpg");
    showDecision();
    markPosition();
    fit();
    layers();
    fetchMap(name);
    draw();
    const at = view.shown.indexOf(name);
    if (at >= 0) fetchMap(view.shown[at + 1]);
  };
  const showDecision = () => {
    const state = decided(view.current);
    for (const button of document.querySelectorAll("[data-decision]")) button.setAttribute("aria-pressed", String(button.dataset.decision === state.decision));
    find("note").value = state.note || "";
  };
  const step = (by) => {
    const at = view.shown.indexOf(view.current);
    const next = view.shown[at < 0 ? 0 : at + by];
    if (next) show(next);
  };
  const decide = (decision) => {
    const name = view.current, at = view.shown.indexOf(name);
    if (!name) return;
    const undo = decided(name).decision === decision;
    change(name, { decision: undo ? "" : decision });
    updateItem(name);
    refresh();
    showDecision();
    if (undo) return;
    const next = view.shown[view.shown[at] === name ? at + 1 : at];
    if (next) show(next);
  };

  // Export.
  const decidedRows = () => cases.filter((row) => Object.hasOwn(decisions, row.case)).map((row) => ({
    case: row.case, file: row.file, decision: decided(row.case).decision || "", note: decided(row.case).note || "",
    decided_at: decided(row.case).decided_at, expected_dice: row.expected_dice, border_confidence: row.border_confidence, flags: row.flags,
  }));
  const download = (name, type, text) => {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const csvCell = (value) => {
    const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join("; ") : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = () => {
    const columns = ["case", "file", "decision", "note", "decided_at", "expected_dice", "border_confidence", "flags"];
    return [columns, ...decidedRows().map((row) => columns.map((column) => row[column]))].map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
  };
  const json = () => JSON.stringify({ format: "segconf decisions 1", run: run.id, model: run.model, notice: run.notice, decisions: decidedRows() }, null, 1);

  const act = {
    ArrowRight: () => step(1), ArrowDown: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => step(-1),
    a: () => decide("accept"), e: () => decide("edit"), r: () => decide("reject"),
    n: () => find("note").focus(), "/": () => find("search").focus(),
    " ": () => { view.layer = !view.layer; layers(); },
    c: () => { view.contour = !view.contour; layers(); },
    h: () => { view.heat = !view.heat; draw(); layers(); },
    "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: fit,
  };
  const listenToKeys = () => {
    document.addEventListener("keydown", (event) => {
      const target = event.target;
      if (event.key === "Escape" && target !== document.body) { target.blur(); return; }
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.matches("textarea, select, input:not([type=range])")) return;
      if (target.matches("input[type=range]") && event.key.startsWith("Arrow")) return;
      if (target.matches("button, summary") && (event.key === " " || event.key === "Enter")) return;
      const action = act[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
    // A button that was clicked gives the focus back, so that Space means the overlay again.
    document.addEventListener("click", (event) => { const button = event.target.closest("button"); if (button && event.detail) button.blur(); });
  };

  const start = () => {
    load();
    const slider = find("threshold");
    slider.min = 0;
    slider.max = run.steps.length - 1;
    slider.value = run.shaded;
    document.querySelector(".ramp").style.background = `linear-gradient(90deg, ${run.legend.map((colour) => `rgb(${colour})`).join(",")})`;
    find("notice").textContent = `For ${run.notice}. High confidence is good.${run.model_name ? ` Model: ${run.model_name}.` : ""}`;
    cases.forEach(makeItem);
    cases.forEach((row) => updateItem(row.case));
    fillFilter();
    find("order").value = run.order;
    refresh();
    slider.addEventListener("input", () => { draw(); layers(); });
    find("opacity").addEventListener("input", layers);
    find("search").addEventListener("input", refresh);
    for (const id of ["order", "filter"]) find(id).addEventListener("change", () => { refresh(); if (!view.shown.includes(view.current) && view.shown.length) show(view.shown[0]); });
    for (const [id, name] of [["layer", " "], ["contour", "c"], ["heat", "h"], ["zoom-in", "+"], ["zoom-out", "-"], ["fit", "0"], ["previous", "ArrowLeft"], ["next", "ArrowRight"]]) find(id).addEventListener("click", act[name]);
    for (const button of document.querySelectorAll("[data-decision]")) button.addEventListener("click", () => decide(button.dataset.decision));
    find("note").addEventListener("input", () => { change(view.current, { note: find("note").value }); });
    find("export-csv").addEventListener("click", () => download(`decisions-${run.id}.csv`, "text/csv", csv()));
    find("export-json").addEventListener("click", () => download(`decisions-${run.id}.json`, "application/json", json()));
    listenToStage();
    listenToKeys();
    if (view.shown.length) show(view.shown[0]);
    else say("No case has been predicted yet.");
  };
  start();
})();
