// What is drawn on the image: shading, the predicted border, the lines that promise something, and the correction.
const LOW = [255, 234, 70], MIDDLE = [74, 163, 255];
const INK = [[0, 0, 0], [0, 214, 150], [240, 130, 200], [255, 170, 60], [120, 200, 255], [240, 228, 66], [200, 140, 255], [255, 120, 90], [170, 230, 110], [160, 200, 200]];
const pack = ([r, g, b], alpha) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian RGBA
const INK_COLOURS = Uint32Array.from({ length: 256 }, (_, label) => pack(INK[label ? ((label - 1) % (INK.length - 1)) + 1 : 0], 255));
const CASING = pack([10, 12, 14], 190);

// The slider has the error rates that the model knows. What is wrong more often than the step before is striped.
const shadedStep = () => run.steps[Number(find("threshold").value)];
const stripedStep = () => run.steps[Math.max(0, Number(find("threshold").value) - 1)];
const rate = (step) => (run.measured ? t("rate", { times: step.times }) : percent(step.confidence));
const rateWords = (step) => (run.measured ? t("wrongMore", { times: step.times }) : t("below", { value: percent(step.confidence) }));
const colourTable = () => {
  // Colour of each of the 256 levels, without and within a stripe.
  const plain = new Uint32Array(256), stripes = new Uint32Array(256);
  const low = stripedStep().level, middle = shadedStep().level;
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
  const { width, height, levels } = map;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d"), picture = context.createImageData(width, height);
  const out = new Uint32Array(picture.data.buffer), { plain, stripes, middle } = colourTable();
  let under = 0;
  for (let y = 0, i = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, i += 1) {
      const value = levels[i];
      out[i] = (x + y) % 8 < 3 ? stripes[value] : plain[value];
      if (value < middle) under += 1;
    }
  }
  context.putImageData(picture, 0, 0);
  // Where the numbers beside the image give this fraction, the same: they count the pixels of the file.
  const row = byName.get(view.current), isCounted = Number(find("threshold").value) === run.shaded && !(row.slices > 1);
  find("share").textContent = t("shaded", { value: percent(isCounted ? row.shaded_fraction : under / levels.length) });
  drawLines(map);
  layers();
};
const drawLines = (map) => {
  const [height, width] = map.mask.size;
  if (map.path === undefined) {
    const labels = Array.from({ length: run.classes - 1 }, (_, i) => i + 1);
    map.path = labels.map((label) => outlinePath({ runs: map.mask.runs, width, height, label })).join("");
    for (const contour of map.contours) contour.path = outlinePath({ runs: contour.runs, width, height, label: 1 });
  }
  const svg = find("outline");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  for (const path of svg.querySelectorAll(".predicted")) path.setAttribute("d", map.path);
  for (const kind of ["outer", "inner"]) {
    const path = map.contours.filter((contour) => contour.kind === kind).map((contour) => contour.path).join("");
    for (const line of svg.querySelectorAll(`.${kind}`)) line.setAttribute("d", path);
  }
};
const contoursOf = (map, kind) => (map ? map.contours.filter((contour) => contour.kind === kind) : []);
const layers = () => {
  const map = maps.get(view.current), row = byName.get(view.current), on = Boolean(map) && view.layer;
  const visible = (id, shown) => { find(id).style.visibility = shown ? "visible" : "hidden"; };
  visible("heatmap", on);
  find("heatmap").style.opacity = Number(find("opacity").value) / 100;
  visible("outline", on);
  find("outline").classList.toggle("bare", !view.contour);
  find("outline").classList.toggle("plain", !view.promise);
  visible("ink", on && session !== null);
  for (const [id, pressed] of [["layer", view.layer], ["contour", view.contour], ["heat", view.heat], ["promise", view.promise]]) find(id).setAttribute("aria-pressed", String(pressed));
  for (const band of document.querySelectorAll("#legend .band")) band.hidden = view.heat;
  document.querySelector("#legend .scale").hidden = !view.heat;
  find("opacity-value").textContent = `${find("opacity").value}%`;
  find("threshold-value").textContent = rate(shadedStep());
  find("threshold").setAttribute("aria-valuetext", rateWords(shadedStep()));
  find("threshold-words").textContent = t(run.measured ? "shade" : "shadeConfidence");
  find("low-words").textContent = rateWords(stripedStep());
  find("middle-words").textContent = rateWords(shadedStep());
  find("lowest-words").textContent = t("confidence", { value: percent(1 / run.classes) });
  visible("corrected-key", session && session.position); // it keeps its place: nothing may move while drawing
  let promised = false;
  for (const kind of ["outer", "inner"]) {
    const [contour] = contoursOf(map, kind);
    find(`${kind}-key`).hidden = !(contour && view.promise);
    if (contour) find(`${kind}-words`).textContent = t(kind, { alpha: inPercent(number(100 * contour.alpha, 0, 1)) });
    promised ||= Boolean(contour && view.promise);
  }
  const strange = run.contours.length > 0 && row && !row.error && row.flags.some((flag) => flag.endsWith(run.ood_flag));
  find("assumption").hidden = !(promised || strange);
  find("assumption").textContent = t(strange ? "noPromise" : "promised");
};

// The correction is drawn on a canvas of the size of the stage, whatever the size of the image: only what is seen is
// looked at, and while drawing only what has changed.
let dirty = null; // part of the mask to draw again; "all" for everything
const drawDirty = nextFrame(() => { const part = dirty; dirty = null; if (part) drawInk(part === "all" ? null : part); });
const redraw = (part = "all") => { dirty = part === "all" || dirty === "all" ? "all" : covering(dirty, part); drawDirty(); };
const drawInk = (part) => {
  const canvas = find("ink"), context = canvas.getContext("2d"), ratio = canvas.width / Math.max(1, find("stage").clientWidth);
  if (!session) { context.clearRect(0, 0, canvas.width, canvas.height); return; }
  const scale = view.base * view.zoom * ratio, down = scale * view.tall, left = view.x * ratio, top = view.y * ratio, REACH = 3;
  let [x0, y0, x1, y1] = [0, 0, canvas.width, canvas.height];
  if (part) {
    x0 = Math.max(x0, Math.floor(left + part.x * scale) - REACH);
    y0 = Math.max(y0, Math.floor(top + part.y * down) - REACH);
    x1 = Math.min(x1, Math.ceil(left + (part.x + part.w) * scale) + REACH);
    y1 = Math.min(y1, Math.ceil(top + (part.y + part.h) * down) + REACH);
  }
  if (x1 <= x0 || y1 <= y0) return;
  const w = x1 - x0, h = y1 - y0, seen = sampleMask({ x0, y0, w: w + 2 * REACH, h: h + 2 * REACH, reach: REACH, left, top, scale, down });
  const picture = context.createImageData(w, h);
  inkEdges(new Uint32Array(picture.data.buffer), w, h, seen, REACH);
  context.putImageData(picture, x0, y0);
};
const OUTSIDE = 255;
const sampleMask = ({ x0, y0, w, h, reach, left, top, scale, down }) => {
  const { mask, width, height } = session, columns = new Int32Array(w), seen = new Uint8Array(w * h).fill(OUTSIDE);
  for (let i = 0; i < w; i += 1) columns[i] = Math.floor((x0 - reach + i + 0.5 - left) / scale);
  const first = columns.findIndex((x) => x >= 0), last = columns.findLastIndex((x) => x < width);
  if (first < 0) return seen;
  for (let j = 0; j < h; j += 1) {
    const y = Math.floor((y0 - reach + j + 0.5 - top) / down);
    if (y < 0 || y >= height) continue;
    const start = y * width;
    for (let i = first, at = j * w + first; i <= last; i += 1, at += 1) seen[at] = mask[start + columns[i]];
  }
  return seen;
};
const inkEdges = (out, w, h, seen, reach) => {
  const stride = w + 2 * reach, rows = h + 2 * reach, edges = [];
  for (let j = 0; j + 1 < rows; j += 1) {
    for (let i = 0, at = j * stride; i + 1 < stride; i += 1, at += 1) {
      const here = seen[at], right = seen[at + 1], below = seen[at + stride];
      if (here === OUTSIDE) continue;
      if (here !== right && right !== OUTSIDE) edges.push(i, j, i + 1, j, Math.max(here, right));
      if (here !== below && below !== OUTSIDE) edges.push(i, j, i, j + 1, Math.max(here, below));
    }
  }
  const put = (i, j, colour) => { if (i >= reach && j >= reach && i < w + reach && j < h + reach) out[(j - reach) * w + i - reach] = colour; };
  for (let e = 0; e < edges.length; e += 5) {
    for (let p = 0; p < 4; p += 2) {
      const i = edges[e + p], j = edges[e + p + 1];
      put(i - 1, j, CASING); put(i + 1, j, CASING); put(i, j - 1, CASING); put(i, j + 1, CASING);
    }
  }
  for (let e = 0; e < edges.length; e += 5) {
    const colour = INK_COLOURS[edges[e + 4]];
    put(edges[e], edges[e + 1], colour);
    put(edges[e + 2], edges[e + 3], colour);
  }
};

// Zoom and pan.
const place = () => {
  find("sheet").style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.zoom})`;
  redraw();
  placeCursor();
};
const sizeInk = () => {
  const stage = find("stage"), ink = find("ink"), ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.round(stage.clientWidth * ratio), height = Math.round(stage.clientHeight * ratio);
  if (ink.width === width && ink.height === height) return;
  ink.width = width;
  ink.height = height;
  redraw();
};
// The stage changes its size with the window and with the legend: what was fitted stays fitted.
const stageResized = () => { if (view.fitted) fit(); else sizeInk(); };
const fit = () => {
  const stage = find("stage"), row = byName.get(view.current), margin = 12;
  sizeInk();
  if (!row || row.error) return;
  view.tall = row.row_mm && row.column_mm ? row.row_mm / row.column_mm : 1; // pixels of a volume need not be square
  view.base = Math.min((stage.clientWidth - 2 * margin) / row.width, (stage.clientHeight - 2 * margin) / (row.height * view.tall));
  const width = row.width * view.base, height = row.height * view.base * view.tall;
  find("sheet").style.width = `${width}px`;
  find("sheet").style.height = `${height}px`;
  Object.assign(view, { fitted: true, zoom: 1, x: (stage.clientWidth - width) / 2, y: (stage.clientHeight - height) / 2 });
  place();
};
const zoom = (factor, x, y) => {
  const stage = find("stage");
  const cx = x === undefined ? stage.clientWidth / 2 : x, cy = y === undefined ? stage.clientHeight / 2 : y;
  const next = Math.min(Math.max(40, 16 / view.base), Math.max(0.5, view.zoom * factor));
  view.x = cx - ((cx - view.x) * next) / view.zoom;
  view.y = cy - ((cy - view.y) * next) / view.zoom;
  Object.assign(view, { zoom: next, fitted: false });
  place();
};
const pan = (x, y) => { Object.assign(view, { x: view.x + x, y: view.y + y, fitted: false }); place(); };
