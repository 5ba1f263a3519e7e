// Cases from the model in the page, in the place of files beside it: see source.js for what a source offers.
const openSource = (data) => {
  const results = openResults(data.run.id, () => { find("storage").hidden = false; });
  const pictures = new Map(); // addresses of the pictures of each case
  let painter = null, predictor = null;
  const remember = ({ row, picture, thumbnail }) => {
    for (const address of Object.values(pictures.get(row.case) || {})) URL.revokeObjectURL(address);
    if (picture) pictures.set(row.case, { image: URL.createObjectURL(picture), thumbnail: URL.createObjectURL(thumbnail) });
  };
  // Nothing is promised for an image that is out of distribution.
  const promised = (row) => (row.flags.some((flag) => flag.endsWith(data.run.ood_flag)) ? [] : data.run.contours);
  const sized = (row) => [row.height, row.width];
  const startModel = async (blocks, provider) => {
    const worker = openWorker(blocks.worker);
    await worker.ask("settings", { settings: data.settings });
    const parts = provider === "webgpu" ? [blocks.gpu_code, blocks.gpu_wasm] : [blocks.code, blocks.wasm];
    const [code, wasm, model] = await Promise.all([...parts, blocks.model].map(unpacked));
    try { await worker.ask("open", { provider, code, wasm: wasm.buffer, model, probe: { ...data.probe, image: fromBase64(data.probe.image) } }, [wasm.buffer, model.buffer]); } catch (error) { worker.end(); throw error; }
    return worker;
  };
  return {
    run: data.run,
    empty: "dropHere",
    image: (row) => pictures.get(row.case).image,
    thumbnail: (row) => pictures.get(row.case).thumbnail,
    map: async (row) => painter.ask("map", { grid: await results.grid(row.case), size: sized(row), contours: promised(row).map((one) => ({ ...one, class: one.class_index })) }),
    pictures: (row) => results.pictures(row.case),
    files: async (row, corrected) => painter.ask("files", { grid: await results.grid(row.case), size: sized(row), corrected }),
    // Rows that were predicted in an earlier visit.
    async load() {
      const kept = await results.load();
      kept.forEach(remember);
      return kept.map(({ row }) => row);
    },
    // Checks the page, then starts the model: on the graphics card where that gives the right numbers, else on the processor.
    async begin() {
      const blocks = {};
      for (const [name, expected] of Object.entries(data.blocks)) blocks[name] = await takeBlock(name, expected);
      blocks.worker = await unpacked(blocks.worker);
      painter = openWorker(blocks.worker);
      await painter.ask("settings", { settings: data.settings });
      const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
      // One that only imitates a graphics card is slower than WebAssembly.
      const imitated = adapter?.isFallbackAdapter || adapter?.info?.isFallbackAdapter || adapter?.info?.architecture === "swiftshader";
      if (adapter && !imitated) { try { predictor = await startModel(blocks, "webgpu"); return "webgpu"; } catch (error) { console.info(`WebGPU: ${error.message}`); } }
      predictor = await startModel(blocks, "wasm");
      return "wasm";
    },
    async predict(file, path, name) {
      const found = await predictor.ask("predict", { file, path, name });
      await results.keep(name, found);
      remember(found);
      return found.row;
    },
    async clear() {
      await results.clear();
      for (const name of [...pictures.keys()]) { Object.values(pictures.get(name)).forEach((address) => URL.revokeObjectURL(address)); pictures.delete(name); }
    },
  };
};
