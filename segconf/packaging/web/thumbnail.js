// Small pictures of a case: the image as the review page shows it, and the one in the queue.
const SHOWN_SIDE = 1400, SMALLEST_SIDE = 512, THUMBNAIL_SIDE = 168, QUALITY = 0.88;
const shownSize = ([height, width]) => {
  const longest = Math.max(height, width), whole = Math.min(Math.ceil(SMALLEST_SIDE / longest), Math.max(1, Math.floor(SHOWN_SIDE / longest)));
  const factor = longest > SHOWN_SIDE ? SHOWN_SIDE / longest : whole;
  return [Math.max(1, roundEven(height * factor)), Math.max(1, roundEven(width * factor))];
};
const drawnAt = (drawable, [h, w], smooth) => {
  const canvas = new OffscreenCanvas(w, h), context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = "high";
  context.drawImage(drawable, 0, 0, w, h);
  return canvas;
};
const shownPicture = (picture) => {
  const size = shownSize([picture.height, picture.width]);
  return drawnAt(picture.drawable, size, size[0] < picture.height);
};
const asJpeg = (canvas) => canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
const BAND_COLOURS = { low: [255, 234, 70], middle: [74, 163, 255] }, OPACITIES = { stripe: 0.75, gap: 0.2, middle: 0.22 };
const thumbnailOf = (canvas, maps, { striped, shaded }) => {
  const native = [maps.height, maps.width], [h, w] = fittingSize(native, THUMBNAIL_SIDE);
  const small = drawnAt(canvas, [h, w], true), context = small.getContext("2d"), picture = context.getImageData(0, 0, w, h);
  const mask = sampled(maps.mask, native, [h, w]), levels = sampled(maps.levels, native, [h, w]);
  const tint = (at, colour, opacity) => { for (let c = 0; c < 3; c += 1) picture.data[4 * at + c] = picture.data[4 * at + c] * (1 - opacity) + colour[c] * opacity; };
  const edge = (at, x, y) => (x + 1 < w && mask[at] !== mask[at + 1]) || (y + 1 < h && mask[at] !== mask[at + w]);
  const near = (x, y) => { for (const [i, j] of [[-1, 0], [1, 0], [0, -1], [0, 1]]) if (x + i >= 0 && x + i < w && y + j >= 0 && y + j < h && edge((y + j) * w + x + i, x + i, y + j)) return true; return false; };
  for (let y = 0, at = 0; y < h; y += 1) {
    for (let x = 0; x < w; x += 1, at += 1) {
      const confidence = levels[at] / FULL_SCALE;
      if (confidence < striped) tint(at, BAND_COLOURS.low, (x + y) % 10 < 3 ? OPACITIES.stripe : OPACITIES.gap);
      else if (confidence < shaded) tint(at, BAND_COLOURS.middle, OPACITIES.middle);
      if (edge(at, x, y)) tint(at, [255, 255, 255], 1);
      else if (near(x, y)) tint(at, [16, 16, 16], 0.8);
    }
  }
  context.putImageData(picture, 0, 0);
  return small;
};
