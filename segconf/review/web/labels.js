// Labels instead of masks: the classes with their probabilities, choosing one of them, and taking a decision back.
const CLASS_KEYS = 9;
const hasMany = run.class_names.length > CLASS_KEYS;
// Few classes keep their places, and with them their keys. Of many, the likeliest come first.
const orderedClasses = (row) => {
  const numbers = run.class_names.map((_, number) => number);
  const own = (number) => Number(run.class_names[number] === row.label); // first also where digits that are not shown decide
  return hasMany && !row.error ? numbers.sort((a, b) => own(b) - own(a) || row.probabilities[b] - row.probabilities[a] || a - b) : numbers;
};
const labelOf = (name) => decided(name).label || "";
const labelWords = (row) => {
  const own = labelOf(row.case);
  return own && own !== row.label ? t("changed", { label: own, before: row.label }) : `${row.label} ${percent(row.confidence)}`;
};
const classItem = (row, number, key) => {
  const label = run.class_names[number], chosen = labelOf(row.case) === label, item = element("li"), button = element("button"), bar = element("i"), words = element("span", "words");
  button.type = "button";
  button.dataset.number = number;
  button.setAttribute("aria-pressed", String(chosen));
  button.classList.toggle("predicted", label === row.label);
  bar.style.width = `${100 * row.probabilities[number]}%`;
  const name = element("span", "class-name", label), track = element("span", "bar");
  name.title = label;
  track.append(bar);
  words.append(name, track);
  const mark = element("span", "mark", chosen ? MARKS[decided(row.case).decision] : "");
  mark.setAttribute("aria-hidden", "true");
  button.append(element(key ? "kbd" : "span", "", key), words, element("span", "share", percent(row.probabilities[number])), mark);
  if (label === row.label) button.append(element("span", "unseen", t("isPredicted")));
  button.addEventListener("click", () => chooseClass(number));
  item.append(button);
  return item;
};
const showClasses = () => {
  const row = byName.get(view.current);
  if (!hasLabels || !row) return;
  const wanted = find("class-search").value.trim().toLowerCase();
  const keyed = orderedClasses(row).map((number, place) => [number, place < CLASS_KEYS ? String(place + 1) : ""]);
  const found = keyed.filter(([number]) => run.class_names[number].toLowerCase().includes(wanted));
  const shown = wanted ? found.map(([number], place) => [number, place ? "" : "\u21b5"]) : found; // Enter takes the first that is found
  find("classes").hidden = Boolean(row.error);
  find("class-list").replaceChildren(...(row.error ? [] : shown.map(([number, key]) => classItem(row, number, key))));
  find("no-class").hidden = shown.length > 0;
  document.querySelector("[data-decision=accept]").disabled = Boolean(row.error);
  find("take-back").disabled = !doneBefore.length;
  find("bring-back").disabled = !doneAfter.length;
};
const chooseClass = (number) => {
  const row = byName.get(view.current), label = run.class_names[number];
  if (!row || row.error || label === undefined) return;
  find("class-search").value = "";
  decide(label === row.label ? "accept" : "corrected", label);
};
const chooseByKey = (key) => { const row = byName.get(view.current); if (row) chooseClass(orderedClasses(row)[key - 1]); };
const searchClass = (event) => {
  const [first] = document.querySelectorAll("#class-list button");
  if (event.key !== "Enter" || !first) return;
  event.preventDefault();
  find("class-search").blur();
  chooseClass(Number(first.dataset.number));
};

// Decisions that were made in this visit, in their order, and those that were taken back.
const doneBefore = [], doneAfter = [];
const decisionNow = (name) => ({ name, decision: decided(name).decision || "", label: labelOf(name) });
const rememberDecision = (name) => { doneBefore.push(decisionNow(name)); doneAfter.length = 0; };
const backTo = (from, to, words) => {
  const last = from.pop();
  if (!last) return;
  const { name, ...values } = last;
  to.push(decisionNow(name));
  change(name, values);
  updateItem(name);
  refresh();
  show(name);
  announce(t(words));
};
const takeBack = () => backTo(doneBefore, doneAfter, "undone");
const bringBack = () => backTo(doneAfter, doneBefore, "redone");
