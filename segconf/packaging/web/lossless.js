// Pictures whose pixels are read here, byte by byte: no colour management, no transparency, the same in every browser.
// One pixel of some samples, the high byte first, as RGB. Deep grey becomes 8 bits by its range, deep colours by their
// high byte, as Pillow does it.
const pixelReader = ({ samples, bits, palette, inverted }) => (bytes, at, rgba, to) => {
  const depth = bits / 8, value = (sample) => bytes[at + sample * depth];
  if (palette) { const size = palette.length / 3; for (let c = 0; c < 3; c += 1) rgba[to + c] = palette[c * size + value(0)] >> 8; }
  else if (samples >= 3) for (let c = 0; c < 3; c += 1) rgba[to + c] = value(c);
  else {
    const deep = depth === 2 && samples === 1, full = deep ? Math.floor((((value(0) << 8) | bytes[at + 1]) * 510 + 65535) / 131070) : value(0);
    rgba[to] = rgba[to + 1] = rgba[to + 2] = inverted ? 255 - full : full;
  }
  rgba[to + 3] = 255;
};
// Rows and columns turned as the EXIF orientation 1..8 says.
const turnedUpright = (rgba, width, height, orientation) => {
  if (!(orientation >= 2 && orientation <= 8)) return { pixels: rgba, width, height };
  const swapped = orientation >= 5, [wide, high] = swapped ? [height, width] : [width, height];
  const from = new Uint32Array(rgba.buffer), to = new Uint32Array(from.length);
  const down = [3, 4, 7, 8].includes(orientation), back = [2, 3, 6, 7].includes(orientation);
  for (let y = 0, at = 0; y < high; y += 1) {
    for (let x = 0; x < wide; x += 1, at += 1) {
      const row = down ? high - 1 - y : y, column = back ? wide - 1 - x : x;
      to[at] = from[swapped ? column * width + row : row * width + column];
    }
  }
  return { pixels: new Uint8ClampedArray(to.buffer), width: wide, height: high };
};
const pixelPicture = async (rgba, storedWidth, storedHeight, orientation) => {
  const { pixels, width, height } = turnedUpright(rgba, storedWidth, storedHeight, orientation);
  const drawable = await createImageBitmap(new ImageData(pixels, width, height));
  return { width, height, drawable, rows: (first, count) => pixels.subarray(first * width * 4, (first + count) * width * 4), close: () => drawable.close() };
};

const pngChunks = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length), found = { data: [] };
  for (let at = 8; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
    const name = String.fromCharCode(...bytes.subarray(at + 4, at + 8)), content = bytes.subarray(at + 8, at + 8 + view.getUint32(at));
    if (name === "IDAT") found.data.push(content); else found[name] = content;
  }
  return found;
};
const exifOrientation = (exif) => { try { return tiffDirectory(exif.slice()).orientation?.[0] ?? 1; } catch { return 1; } };
const paeth = (left, above, corner) => {
  const guess = left + above - corner, [a, b, c] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? above : corner;
};
// Undoes the filter of a row in place; `before` is the row above, at another place of the same bytes.
const unfilter = (bytes, kind, start, stride, size, before) => {
  for (let i = 0; i < stride; i += 1) {
    const left = i >= size ? bytes[start + i - size] : 0, above = before < 0 ? 0 : bytes[before + i], corner = before < 0 || i < size ? 0 : bytes[before + i - size];
    if (kind === 1) bytes[start + i] += left;
    else if (kind === 2) bytes[start + i] += above;
    else if (kind === 3) bytes[start + i] += (left + above) >> 1;
    else if (kind === 4) bytes[start + i] += paeth(left, above, corner);
  }
};
const PNG_SAMPLES = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
// Only what browsers get wrong: deep or transparent pixels. All others they decode as they are stored.
const needsOwnPng = (bytes, { bits }) => bits === 16 || [4, 6].includes(bytes[25]) || Boolean(pngChunks(bytes).tRNS);
const pngPicture = async (bytes, { width, height, bits }) => {
  const { IHDR, PLTE, eXIf, data } = pngChunks(bytes), kind = IHDR[9], samples = PNG_SAMPLES[kind];
  if (bits < 8 || IHDR[12]) throw new Refused("a transparent PNG of few bits or in several passes is not read by this page. Save it without transparency, or use segconf predict.");
  const raw = await inflated(new Uint8Array(await new Blob(data).arrayBuffer())), size = samples * (bits / 8), stride = width * size;
  if (raw.length < (stride + 1) * height) throw tooShort();
  const palette = kind === 3 ? Array.from({ length: 768 }, (_, i) => (PLTE[(i % 256) * 3 + Math.floor(i / 256)] ?? 0) << 8) : null;
  const rgba = new Uint8ClampedArray(width * height * 4), colour = pixelReader({ samples, bits, palette, inverted: false });
  for (let y = 0; y < height; y += 1) {
    const start = y * (stride + 1) + 1;
    unfilter(raw, raw[start - 1], start, stride, size, y ? start - stride - 1 : -1);
    for (let x = 0; x < width; x += 1) colour(raw, start + x * size, rgba, (y * width + x) * 4);
  }
  return pixelPicture(rgba, width, height, eXIf ? exifOrientation(eXIf) : 1);
};
