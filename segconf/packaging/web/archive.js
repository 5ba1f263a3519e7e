// Everything as one zip file: masks, confidence maps, rows, decisions and corrections, for `segconf review --import`.
const ZIP_LIMIT = 0xffffffff;
const zipDate = (date) => [(date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1), ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate()];
const zipHeader = (fields) => {
  const bytes = new Uint8Array(fields.reduce((sum, [size]) => sum + size, 0)), view = new DataView(bytes.buffer);
  let at = 0;
  for (const [size, value] of fields) { if (size === 4) view.setUint32(at, value, true); else view.setUint16(at, value, true); at += size; }
  return bytes;
};
const openZip = () => {
  const parts = [], directory = [], [time, day] = zipDate(new Date());
  let offset = 0, count = 0;
  const push = (...some) => { for (const part of some) { parts.push(part); offset += part.length ?? part.size; } };
  return {
    // Stored as it is: pictures are compressed already.
    add(name, bytes) {
      const title = new TextEncoder().encode(name), start = offset;
      if (offset + bytes.length > ZIP_LIMIT) throw new RangeError("zip");
      const common = [[2, 20], [2, 0x0800], [2, 0], [2, time], [2, day], [4, checksum(bytes)], [4, bytes.length], [4, bytes.length], [2, title.length], [2, 0]];
      push(zipHeader([[4, 0x04034b50], ...common]), title, new Blob([bytes]));
      directory.push(zipHeader([[4, 0x02014b50], [2, 20], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, start]]), title);
      count += 1;
    },
    blob() {
      const start = offset;
      push(...directory);
      push(zipHeader([[4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, offset - start], [4, start], [2, 0]]));
      return new Blob(parts, { type: "application/zip" });
    },
  };
};
const archiveCase = async (zip, row) => {
  const text = (value) => new TextEncoder().encode(`${JSON.stringify(value, null, 1)}\n`);
  zip.add(`review/rows/${row.case}.json`, text(row));
  if (row.error) return;
  const { picture, thumbnail } = await source.pictures(row);
  const { mask, confidence, corrected } = await source.files(row, isCorrected(row.case) ? await maskOf(row.case) : null);
  zip.add(`masks/${row.case}.png`, mask);
  zip.add(`confidence/${row.case}.png`, confidence);
  if (corrected) zip.add(`corrected/${row.case}.png`, corrected);
  zip.add(`review/images/${row.case}.jpg`, new Uint8Array(await picture.arrayBuffer()));
  zip.add(`review/thumbnails/${row.case}.jpg`, new Uint8Array(await thumbnail.arrayBuffer()));
};
const exportArchive = async () => {
  const zip = openZip(), encode = (text) => new TextEncoder().encode(text);
  find("export-zip").disabled = true;
  try {
    zip.add("run.json", encode(`${JSON.stringify(window.segconfData.record, null, 1)}\n`));
    zip.add("decisions.csv", encode(decisionsText()));
    zip.add("corrections.json", encode((await correctionsParts()).join("")));
    for (const [number, row] of cases.entries()) {
      announce(t("archiving", { at: number + 1, count: cases.length }));
      await archiveCase(zip, row);
    }
    download(`segconf-${run.id}.zip`, "application/zip", [zip.blob()]);
    announce("");
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    announce(t("archiveTooLarge"));
  } finally { find("export-zip").disabled = false; }
};
