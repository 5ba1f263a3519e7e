// Bilinear resizing, antialiased when it shrinks, in the integers of Pillow: 8-bit pixels and weights of 22 bits. Columns
// come first here; Pillow may begin with the rows, which changes a pixel by one level at most. Rows are taken in bands, so
// that a large image is never held twice.
const WEIGHT_BITS = 22;
const resizeWeights = (from, to) => {
  const scale = from / to, support = Math.max(1, scale), most = Math.ceil(support) * 2 + 1;
  const firsts = new Int32Array(to), counts = new Int32Array(to), weights = new Int32Array(to * most);
  for (let i = 0; i < to; i += 1) {
    const centre = (i + 0.5) * scale, first = Math.max(0, Math.trunc(centre - support + 0.5));
    const count = Math.min(from, Math.trunc(centre + support + 0.5)) - first, own = [];
    let total = 0;
    for (let k = 0; k < count; k += 1) {
      own.push(Math.max(0, 1 - Math.abs((k + first - centre + 0.5) * (1 / support))));
      total += own[k];
    }
    own.forEach((weight, k) => { weights[i * most + k] = Math.trunc(0.5 + (weight / total) * (1 << WEIGHT_BITS)); });
    firsts[i] = first;
    counts[i] = count;
  }
  return { firsts, counts, weights, most };
};
const grey = (red, green, blue) => (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16;

// Takes RGBA rows of an image of `height` x `width` and gives pixels (h, w, C) of a grid.
const openResizer = ({ height, width, channels, size: [h, w] }) => {
  const across = resizeWeights(width, w), narrow = new Uint8Array(height * w * channels);
  const plane = new Uint8Array(width * channels), half = 1 << (WEIGHT_BITS - 1);
  const takeRow = (rgba, at, y) => {
    for (let x = 0, from = at, to = 0; x < width; x += 1, from += 4) {
      if (channels === 1) plane[to++] = grey(rgba[from], rgba[from + 1], rgba[from + 2]);
      else { plane[to++] = rgba[from]; plane[to++] = rgba[from + 1]; plane[to++] = rgba[from + 2]; }
    }
    if (width === w) { narrow.set(plane, y * w * channels); return; }
    const { firsts, counts, weights, most } = across;
    for (let x = 0; x < w; x += 1) {
      for (let c = 0; c < channels; c += 1) {
        let sum = half;
        for (let k = 0, from = firsts[x] * channels + c; k < counts[x]; k += 1, from += channels) sum += plane[from] * weights[x * most + k];
        narrow[(y * w + x) * channels + c] = sum >> WEIGHT_BITS;
      }
    }
  };
  return {
    take(rgba, first, rows) { for (let row = 0; row < rows; row += 1) takeRow(rgba, row * width * 4, first + row); },
    pixels() {
      if (height === h) return narrow;
      const { firsts, counts, weights, most } = resizeWeights(height, h), stride = w * channels, out = new Uint8Array(h * stride);
      for (let y = 0; y < h; y += 1) {
        for (let x = 0; x < stride; x += 1) {
          let sum = half;
          for (let k = 0, from = firsts[y] * stride + x; k < counts[y]; k += 1, from += stride) sum += narrow[from] * weights[y * most + k];
          out[y * stride + x] = sum >> WEIGHT_BITS;
        }
      }
      return out;
    },
  };
};
// The same for pixels (H, W, C) that are there already.
const resizePixels = (pixels, [height, width], [h, w], channels) => {
  const resizer = openResizer({ height, width, channels, size: [h, w] }), rgba = new Uint8Array(width * 4);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) for (let c = 0; c < 3; c += 1) rgba[4 * x + c] = pixels[(y * width + x) * channels + (channels === 1 ? 0 : c)];
    resizer.take(rgba, y, 1);
  }
  return resizer.pixels();
};
