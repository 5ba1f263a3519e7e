// Keys, buttons, and the start.
const ACTIONS = {
  ArrowRight: () => step(1), ArrowDown: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => step(-1),
  a: () => decide("accept"), e: () => decide("edit"), r: () => decide("reject"),
  n: () => find("note").focus(), "/": () => find("search").focus(),
  " ": () => { view.layer = !view.layer; layers(); },
  c: () => { view.contour = !view.contour; layers(); },
  h: () => { view.heat = !view.heat; draw(); layers(); },
  g: () => { view.promise = !view.promise; layers(); },
  "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: fit,
  v: () => { if (edit.tool !== "pan") chooseTool("pan"); },
  d: () => chooseTool("brush"), x: () => chooseTool("eraser"), f: () => chooseTool("fill"), u: () => chooseTool("flip"),
  o: () => toLine("outer"), i: () => toLine("inner"), z: undo, y: redo,
  "[": () => resize(1 / 1.15), "]": () => resize(1.15), ",": () => resize(1 / 1.15), ".": () => resize(1.15),
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const PAN_STEP = 60;
const MASK_KEYS = " chgvdxfuoi[],.";
const keyDown = (event) => {
  const { target, key } = event, letter = key.length === 1 ? key.toLowerCase() : key;
  if (key === "Escape") {
    if (edit.stroke) cancelStroke();
    else if (target !== document.body) target.blur();
    else if (edit.tool !== "pan") chooseTool("pan");
    return;
  }
  if (target.matches("textarea, select, input:not([type=range])")) return;
  if (target.matches("input[type=range]") && key.startsWith("Arrow")) return;
  if (target.matches("button, summary") && (key === " " || key === "Enter")) return;
  const action = actionOf(event, letter);
  if (!action) return;
  event.preventDefault();
  action();
};
const actionOf = (event, letter) => {
  if (event.altKey) return null;
  if (event.ctrlKey || event.metaKey) return { z: event.shiftKey ? redo : undo, y: redo }[letter];
  if (ARROWS[letter] && event.target === find("stage") && edit.tool !== "pan") return () => moveCursor(...ARROWS[letter], event.shiftKey);
  if (ARROWS[letter] && event.shiftKey) return () => pan(-PAN_STEP * ARROWS[letter][0], -PAN_STEP * ARROWS[letter][1]);
  if (letter === "Enter") return hasLabels ? ACTIONS.a : edit.tool === "pan" ? null : useCursor;
  if (letter === "z" && event.shiftKey) return redo;
  if (/^[1-9]$/.test(letter)) return () => (hasLabels ? chooseByKey : chooseLabel)(Number(letter));
  if (hasLabels && letter === "c" && hasMany) return () => find("class-search").focus();
  if (hasLabels && MASK_KEYS.includes(letter)) return null;
  return ACTIONS[letter];
};
const listenToKeys = () => {
  document.addEventListener("keydown", keyDown);
  // A button that was clicked gives the focus back, so that Space means the overlay again.
  document.addEventListener("click", (event) => { const button = event.target.closest("button"); if (button && event.detail) button.blur(); });
};
const CLICKS = {
  layer: ACTIONS[" "], contour: ACTIONS.c, heat: ACTIONS.h, promise: ACTIONS.g, "zoom-in": ACTIONS["+"], "zoom-out": ACTIONS["-"], fit,
  previous: ACTIONS.ArrowLeft, next: ACTIONS.ArrowRight, grow: ACTIONS.o, shrink: ACTIONS.i, undo, redo, "take-back": takeBack, "bring-back": bringBack, "export-csv": exportCsv, "export-json": exportJson,
  "take-theirs": () => takeTheirs(find("conflict").dataset.case), "keep-mine": () => keepMine(find("conflict").dataset.case),
};
const listen = () => {
  for (const [id, act] of Object.entries(CLICKS)) find(id).addEventListener("click", act);
  for (const tool of TOOLS) find(`tool-${tool}`).addEventListener("click", () => { if (tool !== "pan" || edit.tool !== "pan") chooseTool(tool); });
  for (const button of document.querySelectorAll("[data-decision]")) button.addEventListener("click", () => decide(button.dataset.decision));
  find("threshold").addEventListener("input", draw);
  find("opacity").addEventListener("input", layers);
  find("brush-size").addEventListener("input", () => { edit.size = Number(find("brush-size").value); showTools(); });
  find("search").addEventListener("input", refresh);
  find("class-search").addEventListener("input", showClasses);
  find("class-search").addEventListener("keydown", searchClass);
  find("image").addEventListener("error", () => { if (hasLabels) say(t("missingImage")); });
  find("language").addEventListener("change", () => { chooseLanguage(find("language").value); showTexts(); });
  find("order").addEventListener("change", () => cases.forEach(nameItem));
  for (const id of ["order", "filter"]) find(id).addEventListener("change", () => { refresh(); if (!view.shown.includes(view.current) && view.shown.length) show(view.shown[0]); });
  find("note").addEventListener("input", () => change(view.current, { note: find("note").value }));
  if (tabs) tabs.onmessage = ({ data: name }) => followTab(name);
  listenToStage();
  listenToKeys();
};
const showTexts = () => {
  translate();
  announce("");
  for (const id of ["keysList", "keysDraw", "keysLabels"]) {
    const words = t(id).split("|");
    find(id).replaceChildren(...[...document.querySelectorAll(`#${id}-keys span`)].flatMap((keys, i) => [i ? " \u00b7 " : "", keys.cloneNode(true), ` ${words[i]}`]));
  }
  for (const button of document.querySelectorAll("#class-buttons button")) button.setAttribute("aria-label", t("class", { number: button.dataset.value }));
  find("edit-words").textContent = t(hasLabels ? "unsure" : "edit");
  find("notice").textContent = t("notice", { notice: run.notice }) + (run.model_name ? ` ${t("model", { name: run.model_name })}` : "");
  cases.forEach(nameItem);
  cases.forEach((row) => updateItem(row.case));
  fillFilter();
  refresh();
  showCase();
  draw();
};
const buildKind = () => {
  document.body.classList.add(hasLabels ? "labels" : "masks");
  for (const option of document.querySelectorAll(`option.for-${hasLabels ? "masks" : "labels"}`)) option.remove();
  find("class-search-field").hidden = !hasMany;
  find("class-title").hidden = hasMany;
  find("class-list").classList.toggle("many", hasMany);
  if (!hasLabels) return;
  find("search").dataset.placeholder = "searchLabels";
  find("edit-icon").textContent = MARKS.edit;
};
const build = () => {
  buildKind();
  const slider = find("threshold");
  slider.min = 0;
  slider.max = run.steps.length - 1;
  slider.value = run.shaded;
  document.querySelector(".ramp").style.background = `linear-gradient(90deg, ${run.legend.map((colour) => `rgb(${colour})`).join(",")})`;
  for (const code of Object.keys(TEXTS)) find("language").append(Object.assign(element("option", "", TEXTS[code].language), { value: code, lang: code }));
  find("language").value = language;
  find("promise").hidden = !run.contours.length;
  for (let label = 1; run.classes > 2 && label < Math.min(10, run.classes); label += 1) {
    const button = Object.assign(element("button", "", String(label)), { type: "button" });
    button.dataset.value = label;
    button.style.borderBottomColor = `rgb(${INK[label]})`;
    button.addEventListener("click", () => chooseLabel(label));
    find("class-buttons").append(button);
  }
  cases.forEach(makeItem);
  find("order").value = run.order;
};
const start = async () => {
  for (const row of await source.load()) { cases.push(row); byName.set(row.case, row); }
  build();
  decisions = await storage.load();
  if (served) {
    try { await startFromServer(); } catch { find("saved").textContent = t("notSaved", { reason: t("serverGone") }); }
  }
  showTexts();
  listen();
  if (view.shown.length) show(view.shown[0]);
  else say(t(source.empty));
};
const started = start();
