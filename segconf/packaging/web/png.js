// Grey PNG files of 8 or 16 bits, and the checksum that they share with zip files.
const CHECKS = Uint32Array.from({ length: 256 }, (_, value) => { let check = value; for (let bit = 0; bit < 8; bit += 1) check = check & 1 ? 0xedb88320 ^ (check >>> 1) : check >>> 1; return check; });
const checksum = (bytes, before = 0) => {
  let check = ~before;
  for (let i = 0; i < bytes.length; i += 1) check = CHECKS[(check ^ bytes[i]) & 255] ^ (check >>> 8);
  return ~check >>> 0;
};
const pngChunk = (name, content) => {
  const bytes = new Uint8Array(12 + content.length), view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  bytes.set([...name].map((letter) => letter.charCodeAt(0)), 4);
  bytes.set(content, 8);
  view.setUint32(8 + content.length, checksum(bytes.subarray(4, 8 + content.length)));
  return bytes;
};
// Rows with the filter Sub: every byte minus that of the pixel before.
const filteredRows = (pixels, width, first, count) => {
  const depth = pixels.BYTES_PER_ELEMENT, stride = 1 + width * depth, bytes = new Uint8Array(count * stride);
  for (let row = 0, to = 0; row < count; row += 1) {
    bytes[to++] = 1;
    for (let x = 0, at = (first + row) * width, before = 0; x < width; x += 1, at += 1) {
      const value = pixels[at];
      if (depth === 2) bytes[to++] = (value >> 8) - (before >> 8);
      bytes[to++] = value - before;
      before = value;
    }
  }
  return bytes;
};
const greyPng = async (pixels, width, height) => {
  const stream = new CompressionStream("deflate"), writer = stream.writable.getWriter();
  const packed = new Response(stream.readable).arrayBuffer(), most = Math.max(1, Math.floor((4 << 20) / width));
  for (let first = 0; first < height; first += most) await writer.write(filteredRows(pixels, width, first, Math.min(most, height - first)));
  await writer.close();
  const header = new Uint8Array(13), view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header[8] = 8 * pixels.BYTES_PER_ELEMENT;
  const parts = [Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a), pngChunk("IHDR", header), pngChunk("IDAT", new Uint8Array(await packed)), pngChunk("IEND", new Uint8Array(0))];
  return new Uint8Array(await new Blob(parts).arrayBuffer());
};
