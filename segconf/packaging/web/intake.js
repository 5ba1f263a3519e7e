// Files that are dropped or chosen: a queue with progress and cancel; results join the list as they come.
const SUFFIX = /\.(jpe?g|png|bmp|tiff?)$/i, LONGEST_NAME = 180;
const waitingFiles = [];
const work = { ready: false, busy: false, done: 0, total: 0, leftOut: 0 };

// Names of cases: the path without the suffix, with it where another file has that name, with a hash where both are taken.
const safeName = (path) => path.split("/").map((part) => part.replace(/[\u0000-\u001f\\:]/g, "_").replace(/^\./, "_").slice(0, LONGEST_NAME)).join("/");
const nameFor = (path, taken) => {
  const same = (name) => taken.has(name.normalize("NFC").toLowerCase()), short = safeName(path.replace(SUFFIX, "")), whole = safeName(path);
  if (!same(short)) return short;
  if (!same(whole)) return whole;
  let number = 2;
  while (same(`${whole}~${number}`)) number += 1;
  return `${whole}~${number}`;
};
const takenNames = () => new Set([...cases.map((row) => row.case), ...waitingFiles.map(({ name }) => name)].map((name) => name.normalize("NFC").toLowerCase()));

// A dropped folder is walked through; of its files, pictures count.
const entryFile = (entry) => new Promise((resolve, reject) => { entry.file(resolve, reject); });
const entriesOf = async (reader) => {
  const all = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!some.length) return all;
    all.push(...some);
  }
};
const filesBelow = async (entry, path, inFolder) => {
  if (entry.isFile) return [{ file: await entryFile(entry), path: path + entry.name, inFolder }];
  const found = [];
  for (const child of await entriesOf(entry.createReader())) found.push(...(await filesBelow(child, inFolder ? `${path}${entry.name}/` : path, true)));
  return found;
};
const droppedFiles = async (transfer) => {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name, inFolder: false }));
  const several = entries.length > 1;
  return (await Promise.all(entries.map((entry) => (entry.isDirectory && several ? filesBelow(entry, "", true) : filesBelow(entry, "", false))))).flat();
};
const addFiles = (found) => {
  const taken = takenNames();
  const wanted = found.filter(({ file, inFolder }) => !inFolder || (SUFFIX.test(file.name) && !file.name.startsWith(".")));
  work.leftOut += found.length - wanted.length;
  for (const { file, path } of wanted.sort((a, b) => (a.path < b.path ? -1 : 1))) {
    const name = nameFor(path, taken);
    taken.add(name.normalize("NFC").toLowerCase());
    waitingFiles.push({ file, path, name });
    work.total += 1;
  }
  runQueue();
};
// Without a case there is nothing to decide, and nothing to draw on.
const showWhetherEmpty = () => document.body.classList.toggle("empty", !cases.length);
const addCase = (row) => {
  cases.push(row);
  showWhetherEmpty();
  byName.set(row.case, row);
  makeItem(row);
  nameItem(row);
  updateItem(row.case);
  fillFilter();
  refresh();
  if (!byName.has(view.current)) show(row.case);
};
const runQueue = async () => {
  showWork();
  if (work.busy || !work.ready) return;
  work.busy = true;
  while (waitingFiles.length) {
    const { file, path, name } = waitingFiles[0];
    showWork(path);
    const row = await source.predict(file, path, name);
    waitingFiles.shift();
    work.done += 1;
    addCase(row);
  }
  Object.assign(work, { busy: false, done: 0, total: 0 });
  showWork();
};
const cancelQueue = () => {
  const dropped = waitingFiles.length - (work.busy ? 1 : 0);
  waitingFiles.length = work.busy ? 1 : 0;
  work.total -= dropped;
  announce(t("cancelled", { count: dropped }));
  showWork();
};
const showWork = (path = "") => {
  const { done, total, busy, ready } = work;
  find("work").hidden = !total;
  find("work-words").textContent = !ready ? t("starting") : t("working", { at: Math.min(done + 1, total), count: total, name: path });
  find("work-meter").max = Math.max(1, total);
  find("work-meter").value = done;
  find("left-out").hidden = !work.leftOut;
  find("left-out").textContent = t("leftOut", { count: work.leftOut });
  find("clear").disabled = busy;
};
const clearAll = async () => {
  if (!window.confirm(t("clearAsk", { count: cases.length }))) return;
  for (const name of [...decisions.keys()]) storage.forget(name);
  await source.clear();
  for (const row of cases) items.delete(row.case);
  cases.length = 0;
  decisions.clear();
  strokesOf.clear();
  byName.clear();
  maps.clear();
  view.current = null;
  closeSession();
  window.location.reload();
};
const listenToFiles = () => {
  const pick = (id, input) => find(id).addEventListener("click", () => find(input).click());
  pick("add-files", "files");
  pick("add-folder", "folder");
  const chosen = (id, inFolder) => find(id).addEventListener("change", () => {
    addFiles([...find(id).files].map((file) => ({ file, path: (file.webkitRelativePath || file.name).split("/").slice(inFolder ? 1 : 0).join("/"), inFolder })));
    find(id).value = "";
  });
  chosen("files", false);
  chosen("folder", true);
  find("cancel").addEventListener("click", cancelQueue);
  find("clear").addEventListener("click", clearAll);
  find("export-zip").addEventListener("click", exportArchive);
  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    addFiles(await droppedFiles(event.dataTransfer));
  });
};
// What the page tells while it starts, and why it does not.
const startIntake = async () => {
  listenToFiles();
  find("export-json").hidden = true;
  showWhetherEmpty();
  showAbout();
  try {
    work.provider = await source.begin();
    work.ready = true;
    document.body.dataset.ready = work.provider;
    showAbout();
    runQueue();
  } catch (error) {
    const reason = error instanceof Damaged ? "damaged" : { pixels: "alteredPixels", numbers: "otherNumbers" }[error.reason] || "notStarted";
    refuseToRun(t(reason, { reason: error.message }));
  }
};
const refuseToRun = (words) => {
  for (const id of ["add-files", "add-folder"]) find(id).disabled = true;
  find("refusal").textContent = words;
  find("refusal").hidden = false;
};
const showAbout = async () => {
  find("fingerprint").textContent = t("fingerprint", { hash: (await fingerprintOf(window.segconfData.blocks)).slice(0, 16) });
  find("provider").textContent = work.provider ? t(work.provider) : "";
};
