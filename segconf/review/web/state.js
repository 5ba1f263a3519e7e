// What is shown, and what was decided about the cases.
const source = openSource(window.segconfData);
const { run } = source;
const hasLabels = run.class_names.length > 0; // a class for the whole image instead of a mask
const cases = [];
const served = window.segconfData.served;
const byName = new Map();
const view = { layer: true, contour: true, heat: false, promise: true, base: 1, tall: 1, zoom: 1, x: 0, y: 0, current: null, shown: [] };
const find = (id) => document.getElementById(id);
const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const say = (text) => { find("message").textContent = text; find("message").hidden = !text; };
const announce = (text) => { find("announce").textContent = text; };
const nextFrame = (act) => {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; act(); });
  };
};

// Maps of the cases seen last.
const KEPT_MAPS = 12;
const maps = new Map();
const mapOf = async (name) => {
  if (!maps.has(name)) {
    const map = await source.map(byName.get(name));
    maps.set(name, map);
    if (maps.size > KEPT_MAPS) maps.delete([...maps.keys()].find((other) => other !== view.current && other !== name));
  }
  return maps.get(name);
};

// Decisions: { decision, note, decided_at, position, count }, where `position` of `count` strokes are in force; or { ..., label }.
let decisions = new Map();
const storage = openStorage(run.id, () => { find("storage").hidden = false; });
const decided = (name) => decisions.get(name) || {};
const isCorrected = (name) => (hasLabels ? decided(name).decision === "corrected" : hasOwnMask(name));
const hasOwnMask = (name) => decided(name).position > 0 || Boolean(decided(name).fetched);
const change = (name, values, stroke) => {
  const next = { ...decided(name), ...values, decided_at: new Date().toISOString(), unsaved: served };
  if (served) next.version = server.versionOf(name);
  if (next.decision || next.note || next.count || served) decisions.set(name, next);
  else decisions.delete(name);
  if (stroke) storage.addStroke(name, next.position - 1, stroke, next);
  else if (decisions.has(name)) storage.keep(name, next);
  else storage.forget(name);
  if (served) server.save(name);
  else tabs?.postMessage(name);
};

// Tabs of the same page follow each other; with a server, they are told when they save.
const tabs = served || !window.BroadcastChannel ? null : new BroadcastChannel(`segconf-review-${run.id}`);
const followTab = async (name) => {
  const kept = await storage.kept(name);
  if (kept) decisions.set(name, kept); else decisions.delete(name);
  strokesOf.delete(name);
  updateItem(name);
  refresh();
  if (view.current === name) { cancelStroke(); closeSession(); show(name); }
};

// The corrected mask of any case: the predicted one and the strokes in force.
const strokesOf = new Map(); // of the cases that were corrected in this visit
const knownStrokes = async (name) => strokesOf.get(name) || storage.strokes(name);
const maskOf = async (name) => {
  const { mask: { size: [height, width], runs } } = await mapOf(name);
  const mask = decodeRuns(runs, new Uint8Array(width * height));
  const strokes = await knownStrokes(name);
  for (const stroke of strokes.slice(0, decided(name).position)) paste(mask, width, stroke, stroke.after);
  return { size: [height, width], runs: encodeRuns(mask, width, { x: 0, y: 0, w: width, h: height }) };
};
const entryOf = async (name) => {
  const { decision = "", note = "", decided_at = "", position = 0, count = 0, fetched = false } = decided(name);
  const { file, image_sha256, mask_sha256, label: predicted } = byName.get(name);
  if (hasLabels) return { case: name, file, decision, note, decided_at, image_sha256, predicted, label: labelOf(name) };
  const entry = { case: name, file, decision, note, decided_at, image_sha256, mask_sha256 };
  if (position) entry.mask = await maskOf(name);
  else if (fetched) entry.mask = await server.mask(name);
  else if (count) entry.mask = null;
  return entry;
};

// With a server, what it has counts, unless something could not be saved the last time.
const server = served ? openServer({ model: run.model, entryOf, onState: (name, state) => showSaving(name, state) }) : null;
const startFromServer = async () => {
  const there = await server.state();
  for (const [name, { version, decision, note, decided_at, corrected, label }] of Object.entries(there)) {
    server.remember(name, version);
    const own = decisions.get(name);
    if (own && (own.unsaved || own.version === version)) continue;
    storage.dropStrokes(name);
    strokesOf.delete(name);
    decisions.set(name, { decision, note, decided_at, label, version, position: 0, count: 0, fetched: corrected });
  }
  for (const [name, own] of decisions) {
    if (own.unsaved) { server.remember(name, own.version || ""); server.save(name); }
    else if (!Object.hasOwn(there, name)) { decisions.delete(name); storage.forget(name); }
  }
};
const unsaved = new Map(); // { kind, reason } of the cases that the server did not take, until it does
const showUnsaved = (otherwise) => {
  const all = [...unsaved], [name, { kind, reason }] = all.find(([, one]) => one.kind === "conflict") || all.at(-1) || ["", otherwise];
  const words = { saving: "saving", saved: "saved", conflict: "conflict", failed: "notSaved" }[kind];
  const count = all.length > 1 ? `${t("unsavedCases", { count: all.length })} ` : "";
  find("saved").textContent = words ? count + t(words, { name, reason: reason || t("serverGone") }) : "";
  find("saved").className = kind;
  find("conflict").hidden = kind !== "conflict";
  find("conflict").dataset.case = name;
};
const showSaving = (name, { kind, version, reason }) => {
  if (kind === "saved") unsaved.delete(name);
  else if (kind !== "saving") unsaved.set(name, { kind, reason });
  showUnsaved({ kind });
  updateItem(name);
  if (kind !== "saved") return;
  const next = { ...decided(name), unsaved: false, version };
  if (next.decision || next.note || next.count) { decisions.set(name, next); storage.keep(name, next); }
  else { decisions.delete(name); storage.forget(name); }
};
