// Masks at native size: a Uint8Array of classes, row after row; and their run-length code [length, class, ...].
const decodeRuns = (runs, into) => {
  for (let i = 0, at = 0; i < runs.length; i += 2) { into.fill(runs[i + 1], at, at + runs[i]); at += runs[i]; }
  return into;
};
const encodeRuns = (mask, width, { x, y, w, h }) => {
  const runs = [];
  let length = 0, value = -1;
  for (let row = y; row < y + h; row += 1) {
    for (let i = row * width + x, end = i + w; i < end; i += 1) {
      if (mask[i] === value) length += 1;
      else {
        if (length) runs.push(length, value);
        value = mask[i];
        length = 1;
      }
    }
  }
  if (length) runs.push(length, value);
  return runs;
};
// Put the code of a part of the mask back into its place.
const paste = (mask, width, { x, y, w }, runs) => {
  let column = 0, row = y;
  for (let i = 0; i < runs.length; i += 2) {
    for (let left = runs[i]; left > 0;) {
      const step = Math.min(left, w - column);
      const at = row * width + x + column;
      mask.fill(runs[i + 1], at, at + step);
      left -= step;
      column += step;
      if (column === w) { column = 0; row += 1; }
    }
  }
};
const covering = (a, b) => {
  if (!a || !b) return a || b;
  const x = Math.min(a.x, b.x), y = Math.min(a.y, b.y);
  return { x, y, w: Math.max(a.x + a.w, b.x + b.w) - x, h: Math.max(a.y + a.h, b.y + b.h) - y };
};

// A stroke of a round brush from one point to another; pixels whose centre it covers. Returns the touched rectangle.
const paintStroke = (mask, width, height, { x0, y0, x1, y1, radius, value }) => {
  const r = Math.max(0.5, radius), length = Math.hypot(x1 - x0, y1 - y0) || 1;
  const nx = (-(y1 - y0) / length) * r, ny = ((x1 - x0) / length) * r;
  const corners = [[x0 + nx, y0 + ny], [x1 + nx, y1 + ny], [x1 - nx, y1 - ny], [x0 - nx, y0 - ny]];
  const top = Math.max(0, Math.floor(Math.min(y0, y1) - r)), bottom = Math.min(height - 1, Math.ceil(Math.max(y0, y1) + r));
  let touched = null;
  for (let row = top; row <= bottom; row += 1) {
    const y = row + 0.5;
    let low = Infinity, high = -Infinity;
    const widen = (x) => { if (x < low) low = x; if (x > high) high = x; };
    for (const [cx, cy] of [[x0, y0], [x1, y1]]) {
      const half = r * r - (y - cy) * (y - cy);
      if (half >= 0) { widen(cx - Math.sqrt(half)); widen(cx + Math.sqrt(half)); }
    }
    for (let i = 0; i < 4; i += 1) {
      const [ax, ay] = corners[i], [bx, by] = corners[(i + 1) % 4];
      if (ay === by || y < Math.min(ay, by) || y > Math.max(ay, by)) continue;
      widen(ax + ((bx - ax) * (y - ay)) / (by - ay));
    }
    const from = Math.max(0, Math.ceil(low - 0.5)), to = Math.min(width, Math.floor(high - 0.5) + 1);
    if (from >= to) continue;
    mask.fill(value, row * width + from, row * width + to);
    touched = covering(touched, { x: from, y: row, w: to - from, h: 1 });
  }
  // A brush of one pixel lies between centres: the pixel under it counts.
  const column = Math.floor(x1), line = Math.floor(y1);
  if (column >= 0 && line >= 0 && column < width && line < height) {
    mask[line * width + column] = value;
    touched = covering(touched, { x: column, y: line, w: 1, h: 1 });
  }
  return touched;
};

// Pixels connected with a first one (by their sides) that pass a test: as spans [row, from, to), and their rectangle.
const connected = (width, height, x, y, test) => {
  const seen = new Uint8Array(width * height), spans = [], stack = [x, y];
  let box = null, size = 0;
  while (stack.length) {
    const row = stack.pop(), column = stack.pop(), start = row * width;
    if (seen[start + column] || !test(column, row)) continue;
    let from = column, to = column + 1;
    while (from > 0 && !seen[start + from - 1] && test(from - 1, row)) from -= 1;
    while (to < width && !seen[start + to] && test(to, row)) to += 1;
    seen.fill(1, start + from, start + to);
    spans.push(row, from, to);
    size += to - from;
    box = covering(box, { x: from, y: row, w: to - from, h: 1 });
    for (const next of [row - 1, row + 1]) {
      if (next < 0 || next >= height) continue;
      for (let i = from, open = false; i < to; i += 1) {
        const fits = !seen[next * width + i] && test(i, next);
        if (fits && !open) stack.push(i, next);
        open = fits;
      }
    }
  }
  return { spans, box, size };
};
const paintSpans = (mask, width, spans, value) => {
  for (let i = 0; i < spans.length; i += 3) mask.fill(value, spans[i] * width + spans[i + 1], spans[i] * width + spans[i + 2]);
};
// Pixels whose centre lies inside of a polygon (even-odd), as spans.
const polygonSpans = (points, width, height) => {
  const ys = points.map((point) => point[1]), spans = [];
  let box = null;
  const top = Math.max(0, Math.floor(Math.min(...ys))), bottom = Math.min(height - 1, Math.ceil(Math.max(...ys)));
  for (let row = top; row <= bottom; row += 1) {
    const y = row + 0.5, cuts = [];
    for (let i = 0; i < points.length; i += 1) {
      const [ax, ay] = points[i], [bx, by] = points[(i + 1) % points.length];
      if (ay <= y !== by <= y) cuts.push(ax + ((bx - ax) * (y - ay)) / (by - ay));
    }
    cuts.sort((a, b) => a - b);
    for (let i = 0; i + 1 < cuts.length; i += 2) {
      const from = Math.max(0, Math.ceil(cuts[i] - 0.5)), to = Math.min(width, Math.ceil(cuts[i + 1] - 0.5));
      if (from >= to) continue;
      spans.push(row, from, to);
      box = covering(box, { x: from, y: row, w: to - from, h: 1 });
    }
  }
  return { spans, box };
};

// Outline of the pixels of one class as the path of an SVG. It runs between pixels and cuts their corners.
const outlinePath = ({ runs, width, height, label }) => {
  const next = new Map(); // corner -> corners that the outline goes on to, with the class at its right hand
  const link = (x0, y0, x1, y1) => {
    const from = y0 * (width + 1) + x0, to = y1 * (width + 1) + x1;
    if (next.has(from)) next.get(from).push(to);
    else next.set(from, [to]);
  };
  let above = [];
  const rows = rowIntervals(runs, width, height, label);
  for (let y = 0; y <= height; y += 1) {
    const here = y < height ? rows[y] : [];
    for (let i = 0; i < here.length; i += 2) { link(here[i], y + 1, here[i], y); link(here[i + 1], y, here[i + 1], y + 1); }
    for (const [from, to] of difference(here, above)) link(from, y, to, y);
    for (const [from, to] of difference(above, here)) link(to, y, from, y);
    above = here;
  }
  const parts = [];
  const step = Math.max(0, Math.max(width, height) / 1400 - 1); // points that are closer than this cannot be told apart
  while (next.size) parts.push(loopPath(takeLoop(next), width, height, step));
  return parts.join("");
};
const rowIntervals = (runs, width, height, label) => {
  const rows = Array.from({ length: height }, () => []);
  for (let i = 0, at = 0; i < runs.length; at += runs[i], i += 2) {
    if (runs[i + 1] !== label) continue;
    for (let from = at; from < at + runs[i];) {
      const y = Math.floor(from / width), end = Math.min(at + runs[i], (y + 1) * width);
      rows[y].push(from - y * width, end - y * width);
      from = end;
    }
  }
  return rows;
};
// Parts of some intervals that others do not cover.
const difference = (some, others) => {
  const left = [];
  for (let i = 0, j = 0; i < some.length; i += 2) {
    let from = some[i];
    while (j < others.length && others[j + 1] <= from) j += 2;
    for (let k = j; k < others.length && others[k] < some[i + 1]; k += 2) {
      if (others[k] > from) left.push([from, others[k]]);
      from = Math.max(from, others[k + 1]);
    }
    if (from < some[i + 1]) left.push([from, some[i + 1]]);
  }
  return left;
};
const takeLoop = (next) => {
  const start = next.keys().next().value, corners = [];
  for (let at = start; ;) {
    corners.push(at);
    const ways = next.get(at), to = ways.pop();
    if (!ways.length) next.delete(at);
    at = to;
    if (at === start) return corners;
  }
};
const loopPath = (corners, width, height, step) => {
  const every = corners.map((corner) => [corner % (width + 1), Math.floor(corner / (width + 1))]);
  const direction = (from, to) => [Math.sign(to[0] - from[0]), Math.sign(to[1] - from[1])];
  const points = every.filter((here, i) => {
    const [a, b] = [direction(every.at(i - 1), here), direction(here, every[(i + 1) % every.length])];
    return a[0] !== b[0] || a[1] !== b[1];
  });
  const parts = [];
  let pen = false, lastX = 0, lastY = 0;
  // The edge of the image is no border: the outline stops there.
  const onFrame = (a, b) => (a[0] === b[0] && (a[0] === 0 || a[0] === width)) || (a[1] === b[1] && (a[1] === 0 || a[1] === height));
  const draw = (x, y, must) => {
    if (pen && !must && Math.hypot(x - lastX, y - lastY) < step) return;
    parts.push(`${pen ? "L" : "M"}${x} ${y}`);
    [pen, lastX, lastY] = [true, x, y];
  };
  for (let i = 0; i <= points.length; i += 1) {
    const before = points.at((i % points.length) - 1), here = points[i % points.length], after = points[(i + 1) % points.length];
    const [inX, inY] = direction(before, here), [outX, outY] = direction(here, after);
    const fromFrame = onFrame(before, here), toFrame = onFrame(here, after);
    if (fromFrame) pen = false;
    else if (i > 0) draw(here[0] - inX / 2, here[1] - inY / 2, toFrame);
    if (toFrame) pen = false;
    else draw(here[0] + outX / 2, here[1] + outY / 2, fromFrame || i === points.length);
  }
  return parts.join("");
};
