// TIFF files of one picture: strips or tiles of 8 or 16 bits, plain, PackBits, LZW or deflated. Its directory is also what
// other files call EXIF.
const TIFF_TAGS = { 256: "width", 257: "height", 258: "bits", 259: "compression", 262: "photometric", 273: "offsets", 274: "orientation", 277: "samples", 278: "rows", 279: "lengths", 284: "planar", 317: "predictor", 320: "palette", 322: "tileWidth", 323: "tileHeight", 324: "offsets", 325: "lengths", 339: "format" };
const TIFF_SIZES = { 1: 1, 3: 2, 4: 4 };
const tiffDirectory = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length), little = bytes[0] === 0x49;
  const read = (at, size) => (size === 1 ? view.getUint8(at) : size === 2 ? view.getUint16(at, little) : view.getUint32(at, little));
  const found = { little }, start = read(4, 4), count = read(start, 2);
  for (let entry = 0, at = start + 2; entry < count; entry += 1, at += 12) {
    const name = TIFF_TAGS[read(at, 2)], size = TIFF_SIZES[read(at + 2, 2)], length = read(at + 4, 4);
    if (!name || !size || length * size > bytes.length) continue;
    const from = length * size > 4 ? read(at + 8, 4) : at + 8;
    found[name] = Array.from({ length }, (_, i) => read(from + i * size, size));
  }
  found.next = read(start + 2 + 12 * count, 4);
  return found;
};
const tiffHeader = (bytes) => {
  let found;
  try { found = tiffDirectory(bytes); } catch { throw tooShort(); }
  if (found.next) throw new Refused("the file holds several pictures, and which one is meant is not known. Save each as a file of its own.");
  const { width, height, samples = [1], bits = [1], compression = [1], photometric = [1], format = [1], planar = [1], offsets, lengths } = found;
  if (!width || !height || !offsets || !lengths) throw tooShort();
  const known = (bits[0] === 8 || bits[0] === 16) && bits.every((one) => one === bits[0]) && [1, 5, 8, 32773, 32946].includes(compression[0]) && photometric[0] <= 3 && format[0] === 1 && planar[0] === 1;
  if (!known) throw new Refused("this kind of TIFF is not read by this page (8 or 16 bits, grey or RGB, plain, LZW, PackBits or deflated are). Save it as PNG, or use segconf predict.");
  if (offsets.some((at, i) => at + lengths[i] > bytes.length)) throw tooShort();
  return { width: width[0], height: height[0], channels: photometric[0] >= 2 ? 3 : 1, bits: bits[0], samples: samples[0], directory: found };
};
const inflated = async (bytes) => {
  try { return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer()); } catch { throw tooShort(); }
};
const unpackBits = (bytes, length) => {
  const out = new Uint8Array(length);
  for (let at = 0, to = 0; at < bytes.length && to < length;) {
    const code = bytes[at++];
    if (code < 128) { out.set(bytes.subarray(at, at + Math.min(code + 1, length - to)), to); at += code + 1; to += code + 1; }
    else if (code > 128) { out.fill(bytes[at++], to, to + 257 - code); to += 257 - code; }
  }
  return out;
};
// Codes of 9 to 12 bits, the highest bit first; 256 begins anew, 257 ends. A word is the one of its prefix and a byte.
const unpackLzw = (bytes, length) => {
  const out = new Uint8Array(length), prefix = new Uint16Array(4097), last = new Uint8Array(4097), sizes = new Uint16Array(4097);
  for (let i = 0; i < 256; i += 1) { last[i] = i; sizes[i] = 1; }
  let next = 258, width = 9, before = -1, buffer = 0, held = 0, to = 0;
  const write = (code) => {
    let at = to + sizes[code] - 1, byte = 0;
    for (let word = code, left = sizes[code]; left > 0; left -= 1, at -= 1, word = prefix[word]) { byte = last[word]; if (at < length) out[at] = byte; }
    to += sizes[code];
    return byte;
  };
  for (let at = 0; at < bytes.length && to < length;) {
    while (held < width && at < bytes.length) { buffer = ((buffer << 8) | bytes[at++]) & 0xffffff; held += 8; }
    if (held < width) break;
    const code = (buffer >> (held - width)) & ((1 << width) - 1);
    held -= width;
    if (code === 257) break;
    if (code === 256) { next = 258; width = 9; before = -1; continue; }
    if (before < 0) { write(code); before = code; continue; }
    if (code > next) throw tooShort();
    prefix[next] = before;
    sizes[next] = sizes[before] + 1;
    if (code === next) { let first = before; while (sizes[first] > 1) first = prefix[first]; last[next] = last[first]; write(code); } else last[next] = write(code);
    before = code;
    next = Math.min(next + 1, 4096);
    if (next + 1 >= 1 << width && width < 12) width += 1;
  }
  return out;
};
// Bytes of a strip or tile, high byte first where there are two, with the predictor undone.
const tiffChunk = async (bytes, { compression = [1], predictor = [1], little }, { rows, columns, samples, bits }) => {
  const depth = bits / 8, stride = columns * samples * depth, length = rows * stride;
  let found = bytes;
  if (compression[0] === 5) found = unpackLzw(bytes, length);
  else if (compression[0] === 32773) found = unpackBits(bytes, length);
  else if (compression[0] !== 1) found = await inflated(bytes);
  if (found.length < length) throw tooShort();
  found = found.slice(0, length);
  if (depth === 2 && little) for (let i = 0; i < length; i += 2) [found[i], found[i + 1]] = [found[i + 1], found[i]];
  if (predictor[0] === 2) {
    for (let row = 0; row < rows; row += 1) {
      for (let i = row * stride + samples * depth, end = (row + 1) * stride; i < end; i += depth) {
        const one = i - samples * depth;
        if (depth === 1) found[i] += found[one];
        else { const sum = ((found[i] << 8) | found[i + 1]) + ((found[one] << 8) | found[one + 1]); found[i] = sum >> 8; found[i + 1] = sum; }
      }
    }
  }
  return found;
};
const tiffPicture = async (bytes, { width, height, samples, bits, directory }) => {
  const { offsets, lengths, rows = [height], tileWidth, tileHeight, photometric = [1], palette, orientation = [1] } = directory;
  const columns = tileWidth ? tileWidth[0] : width, tall = tileWidth ? tileHeight[0] : Math.min(rows[0], height);
  const across = Math.ceil(width / columns), rgba = new Uint8ClampedArray(width * height * 4), colour = pixelReader({ samples, bits, palette: photometric[0] === 3 ? palette : null, inverted: photometric[0] === 0 });
  for (const [number, offset] of offsets.entries()) {
    const left = (number % across) * columns, top = Math.floor(number / across) * tall, high = tileWidth ? tall : Math.min(tall, height - top);
    const chunk = await tiffChunk(bytes.subarray(offset, offset + lengths[number]), directory, { rows: high, columns, samples, bits });
    for (let y = 0; y < high && top + y < height; y += 1) for (let x = 0; x < columns && left + x < width; x += 1) colour(chunk, (y * columns + x) * samples * (bits / 8), rgba, ((top + y) * width + left + x) * 4);
  }
  return pixelPicture(rgba, width, height, orientation[0]);
};
