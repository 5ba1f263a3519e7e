// From the network's grid to that of the image: class and confidence of every pixel, and what follows from them.
//   grid: { values, planes, size: [h, w] }, where one plane is the difference of the logits of two classes
const FULL_SCALE = 65535;
const neighbours = (from, to) => {
  const low = new Int32Array(to), high = new Int32Array(to), part = new Float32Array(to);
  for (let i = 0; i < to; i += 1) {
    const centre = Math.min(from - 1, Math.max(0, (i + 0.5) * (from / to) - 0.5));
    low[i] = Math.trunc(centre);
    high[i] = Math.min(low[i] + 1, from - 1);
    part[i] = centre - low[i];
  }
  return { low, high, part };
};
// Bilinear between pixel centres, a row of the image at a time: visit(y, row) with `row` (planes, width).
const eachRow = ({ values, planes, size: [h, w] }, [height, width], visit) => {
  const across = neighbours(w, width), down = neighbours(h, height);
  const wide = new Float32Array(planes * h * width), row = new Float32Array(planes * width);
  for (let line = 0, to = 0; line < planes * h; line += 1) {
    for (let x = 0; x < width; x += 1, to += 1) wide[to] = values[line * w + across.low[x]] * (1 - across.part[x]) + values[line * w + across.high[x]] * across.part[x];
  }
  for (let y = 0; y < height; y += 1) {
    const part = down.part[y];
    for (let plane = 0; plane < planes; plane += 1) {
      const above = (plane * h + down.low[y]) * width, below = (plane * h + down.high[y]) * width, to = plane * width;
      for (let x = 0; x < width; x += 1) row[to + x] = wide[above + x] * (1 - part) + wide[below + x] * part;
    }
    visit(y, row);
  }
};
// Turns a row of logits into probabilities in place, all classes one after the other.
const softmaxRow = (row, planes, width) => {
  for (let x = 0; x < width; x += 1) {
    let most = -Infinity, total = 0;
    for (let k = 0; k < planes; k += 1) most = Math.max(most, row[k * width + x]);
    for (let k = 0; k < planes; k += 1) total += row[k * width + x] = Math.exp(row[k * width + x] - most);
    for (let k = 0; k < planes; k += 1) row[k * width + x] /= total;
  }
};
const mapsOf = (grid, [height, width]) => {
  const mask = new Uint8Array(height * width), levels = new Uint16Array(height * width);
  let foreground = 0, overlap = 0;
  const twoClasses = (y, row) => {
    for (let x = 0, at = y * width; x < width; x += 1, at += 1) {
      const confidence = 1 / (1 + Math.exp(-Math.abs(row[x])));
      levels[at] = Math.round(confidence * FULL_SCALE);
      if (row[x] > 0) { mask[at] = 1; foreground += confidence; overlap += confidence; } else foreground += 1 - confidence;
    }
  };
  const moreClasses = (y, row) => {
    softmaxRow(row, grid.planes, width);
    for (let x = 0, at = y * width; x < width; x += 1, at += 1) {
      let best = 0;
      for (let k = 1; k < grid.planes; k += 1) if (row[k * width + x] > row[best * width + x]) best = k;
      mask[at] = best;
      levels[at] = Math.round(row[best * width + x] * FULL_SCALE);
      foreground += 1 - row[x];
      if (best) overlap += 1 - row[x];
    }
  };
  eachRow(grid, [height, width], grid.planes === 1 ? twoClasses : moreClasses);
  return { mask, levels, height, width, foreground, overlap };
};
// Pixels inside of a line: their probability of its class is at least its threshold.
const regionRuns = (contour, grid, { mask, levels, height, width }) => {
  const inside = new Uint8Array(height * width), { threshold, class: label } = contour;
  if (grid.planes === 1) {
    for (let i = 0; i < inside.length; i += 1) {
      const confidence = Math.fround(levels[i] / FULL_SCALE), probability = (mask[i] > 0) === (label > 0) ? confidence : 1 - confidence;
      inside[i] = probability >= threshold ? 1 : 0;
    }
  } else {
    eachRow(grid, [height, width], (y, row) => {
      softmaxRow(row, grid.planes, width);
      for (let x = 0; x < width; x += 1) inside[y * width + x] = row[label * width + x] >= threshold ? 1 : 0;
    });
  }
  return encodeRuns(inside, width, { x: 0, y: 0, w: width, h: height });
};

// What the review page shows of a case; see `page_maps.py`.
const MAP_SIDE = 420, PAGE_LOG_ODDS = 10;
const roundEven = (value) => { const down = Math.floor(value), rest = value - down; return rest > 0.5 || (rest === 0.5 && down % 2) ? down + 1 : down; };
const fittingSize = ([height, width], side) => {
  const factor = Math.min(1, side / Math.max(height, width));
  return [Math.max(1, roundEven(height * factor)), Math.max(1, roundEven(width * factor))];
};
const sampledAxis = (from, to) => Int32Array.from({ length: to }, (_, i) => Math.floor(((2 * i + 1) * from) / (2 * to)));
const sampled = (values, [height, width], [h, w]) => {
  const rows = sampledAxis(height, h), columns = sampledAxis(width, w), out = new values.constructor(h * w);
  for (let y = 0; y < h; y += 1) for (let x = 0; x < w; x += 1) out[y * w + x] = values[rows[y] * width + columns[x]];
  return out;
};
const pageLevel = (confidence, lowest) => {
  const inside = Math.min(1 - 1e-9, Math.max(lowest, confidence)), guess = Math.log(lowest / (1 - lowest));
  const fraction = (Math.log(inside / (1 - inside)) - guess) / PAGE_LOG_ODDS;
  return Math.floor(Math.min(1, Math.max(0, fraction)) * 255 + 1e-3);
};
const pageMap = (grid, [height, width], { classes, contours }) => {
  const maps = mapsOf(grid, [height, width]), [h, w] = fittingSize([height, width], MAP_SIDE);
  const levels = Uint8Array.from(sampled(maps.levels, [height, width], [h, w]), (level) => pageLevel(level / FULL_SCALE, 1 / classes));
  const whole = { x: 0, y: 0, w: width, h: height };
  return {
    width: w, height: h, levels,
    mask: { size: [height, width], runs: encodeRuns(maps.mask, width, whole) },
    contours: contours.map((one) => ({ kind: one.kind, class: one.class, alpha: one.alpha, runs: regionRuns(one, grid, maps) })),
  };
};
