// Files to pixels: the content decides what a file is, and a broken one is refused with a reason.
const BAND_BYTES = 16 << 20, WIDEST = 16384;
class Refused extends Error {}
const starts = (bytes, ...sign) => sign.every((value, i) => bytes[i] === value);
const kindOf = (bytes) => {
  if (starts(bytes, 0xff, 0xd8, 0xff)) return "jpeg";
  if (starts(bytes, 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return "png";
  if (starts(bytes, 0x42, 0x4d)) return "bmp";
  if (starts(bytes, 0x49, 0x49, 0x2a, 0) || starts(bytes, 0x4d, 0x4d, 0, 0x2a)) return "tiff";
  return null;
};
// Each of these finds size, channels and depth without decoding, and refuses a file that ends too early: browsers show
// what they have of it, and a prediction of half an image would look like one of a whole.
const tooShort = () => new Refused("the picture is broken or incomplete. Copy or export it again, or remove it.");
const jpegHeader = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let header = null, at = 2;
  while (at + 2 <= bytes.length) {
    const marker = bytes[at] === 0xff ? bytes[at + 1] : -1;
    if (marker === -1 || marker === 0xff) at += 1; // entropy-coded pixels, or filling
    else if (marker <= 1 || (marker >= 0xd0 && marker <= 0xd8)) at += 2;
    else if (marker === 0xd9) { if (header) return header; break; }
    else if (at + 10 > bytes.length) break;
    else {
      if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) header = { height: view.getUint16(at + 5), width: view.getUint16(at + 7), channels: bytes[at + 9] === 1 ? 1 : 3, bits: bytes[at + 4] };
      at += 2 + view.getUint16(at + 2);
    }
  }
  throw tooShort();
};
const pngHeader = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let header = null;
  for (let at = 8; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
    const name = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (at + 12 + view.getUint32(at) > bytes.length) break;
    if (name === "IHDR") header = { width: view.getUint32(at + 8), height: view.getUint32(at + 12), bits: bytes[at + 16], channels: [0, 4].includes(bytes[at + 17]) ? 1 : 3 };
    if (name === "acTL" && view.getUint32(at + 8) > 1) throw new Refused(`the file holds ${view.getUint32(at + 8)} pictures, and which one is meant is not known. Save each as a file of its own.`);
    if (name === "IEND" && header) return header;
  }
  throw tooShort();
};
const bmpHeader = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (bytes.length < 54) throw tooShort();
  const width = view.getInt32(18, true), height = Math.abs(view.getInt32(22, true)), bits = view.getUint16(28, true);
  const plain = view.getUint32(30, true) === 0, needed = view.getUint32(10, true) + Math.ceil((width * bits) / 32) * 4 * height;
  if (plain && needed > bytes.length) throw tooShort();
  return { width, height, channels: 3, bits: 8 };
};
const HEADERS = { jpeg: jpegHeader, png: pngHeader, bmp: bmpHeader, tiff: tiffHeader };
const TYPES = { jpeg: "image/jpeg", png: "image/png", bmp: "image/bmp" };
// A picture: { width, height, rows(first, count) -> RGBA, drawable, close() }, upright and without colour management.
const openPicture = async (bytes, { maxPixels }) => {
  if (!bytes.length) throw new Refused("the file is empty. Copy it again, or remove it.");
  const kind = kindOf(bytes);
  if (!kind) throw new Refused("the content is not a JPEG, PNG, BMP or TIFF picture. Convert it to one of these, or remove it.");
  const header = HEADERS[kind](bytes);
  if (header.width * header.height > maxPixels) throw new Refused(`the image is ${header.height} x ${header.width}, more than the ceiling of ${maxPixels} pixels. If the file is genuine, raise data.max_pixels; else remove it.`);
  if (Math.max(header.width, header.height) > WIDEST) throw new Refused(`the image is ${header.height} x ${header.width}; this page reads sides of at most ${WIDEST} pixels. Use segconf predict.`);
  const remarks = [];
  if (header.channels === 1 && header.bits > 8) remarks.push(`${NOTE}deep grey levels were reduced to 8 bits`);
  return { ...(await decodedPicture(bytes, kind, header)), isGrey: header.channels === 1, remarks };
};
const decodedPicture = (bytes, kind, header) => {
  if (kind === "tiff") return tiffPicture(bytes, header);
  if (kind === "png" && needsOwnPng(bytes, header)) return pngPicture(bytes, header);
  return browserPicture(bytes, kind);
};
const browserPicture = async (bytes, kind) => {
  const options = { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" };
  let bitmap;
  try { bitmap = await createImageBitmap(new Blob([bytes], { type: TYPES[kind] }), options); } catch { throw tooShort(); }
  const { width, height } = bitmap, most = Math.max(1, Math.floor(BAND_BYTES / (4 * width)));
  const canvas = new OffscreenCanvas(width, Math.min(most, height)), context = canvas.getContext("2d", { willReadFrequently: true });
  return {
    width, height, drawable: bitmap,
    rows(first, count) {
      context.clearRect(0, 0, width, count);
      context.drawImage(bitmap, 0, first, width, count, 0, 0, width, count);
      return context.getImageData(0, 0, width, count).data;
    },
    close() { bitmap.close(); canvas.width = canvas.height = 0; },
  };
};
// Walks through a picture in bands of rows.
const eachBand = (picture, visit) => {
  const most = Math.max(1, Math.floor(BAND_BYTES / (4 * picture.width)));
  for (let first = 0; first < picture.height; first += most) {
    const count = Math.min(most, picture.height - first);
    visit(picture.rows(first, count), first, count);
  }
};
