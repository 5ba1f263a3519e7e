// Results of the model, kept in the browser (IndexedDB) until they are cleared: rows, small pictures, logits.
//   images: { run, case, row, picture, thumbnail }, grids: { run, case, grid }
const openResults = (runId, onFailure) => {
  const memory = new Map(); // where the browser keeps nothing, for as long as the page is open
  let database = null;
  const answer = (request) => new Promise((resolve, reject) => { request.onsuccess = () => resolve(request.result); request.onerror = () => reject(request.error); });
  const connect = async () => {
    const request = indexedDB.open("segconf-model", 1);
    request.onupgradeneeded = () => { for (const name of ["images", "grids"]) request.result.createObjectStore(name, { keyPath: ["run", "case"] }); };
    return answer(request);
  };
  const own = () => IDBKeyRange.bound([runId], [runId, []]);
  const finished = (transaction) => new Promise((resolve, reject) => { transaction.oncomplete = resolve; transaction.onerror = transaction.onabort = () => reject(transaction.error); });
  return {
    async load() {
      try {
        database = await connect();
        return await answer(database.transaction("images").objectStore("images").getAll(own()));
      } catch { onFailure(); return []; }
    },
    async keep(name, { grid, ...image }) {
      try {
        const transaction = database.transaction(["images", "grids"], "readwrite"), done = finished(transaction);
        transaction.objectStore("images").put({ run: runId, case: name, ...image });
        if (grid) transaction.objectStore("grids").put({ run: runId, case: name, grid });
        await done;
      } catch { memory.set(name, { grid, ...image }); onFailure(); }
    },
    async grid(name) {
      if (memory.has(name)) return memory.get(name).grid;
      return (await answer(database.transaction("grids").objectStore("grids").get([runId, name]))).grid;
    },
    async pictures(name) {
      return memory.get(name) || answer(database.transaction("images").objectStore("images").get([runId, name]));
    },
    async clear() {
      memory.clear();
      if (!database) return;
      const transaction = database.transaction(["images", "grids"], "readwrite"), done = finished(transaction);
      for (const name of ["images", "grids"]) transaction.objectStore(name).delete(own());
      await done;
    },
  };
};
