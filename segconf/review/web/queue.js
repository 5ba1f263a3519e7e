// The queue of cases at the left.
const MARKS = { accept: "\u2713", corrected: "\u25c6", edit: hasLabels ? "?" : "\u270e", reject: "\u2715" };
const DECISION_WORDS = { accept: "accepted", corrected: "corrected", edit: hasLabels ? "unsure" : "toEdit", reject: "rejected" };
// Beside the expected Dice an item tells what the queue is ordered by, or else how sure the border is.
const ORDER_FACTS = { patch_confidence: "spotOf", foreground_confidence: "foregroundOf", mean_confidence: "overallOf", shaded_fraction: "areaOf" };
const items = new Map();
const makeItem = (row) => {
  const item = element("li"), button = element("button");
  button.type = "button";
  button.tabIndex = -1;
  if (row.error) button.append(element("span", "blank", "!"));
  else {
    const picture = element("img");
    picture.loading = "lazy";
    picture.decoding = "async";
    picture.alt = "";
    picture.src = source.thumbnail(row);
    picture.classList.toggle("crisp", Boolean(row.small));
    button.append(picture);
  }
  const words = element("span"), name = element("span", "name", row.case), facts = element("span", "facts");
  name.title = row.case;
  facts.append(element("span", "dice"), element("span", "more"));
  words.append(name, facts);
  if (row.severity === "refer") words.append(element("span", "facts flagged"));
  const mark = element("span", "mark");
  mark.setAttribute("role", "img");
  button.append(words, mark);
  button.addEventListener("click", () => show(row.case));
  item.append(button);
  items.set(row.case, item);
};
const nameItem = (row) => {
  const item = items.get(row.case);
  if (row.error) item.querySelector(".dice").textContent = t("unreadable");
  else if (!hasLabels) { // the words about a label change with the decision
    item.querySelector(".dice").textContent = t("diceOf", { value: number(row.expected_dice, 2) });
    const order = find("order").value, known = Object.hasOwn(ORDER_FACTS, order);
    item.querySelector(".more").textContent = t(known ? ORDER_FACTS[order] : "borderOf", { value: percent(row[known ? order : "border_confidence"]) });
  }
  const flagged = item.querySelector(".flagged");
  if (flagged) {
    flagged.textContent = `\u2691 ${flagWords(row.flags[0])}`;
    flagged.title = flagWords(row.flags[0]);
  }
};
const updateItem = (name) => {
  const item = items.get(name), mark = item.querySelector(".mark"), { decision } = decided(name), row = byName.get(name);
  if (hasLabels && !row.error) item.querySelector(".dice").textContent = labelWords(row);
  mark.className = `mark ${decision || ""}`;
  mark.textContent = decision ? MARKS[decision] : "";
  item.classList.toggle("unsaved", unsaved.has(name));
  mark.setAttribute("aria-label", t(decision ? DECISION_WORDS[decision] : "undecided") + (unsaved.has(name) ? `, ${t("unsaved")}` : ""));
};
const worst = (row, column) => {
  if (row.error) return -2;
  const value = row[column];
  if (value === null) return -1; // nothing was found: look whether that is right
  return column === "shaded_fraction" ? -value : value;
};
const matches = (row) => {
  const wanted = find("filter").value, text = find("search").value.trim().toLowerCase();
  const names = hasLabels ? [row.case, row.label, labelOf(row.case)] : [row.case];
  if (text && !names.some((name) => name.toLowerCase().includes(text))) return false;
  const { decision } = decided(row.case);
  if (wanted === "all") return true;
  if (wanted === "refer") return row.severity === "refer";
  if (wanted === "undecided") return !decision;
  if (wanted.startsWith("is:")) return decision === wanted.slice(3);
  return row.flags.includes(wanted.slice(5));
};
// As `segconf triage` lists them: not predicted, out of distribution, referred for another reason, the others.
const urgency = (row) => (row.error ? 0 : row.flags[0] === run.ood_flag ? 1 : row.severity === "refer" ? 2 : 3);
const inOrder = (column) => (a, b) => {
  if (column === "case") return 0;
  if (column === "label") return (a.label > b.label) - (a.label < b.label) || worst(a, "confidence") - worst(b, "confidence");
  return (column === run.order && urgency(a) - urgency(b)) || worst(a, column) - worst(b, column);
};
// A decision moves nothing, or takes items away: with many images, only a new order is worth laying out all of them again.
const list = (names) => {
  const wanted = new Set(names), stay = view.shown.filter((name) => wanted.has(name));
  if (names.length && stay.length === names.length && stay.every((name, at) => name === names[at])) {
    for (const name of view.shown) if (!wanted.has(name)) items.get(name).remove();
  } else find("list").replaceChildren(...(names.length ? names.map((name) => items.get(name)) : [element("li", "nothing", t("noMatch"))]));
  view.shown = names;
};
const refresh = () => {
  const before = inOrder(find("order").value), rows = cases.filter(matches);
  rows.sort((a, b) => before(a, b) || (a.case < b.case ? -1 : 1));
  list(rows.map((row) => row.case));
  showProgress();
  markPosition();
};
const showProgress = () => {
  const done = cases.filter((row) => decided(row.case).decision).length;
  find("progress").textContent = t("progress", { done, count: cases.length, shown: view.shown.length });
  find("meter").style.width = `${(100 * done) / Math.max(1, cases.length)}%`;
};
const markPosition = () => {
  const at = view.shown.indexOf(view.current), count = view.shown.length;
  find("position").textContent = at < 0 ? t("shown", { count }) : t("position", { at: at + 1, count });
  find("previous").disabled = at === 0;
  find("next").disabled = at === count - 1;
};
const fillFilter = () => {
  const known = [["all", t("all")], ["refer", t("referred")], ["undecided", t("undecided")], ...Object.entries(DECISION_WORDS).map(([word, key]) => [`is:${word}`, t(key)])];
  const flags = [...new Set(cases.flatMap((row) => row.flags))].sort().map((flag) => [`flag:${flag}`, flagWords(flag)]);
  const chosen = find("filter").value || "all";
  find("filter").replaceChildren(...[...known, ...flags].map(([value, text]) => Object.assign(element("option", "", text), { value })));
  find("filter").value = chosen;
};
