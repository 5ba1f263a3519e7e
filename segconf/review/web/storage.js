// What the reader has done is kept in the browser (IndexedDB), every stroke at once: closing the tab loses nothing.
//   cases: { run, case, decision, note, decided_at, position, unsaved, version }, strokes: { run, case, index, ... }
const DATABASE = "segconf-review";
const openStorage = (runId, onFailure) => {
  let database = null;
  const span = (name, from = 0) => IDBKeyRange.bound([runId, name, from], [runId, name, Infinity]);
  const connect = () => new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("cases", { keyPath: ["run", "case"] });
      request.result.createObjectStore("strokes", { keyPath: ["run", "case", "index"] });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
  const answer = (request) => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  // One transaction per action; it is handed to the browser before this returns, so that a killed tab loses nothing.
  const write = (act) => {
    if (!database) return;
    try {
      const transaction = database.transaction(["cases", "strokes"], "readwrite");
      transaction.onerror = onFailure;
      transaction.onabort = onFailure;
      act(transaction.objectStore("cases"), transaction.objectStore("strokes"));
      transaction.commit?.();
    } catch { onFailure(); }
  };
  const earlier = () => { // decisions of an earlier version of the page
    try { return Object.entries(JSON.parse(localStorage.getItem(`segconf-review-${runId}`) || "{}")); } catch { return []; }
  };
  return {
    async load() {
      try {
        database = await connect();
        const all = await answer(database.transaction("cases").objectStore("cases").getAll(IDBKeyRange.bound([runId], [runId, []])));
        const kept = new Map(earlier());
        for (const { run, case: name, ...values } of all) kept.set(name, values);
        return kept;
      } catch { onFailure(); return new Map(); }
    },
    async strokes(name) {
      if (!database) return [];
      return answer(database.transaction("strokes").objectStore("strokes").getAll(span(name)));
    },
    async kept(name) { return database ? answer(database.transaction("cases").objectStore("cases").get([runId, name])) : undefined; },
    keep(name, values) { write((cases) => cases.put({ run: runId, case: name, ...values })); },
    forget(name) { write((cases, strokes) => { cases.delete([runId, name]); strokes.delete(span(name)); }); },
    addStroke(name, index, stroke, values) {
      write((cases, strokes) => {
        strokes.delete(span(name, index));
        strokes.put({ run: runId, case: name, index, ...stroke });
        cases.put({ run: runId, case: name, ...values });
      });
    },
    dropStrokes(name) { write((cases, strokes) => strokes.delete(span(name))); },
  };
};

// The server that the page came from (`segconf review --serve`): every case is saved there against its version.
const RETRY = 3000;
const openServer = ({ model, entryOf, onState }) => {
  const versions = new Map(), busy = new Set(), again = new Set(), retries = new Map();
  const send = async (name, force) => {
    const entry = await entryOf(name);
    const answer = await fetch(`cases/${encodeURIComponent(name)}`, {
      method: "PUT",
      headers: { "Content-Type": "application/json", "If-Match": force ? "*" : `"${versions.get(name) || ""}"` },
      body: JSON.stringify({ model_sha256: model, ...entry }),
    });
    const content = await answer.json();
    if (answer.ok) versions.set(name, content.version);
    return { status: answer.status, ...content };
  };
  const save = async (name, force = false) => {
    if (busy.has(name)) { again.add(name); return; }
    busy.add(name);
    clearTimeout(retries.get(name));
    onState(name, { kind: "saving" });
    let result;
    try { result = await send(name, force); } catch { result = { status: 0 }; }
    busy.delete(name);
    if (result.status === 200 && again.delete(name)) { save(name); return; }
    again.delete(name);
    if (result.status === 200) onState(name, { kind: "saved", version: result.version });
    else if (result.status === 409) onState(name, { kind: "conflict" });
    else onState(name, { kind: "failed", reason: result.message });
    if (result.status !== 200 && result.status !== 409) retries.set(name, setTimeout(() => save(name, force), RETRY));
  };
  return {
    save,
    versionOf: (name) => versions.get(name) || "",
    remember: (name, version) => versions.set(name, version),
    async state() { return (await fetch("state")).json(); },
    async mask(name) { return (await fetch(`corrected/${encodeURIComponent(name)}`)).json(); },
  };
};
