// Correcting the mask at native size: tools, strokes, undo and redo without limit.
const TOOLS = ["pan", "brush", "eraser", "fill", "flip"];
let session = null; // the mask of the current case while it is, or was, corrected
const edit = { tool: "pan", size: 24, label: 1, cursor: null, stroke: null };

const opening = new Map(); // one at a time for each case
const openSession = (name) => {
  if (session?.name === name) return Promise.resolve(session);
  if (!opening.has(name)) opening.set(name, makeSession(name).finally(() => opening.delete(name)));
  return opening.get(name);
};
const makeSession = async (name) => {
  const map = await mapOf(name), [height, width] = map.mask.size;
  const predicted = decodeRuns(map.mask.runs, new Uint8Array(width * height));
  const strokes = await knownStrokes(name), { position = 0, fetched } = decided(name);
  const opened = { name, map, width, height, predicted, mask: predicted.slice(), strokes, position };
  for (const stroke of strokes.slice(0, position)) paste(opened.mask, width, stroke, stroke.after);
  if (fetched && !strokes.length) await takeFromServer(opened);
  opened.area = areaOf(opened.mask);
  opened.predictedArea = areaOf(predicted);
  if (view.current !== name) return null;
  strokesOf.set(name, strokes);
  session = opened;
  edit.size = Math.min(edit.size, largestSize());
  showTools();
  layers();
  redraw();
  return session;
};
// A mask that the folder has becomes the first stroke, so that undo leads back to the prediction.
const takeFromServer = async (opened) => {
  const there = await server.mask(opened.name);
  if (!there) return;
  const whole = { x: 0, y: 0, w: opened.width, h: opened.height };
  opened.strokes.push({ ...whole, before: opened.map.mask.runs, after: there.runs, change: 0 });
  opened.position = 1;
  decodeRuns(there.runs, opened.mask);
  decisions.set(opened.name, { ...decided(opened.name), position: 1, count: 1, fetched: false });
  storage.addStroke(opened.name, 0, opened.strokes[0], decided(opened.name));
};
const closeSession = () => { session = null; edit.stroke = null; redraw(); };
const areaOf = (mask) => { let area = 0; for (let i = 0; i < mask.length; i += 1) if (mask[i]) area += 1; return area; };
const largestSize = () => (session ? Math.max(8, Math.round(Math.max(session.width, session.height) / 3)) : 200);
const paintValue = () => (edit.tool === "eraser" ? 0 : edit.label);

// A stroke is what changed: a rectangle of the mask with its runs before and after.
const finish = (before, touched, word) => {
  edit.stroke = null;
  if (!touched) return false;
  const part = clipped(touched), { mask, width, name } = session;
  const stroke = { ...part, before: encodeRuns(before, width, part), after: encodeRuns(mask, width, part) };
  if (stroke.before.length === stroke.after.length && stroke.before.every((value, i) => value === stroke.after[i])) { announce(t("nothing")); return false; }
  stroke.change = foreground(stroke.after) - foreground(stroke.before);
  session.strokes.length = session.position;
  session.strokes.push(stroke);
  session.position += 1;
  session.area += stroke.change;
  strokesOf.set(name, session.strokes);
  afterStroke(part, stroke);
  announce(t("done", { tool: t(word), change: signed(stroke.change) }));
  return true;
};
const clipped = ({ x, y, w, h }) => {
  const left = Math.max(0, x), top = Math.max(0, y);
  return { x: left, y: top, w: Math.min(session.width, x + w) - left, h: Math.min(session.height, y + h) - top };
};
const foreground = (runs) => { let sum = 0; for (let i = 0; i < runs.length; i += 2) if (runs[i + 1]) sum += runs[i]; return sum; };
const afterStroke = (part, stroke) => {
  const { name, position, strokes } = session, before = decided(name).decision || "";
  const decision = position ? "corrected" : before === "corrected" ? "" : before;
  change(name, { position, count: strokes.length, decision }, stroke);
  redraw(part);
  updateItem(name);
  showProgress();
  showDecision();
  showNumbers();
  showTools();
  layers();
};
const undo = () => {
  if (hasLabels) { takeBack(); return; }
  if (!session?.position || edit.stroke) return;
  const stroke = session.strokes[session.position - 1];
  session.position -= 1;
  session.area -= stroke.change;
  paste(session.mask, session.width, stroke, stroke.before);
  afterStroke(stroke);
  announce(t("undone"));
};
const redo = () => {
  if (hasLabels) { bringBack(); return; }
  if (!session || edit.stroke || session.position === session.strokes.length) return;
  const stroke = session.strokes[session.position];
  session.position += 1;
  session.area += stroke.change;
  paste(session.mask, session.width, stroke, stroke.after);
  afterStroke(stroke);
  announce(t("redone"));
};

// Tools at a point of the mask.
const beginStroke = (x, y, value) => {
  edit.stroke = { before: session.mask.slice(), x, y, value, points: [[x, y]], touched: null };
  if (edit.tool !== "fill") extendStroke(x, y);
};
const extendStroke = (x, y) => {
  const { stroke } = edit;
  if (edit.tool === "fill") { stroke.points.push([x, y]); drawLasso(); return; }
  const touched = paintStroke(session.mask, session.width, session.height, { x0: stroke.x, y0: stroke.y, x1: x, y1: y, radius: edit.size / 2, value: stroke.value });
  stroke.touched = covering(stroke.touched, touched);
  [stroke.x, stroke.y] = [x, y];
  if (touched) redraw(touched);
};
const endStroke = () => {
  const { stroke } = edit;
  if (!stroke) return;
  if (edit.tool !== "fill") { finish(stroke.before, stroke.touched, stroke.value ? "brush" : "eraser"); return; }
  drawLasso(true);
  const far = stroke.points.some(([x, y]) => Math.hypot(x - stroke.x, y - stroke.y) * view.base * view.zoom > 6);
  if (far) fillAround(stroke); else fillAt(stroke);
};
const cancelStroke = () => {
  if (!edit.stroke) return;
  const { before, touched } = edit.stroke;
  if (touched) { const part = clipped(touched); paste(session.mask, session.width, part, encodeRuns(before, session.width, part)); redraw(part); }
  drawLasso(true);
  edit.stroke = null;
};
const fillAround = ({ before, points }) => {
  const { spans, box } = polygonSpans(points, session.width, session.height);
  paintSpans(session.mask, session.width, spans, edit.label);
  finish(before, box, "fill");
};
const fillAt = ({ before, x, y }) => {
  const { mask, width, height } = session, column = Math.floor(x), row = Math.floor(y);
  edit.stroke = null;
  if (column < 0 || row < 0 || column >= width || row >= height) return;
  const from = mask[row * width + column];
  const { spans, box } = connected(width, height, column, row, (i, j) => mask[j * width + i] === from);
  if (box.x === 0 || box.y === 0 || box.x + box.w === width || box.y + box.h === height) { announce(t("open")); return; }
  paintSpans(mask, width, spans, edit.label);
  finish(before, box, "fill");
};
// The uncertain region around a point: connected pixels of one predicted class that are shaded.
const flipAt = (x, y) => {
  const { mask, predicted, width, height, map } = session, column = Math.floor(x), row = Math.floor(y);
  if (column < 0 || row < 0 || column >= width || row >= height) return;
  const limit = shadedStep().level, level = levelAt(map, width, height), label = predicted[row * width + column];
  if (level(column, row) >= limit) { announce(t("certain")); return; }
  const { spans, box } = connected(width, height, column, row, (i, j) => predicted[j * width + i] === label && level(i, j) < limit);
  const before = mask.slice(), current = mask[row * width + column];
  paintSpans(mask, width, spans, current === edit.label ? 0 : edit.label);
  finish(before, box, "flip");
};
// Level of the confidence map at a pixel of the mask, bilinear between the centres of the map.
const levelAt = ({ levels, width: w, height: h }, width, height) => {
  const axis = (count, grid) => Array.from({ length: count }, (_, i) => Math.min(grid - 1, Math.max(0, ((i + 0.5) * grid) / count - 0.5)));
  const xs = Float64Array.from(axis(width, w)), ys = Float64Array.from(axis(height, h));
  return (i, j) => {
    const x = Math.floor(xs[i]), y = Math.floor(ys[j]), fx = xs[i] - x, fy = ys[j] - y;
    const at = y * w + x, right = x + 1 < w ? 1 : 0, below = y + 1 < h ? w : 0;
    return (levels[at] * (1 - fx) + levels[at + right] * fx) * (1 - fy) + (levels[at + below] * (1 - fx) + levels[at + below + right] * fx) * fy;
  };
};
// Everything inside of the outer line of a class joins it; of the class, what is not inside of the inner line leaves.
const toLine = async (kind) => {
  const contour = contoursOf(maps.get(view.current), kind).find((one) => one.class === edit.label);
  if (!contour || !(await openSession(view.current))) return;
  const { mask, width, height } = session, before = mask.slice();
  const inside = decodeRuns(contour.runs, new Uint8Array(width * height));
  for (let i = 0; i < mask.length; i += 1) {
    if (kind === "outer" && inside[i] && !mask[i]) mask[i] = edit.label;
    else if (kind === "inner" && !inside[i] && mask[i] === edit.label) mask[i] = 0;
  }
  finish(before, { x: 0, y: 0, w: width, h: height }, kind === "outer" ? "grow" : "shrink");
};

const chooseTool = async (tool) => {
  if (byName.get(view.current)?.error) return;
  cancelStroke();
  edit.tool = edit.tool === tool ? "pan" : tool;
  if (edit.tool !== "pan") await openSession(view.current);
  showTools();
  announce(`${t(edit.tool)}, ${t("sizeIs", { size: edit.size })}`);
};
const chooseLabel = (label) => {
  if (label >= run.classes) return;
  edit.label = label;
  if (edit.tool === "pan" || edit.tool === "eraser") chooseTool("brush");
  showTools();
  announce(t("class", { number: label }));
};
const resize = (factor) => {
  const next = factor > 1 ? Math.max(edit.size + 1, edit.size * factor) : Math.min(edit.size - 1, edit.size * factor);
  edit.size = Math.min(largestSize(), Math.max(1, Math.round(next)));
  showTools();
  placeCursor();
};
const showTools = () => {
  const row = byName.get(view.current), map = maps.get(view.current);
  find("edit-tools").hidden = !row || Boolean(row.error);
  for (const tool of TOOLS) find(`tool-${tool}`).setAttribute("aria-pressed", String(edit.tool === tool));
  for (const button of document.querySelectorAll("#class-buttons button")) button.setAttribute("aria-pressed", String(Number(button.dataset.value) === edit.label));
  for (const [id, kind] of [["grow", "outer"], ["shrink", "inner"]]) find(id).hidden = !contoursOf(map, kind).some((contour) => contour.class === edit.label);
  find("undo").disabled = !session?.position;
  find("redo").disabled = !session || session.position === session.strokes.length;
  find("brush-size").max = largestSize();
  find("brush-size").value = edit.size;
  find("size-value").textContent = String(edit.size);
  const stage = find("stage"), active = edit.tool !== "pan" && row && !row.error;
  stage.classList.toggle("drawing", Boolean(active));
  stage.setAttribute("role", active ? "application" : "img");
  if (row) stage.setAttribute("aria-label", active ? t("drawing", { name: row.case, tool: t(edit.tool) }) : t("image", { name: row.case }));
  placeCursor();
};

// The round cursor shows what the brush will touch; keys move it as well.
const placeCursor = () => {
  const cursor = find("cursor"), round = edit.tool === "brush" || edit.tool === "eraser";
  cursor.hidden = edit.tool === "pan" || !edit.cursor || !session;
  if (cursor.hidden) return;
  const scale = view.base * view.zoom, down = scale * view.tall, [wide, high] = round ? [scale, down].map((one) => Math.max(3, edit.size * one)) : [11, 11];
  cursor.style.width = `${wide}px`;
  cursor.style.height = `${high}px`;
  cursor.style.transform = `translate(${view.x + edit.cursor[0] * scale - wide / 2}px, ${view.y + edit.cursor[1] * down - high / 2}px)`;
};
const moveCursor = (dx, dy, draws) => {
  if (!session) return;
  const [x, y] = edit.cursor || [session.width / 2, session.height / 2], step = Math.max(1, edit.size / 4);
  edit.cursor = [Math.min(session.width - 0.5, Math.max(0.5, x + dx * step)), Math.min(session.height - 0.5, Math.max(0.5, y + dy * step))];
  if (draws && (edit.tool === "brush" || edit.tool === "eraser")) { beginStroke(x, y, paintValue()); extendStroke(...edit.cursor); endStroke(); }
  placeCursor();
};
const useCursor = () => {
  if (!session || !edit.cursor) { moveCursor(0, 0); return; }
  const [x, y] = edit.cursor;
  if (edit.tool === "flip") flipAt(x, y);
  else { beginStroke(x, y, paintValue()); endStroke(); }
};
const drawLasso = (clear = false) => {
  const points = clear || !edit.stroke ? [] : edit.stroke.points;
  for (const line of document.querySelectorAll("#outline .lasso")) line.setAttribute("d", points.length > 1 ? `M${points.map((point) => point.map((value) => value.toFixed(1)).join(" ")).join("L")}` : "");
};
