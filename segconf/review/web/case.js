// The case that is shown, its numbers, and the decision about it.
const flagItem = (flag) => (flag.startsWith("note: ") ? element("li", "aside", flagWords(flag.slice(6))) : element("li", "", t("refer", { flag: flagWords(flag) })));
const show = (name) => {
  const row = byName.get(name);
  if (!row) return;
  cancelStroke();
  if (items.has(view.current)) {
    const before = items.get(view.current).firstChild;
    before.removeAttribute("aria-current");
    before.tabIndex = -1;
  }
  view.current = name;
  const button = items.get(name).firstChild;
  button.setAttribute("aria-current", "true");
  button.tabIndex = 0;
  items.get(name).scrollIntoView({ block: "nearest", inline: "nearest" });
  if (session?.name !== name) closeSession();
  edit.cursor = null;
  find("sheet").hidden = Boolean(row.error);
  if (row.error) find("image").removeAttribute("src");
  else find("image").src = source.image(row);
  find("image").classList.toggle("crisp", Boolean(row.small));
  find("class-list").scrollTop = 0;
  find("share").textContent = "";
  showCase();
  fit();
  loadMap(name);
  const at = view.shown.indexOf(name), after = byName.get(view.shown[at + 1]);
  if (at >= 0 && after && !after.error) ahead(after);
};
const ahead = (row) => { if (hasLabels) new Image().src = source.image(row); else mapOf(row.case).catch(() => {}); };
const showCase = () => {
  const row = byName.get(view.current);
  if (!row) return;
  find("name").textContent = row.case;
  find("size").textContent = row.error ? "" : t("pixels", row) + (row.slices > 1 ? t("slice", { slice: row.slice + 1, slices: row.slices }) : "");
  [...find("sides").children].forEach((side, index) => { side.textContent = (row.marks || "")[index] || ""; }); // left, right, top, bottom
  find("flags").replaceChildren(...(row.flags.length ? row.flags.map(flagItem) : [element("li", "calm", t("calm"))]));
  say(row.error ? t("notPredicted", { reason: row.error }) : "");
  showNumbers();
  showDecision();
  showTools();
  markPosition();
  layers();
};
const loadMap = async (name) => {
  if (hasLabels || byName.get(name).error) return;
  try { await mapOf(name); } catch { if (name === view.current) say(t("missingMap")); return; }
  if (name !== view.current) return;
  draw();
  showTools();
  if (edit.tool !== "pan" || isCorrected(name)) { await openSession(name); showNumbers(); }
};
const showNumbers = () => {
  const row = byName.get(view.current);
  const facts = row.error ? [] : hasLabels ? [[t("prediction"), row.label], [t("confidenceOf"), percent(row.confidence)]] : [
    [t("expectedDice"), number(row.expected_dice, 2)],
    [t("borderConfidence"), percent(row.border_confidence)],
    [t("meanConfidence"), percent(row.mean_confidence)],
    [t("least"), percent(row.confidence_p05)],
    [t(run.measured ? "areaWrong" : "areaBelow", { rate: rate(run.steps[run.shaded]) }), percent(row.shaded_fraction)],
    [t("foreground"), percent(row.foreground_fraction)],
  ];
  if (session?.name === view.current && session.position) {
    const change = session.area - session.predictedArea;
    const pixels = t("changeOf", { pixels: signed(change) });
    facts.push([t("change"), session.predictedArea ? inPercent(signed((100 * change) / session.predictedArea, 1)) : pixels, pixels]);
  }
  const cells = ([term, value, hint = ""]) => [element("dt", "", term), Object.assign(element("dd", "", value), { title: hint })];
  find("numbers").replaceChildren(...facts.flatMap(cells));
};
const showDecision = () => {
  const { decision, note } = decided(view.current);
  // A corrected mask is accepted as it is now.
  const pressed = decision === "corrected" ? "accept" : decision;
  for (const button of document.querySelectorAll("[data-decision]")) button.setAttribute("aria-pressed", String(button.dataset.decision === pressed));
  find("accept-words").textContent = t(decision === "corrected" ? "corrected" : "accept");
  showClasses();
  if (document.activeElement !== find("note")) find("note").value = note || "";
};
const step = (by) => {
  const at = view.shown.indexOf(view.current), next = view.shown[at < 0 ? 0 : at + by];
  if (next) show(next);
};
// A label is decided with its class: the predicted one, or the one that was chosen.
const decide = (pressed, chosen) => {
  const name = view.current, at = view.shown.indexOf(name), row = byName.get(name), before = decided(name);
  if (!name || (hasLabels && row.error && pressed === "accept")) return;
  const decision = pressed === "accept" && chosen === undefined && isCorrected(name) ? "corrected" : pressed;
  const label = chosen ?? { accept: row.label, corrected: before.label }[decision] ?? "";
  const undone = before.decision === decision && (chosen === undefined ? decision !== "corrected" : before.label === chosen);
  if (hasLabels) {
    rememberDecision(name);
    announce(`${name}: ${undone ? t("undecided") : label || t(DECISION_WORDS[decision])}`);
  }
  change(name, { decision: undone ? "" : decision, ...(hasLabels && { label: undone ? "" : label }) });
  updateItem(name);
  refresh();
  showDecision();
  if (undone) return;
  const next = view.shown[view.shown[at] === name ? at + 1 : at];
  if (next) show(next);
};

// Two tabs, one folder: the reader chooses.
const takeTheirs = async (name) => {
  storage.forget(name);
  decisions.delete(name);
  strokesOf.delete(name);
  unsaved.delete(name);
  await startFromServer();
  showUnsaved({ kind: "" });
  closeSession();
  cases.forEach((row) => updateItem(row.case));
  refresh();
  show(name);
};
const keepMine = (name) => server.save(name, true);
