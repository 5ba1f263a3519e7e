// Decisions and corrected masks as files.
const decidedNames = () => cases.map((row) => row.case).filter((name) => decided(name).decision || decided(name).note);
const download = (name, type, parts) => {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
// A spreadsheet would compute some text: an apostrophe in front says that it is text, as `segconf.csv_tables` does.
const isFormula = (value) => /^[=@\t\r']/.test(value) || (/^[+-]/.test(value) && !Number.isFinite(Number(value)));
const csvCell = (value) => {
  const shown = isFormula(value) ? `'${value}` : value;
  return /[",\r\n]/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
};
const decisionsText = () => {
  const columns = ["case", "file", "decision", "note", "decided_at", "image_sha256", ...(hasLabels ? ["label"] : [])];
  const lines = decidedNames().map((name) => ({ ...byName.get(name), note: "", decision: "", ...decided(name), label: labelOf(name) })).map((row) => columns.map((column) => row[column] || ""));
  return [columns, ...lines].map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
};
const exportCsv = () => download(`decisions-${run.id}.csv`, "text/csv", [decisionsText()]);
const correctionsParts = async () => {
  const about = { format: "segconf corrections 1", run: run.id, model_sha256: run.model, notice: run.notice };
  const parts = [JSON.stringify(about).slice(0, -1), ',\n"decisions": ['];
  for (const [number, name] of decidedNames().entries()) {
    const { mask, ...entry } = await entryOf(name);
    parts.push(number ? ",\n" : "\n", JSON.stringify(mask ? { ...entry, mask } : entry));
  }
  parts.push("\n]}\n");
  return parts;
};
const exportJson = async () => {
  announce(t("exporting"));
  download(`corrections-${run.id}.json`, "application/json", await correctionsParts());
};
