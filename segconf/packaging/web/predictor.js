// The worker: a file becomes a row, the logits and two pictures; logits become maps. One task at a time.
let settings = null, session = null, runtime = null;
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (bytes) => hex(await crypto.subtle.digest("SHA-256", bytes));

// The runtime is a module of its own, which gets its WebAssembly from here and asks nobody for it.
const openSession = async ({ code, wasm, model, provider }) => {
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  runtime = await import(address);
  URL.revokeObjectURL(address);
  runtime.env.wasm.wasmBinary = wasm;
  runtime.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency || 1) : 1;
  runtime.env.logLevel = "error";
  session = await runtime.InferenceSession.create(model, { executionProviders: provider === "webgpu" ? ["webgpu", "wasm"] : ["wasm"] });
};
const runNetwork = async (inputs) => {
  const feeds = {};
  for (const [name, { pixels, size: [h, w] }] of Object.entries(inputs)) feeds[name] = new runtime.Tensor("uint8", pixels, [1, h, w, settings.channels]);
  const found = await session.run(feeds), { logits } = found;
  const [, classes, h, w] = logits.dims, all = logits.data, plane = h * w;
  const values = classes === 2 ? Float32Array.from({ length: plane }, (_, i) => all[plane + i] - all[i]) : Float32Array.from(all);
  const score = found.ood_score ? Number(found.ood_score.data[0]) : null;
  for (const tensor of Object.values(found)) tensor.dispose?.();
  return { grid: { values, planes: classes === 2 ? 1 : classes, size: [h, w] }, oodScore: score };
};
// All that the network takes of a picture, in one walk through its rows.
const networkInputs = (picture) => {
  const { size, channels, detector } = settings, open = (one) => openResizer({ height: picture.height, width: picture.width, channels, size: one });
  const own = open(size), band = detector ? open(detector.band) : null;
  eachBand(picture, (rgba, first, count) => { own.take(rgba, first, count); band?.take(rgba, first, count); });
  const inputs = { image: { pixels: own.pixels(), size } };
  if (detector) inputs.described = { pixels: resizePixels(band.pixels(), detector.band, detector.grid, channels), size: detector.grid };
  return inputs;
};
const allFinite = (values) => values.every(Number.isFinite);

const predictFile = async ({ file, path, name }) => {
  const bytes = new Uint8Array(await file.arrayBuffer()), hash = await sha256(bytes);
  const row = { ...settings.row, case: name, file: path, group: name, image_sha256: hash };
  const picture = await openPicture(bytes, settings), { height, width } = picture, size = [height, width];
  const { grid, oodScore } = await runNetwork(networkInputs(picture));
  const shown = shownPicture(picture);
  picture.close();
  if (!allFinite(grid.values)) throw Object.assign(new Refused("the network's output for this image is not finite."), { flag: settings.flags.words.notFinite });
  const maps = mapsOf(grid, size), remarks = [...picture.remarks];
  if (Math.min(height, width) < TOO_SMALL) remarks.unshift(`${settings.flags.words.tooFew}: ${height} x ${width}`);
  if (picture.isGrey && settings.channels > 1) remarks.push(`${NOTE}grey image, given to a network for colours`);
  Object.assign(row, { height, width }, summarize(maps, { shaded: settings.shaded, oodScore, diceScale: settings.diceScale }));
  row.flags = flagsOf(row, settings.flags, remarks);
  row.severity = severityOf(row.flags);
  row.mask_sha256 = await sha256(maps.mask);
  const thumbnail = await asJpeg(thumbnailOf(shown, maps, settings));
  return { row, grid, picture: await asJpeg(shown), thumbnail };
};
const failedRow = ({ path, name }, error) => {
  const flags = [error.flag || settings.flags.words.unreadable];
  return { ...settings.row, case: name, file: path, group: name, flags, severity: severityOf(flags), error: `${path}: ${error.message}` };
};

// The probe is a small picture whose pixels and logits are known: a browser that alters pixels, or computes something
// else, is found out before it predicts anything.
const probe = async ({ image, pixels, logits, tolerance }) => {
  const picture = await browserPicture(image, "png"), rgba = picture.rows(0, picture.height);
  const seen = Uint8Array.from({ length: (rgba.length / 4) * 3 }, (_, i) => rgba[Math.floor(i / 3) * 4 + (i % 3)]);
  if ((await sha256(seen)) !== pixels) throw Object.assign(new Error("pixels"), { reason: "pixels" });
  const { grid } = await runNetwork(networkInputs(picture));
  picture.close();
  const step = Math.floor(grid.values.length / logits.length);
  const off = Math.max(...logits.map((value, i) => Math.abs(value - grid.values[i * step])));
  if (!(off <= tolerance)) throw Object.assign(new Error(`logits differ by ${off}`), { reason: "numbers" });
};
const TASKS = {
  settings: (task) => { settings = task.settings; },
  async open(task) {
    await openSession(task);
    await probe(task.probe);
    return { provider: task.provider };
  },
  async predict(task) {
    try { return await predictFile(task); } catch (error) {
      if (error instanceof Refused) return { row: failedRow(task, error) };
      const reason = error instanceof RangeError ? "it does not fit into the memory that the browser allows" : error.message;
      return { row: failedRow(task, new Refused(`the image was not predicted (${reason}). Use segconf predict.`)) };
    }
  },
  map: ({ grid, size, contours }) => pageMap(grid, size, { classes: settings.classes, contours }),
  async files({ grid, size: [height, width], corrected }) {
    const maps = mapsOf(grid, [height, width]), found = { mask: await greyPng(maps.mask, width, height), confidence: await greyPng(maps.levels, width, height) };
    if (corrected) found.corrected = await greyPng(decodeRuns(corrected.runs, maps.mask), width, height);
    return found;
  },
};
let last = Promise.resolve();
self.onmessage = ({ data: { id, kind, ...task } }) => {
  last = last.then(async () => {
    try { self.postMessage({ id, result: await TASKS[kind](task) }); } catch (error) { self.postMessage({ id, error: String(error?.message || error), reason: error?.reason }); }
  });
};
