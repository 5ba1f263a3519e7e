// Numbers and flags of a case, as `results/summary.py` and `results/flags.py` define them.
const BORDER_FRACTION = 0.02, PATCHES = 8, PERCENTILE = 0.05, TOO_SMALL = 32, EMPTY_SCORE = -1, NOTE = "note: ";
const levelCounts = (levels) => { const counts = new Float64Array(FULL_SCALE + 1); for (let i = 0; i < levels.length; i += 1) counts[levels[i]] += 1; return counts; };
const percentileOf = (counts, fraction, pixels) => { let level = 0, reached = counts[0]; while (reached < fraction * pixels) reached += counts[++level]; return level / FULL_SCALE; };
const patchConfidence = ({ levels, height, width }) => {
  const edges = (side) => { const count = Math.min(PATCHES, side); return Array.from({ length: count + 1 }, (_, i) => Math.trunc((side * i) / count)); };
  const rows = edges(height), columns = edges(width);
  let least = Infinity;
  for (let j = 0; j + 1 < rows.length; j += 1) {
    for (let i = 0; i + 1 < columns.length; i += 1) {
      let total = 0;
      for (let y = rows[j]; y < rows[j + 1]; y += 1) for (let x = columns[i]; x < columns[i + 1]; x += 1) total += levels[y * width + x];
      least = Math.min(least, total / ((rows[j + 1] - rows[j]) * (columns[i + 1] - columns[i])));
    }
  }
  return least / FULL_SCALE;
};
// Mean confidence where a square around a pixel holds both foreground and background; columns keep running sums.
const borderConfidence = ({ mask, levels, height, width }) => {
  const radius = Math.max(1, roundEven(BORDER_FRACTION * Math.hypot(height, width)));
  const sums = new Int32Array(width), add = (y, by) => { for (let x = 0, at = y * width; x < width; x += 1, at += 1) if (mask[at]) sums[x] += by; };
  let total = 0, pixels = 0;
  for (let y = 0; y < Math.min(radius, height); y += 1) add(y, 1);
  for (let y = 0; y < height; y += 1) {
    if (y + radius < height) add(y + radius, 1);
    if (y > radius) add(y - radius - 1, -1);
    const rows = Math.min(height - 1, y + radius) - Math.max(0, y - radius) + 1;
    let found = 0;
    for (let x = 0; x < Math.min(radius, width); x += 1) found += sums[x];
    for (let x = 0; x < width; x += 1) {
      if (x + radius < width) found += sums[x + radius];
      if (x > radius) found -= sums[x - radius - 1];
      const area = rows * (Math.min(width - 1, x + radius) - Math.max(0, x - radius) + 1);
      if (found > 0 && found < area) { total += levels[y * width + x]; pixels += 1; }
    }
  }
  return pixels ? total / (pixels * FULL_SCALE) : null;
};
// Expected Dice as validation images reached it: see `calibration/dice_scale.py`.
const correctedDice = (expected, scale) => (scale && expected > 0 && expected < 1 ? 1 / (1 + Math.exp(-(scale.intercept + scale.slope * Math.log(expected / (1 - expected))))) : expected);
const summarize = (maps, { shaded, oodScore, diceScale }) => {
  const { mask, levels } = maps, pixels = mask.length, counts = levelCounts(levels);
  let found = 0, inside = 0, all = 0, low = 0;
  for (let i = 0; i < pixels; i += 1) if (mask[i]) { found += 1; inside += levels[i]; }
  for (let level = 0; level < counts.length; level += 1) { all += level * counts[level]; if (level < Math.ceil(shaded * FULL_SCALE)) low += counts[level]; }
  const mass = maps.foreground + found;
  return {
    foreground_fraction: found / pixels,
    mean_confidence: all / (pixels * FULL_SCALE),
    confidence_p05: percentileOf(counts, PERCENTILE, pixels),
    border_confidence: borderConfidence(maps),
    patch_confidence: patchConfidence(maps),
    foreground_confidence: found ? inside / (found * FULL_SCALE) : null,
    shaded_fraction: low / pixels,
    expected_dice: mass > 0 ? correctedDice((2 * maps.overlap) / mass, diceScale) : null,
    ood_score: oodScore,
  };
};
// At most one reason to refer a case, then notes.
const flagsOf = (row, { rule, notes, reasons, oodLimit, words }, remarks) => {
  const found = remarks.filter((remark) => !remark.startsWith(NOTE)), empty = row.foreground_fraction === 0;
  if (oodLimit !== null && row.ood_score > oodLimit) found.push(words.outOfDistribution);
  if (empty && (!rule || rule.threshold > EMPTY_SCORE)) found.push(words.empty);
  if (rule && !empty && (row[rule.score] ?? EMPTY_SCORE) < rule.threshold) found.push(reasons[rule.score]);
  const beyond = ({ column, limit, high }) => row[column] !== null && (high ? row[column] > limit : row[column] < limit);
  const further = [...found.slice(1), ...remarks.filter((remark) => remark.startsWith(NOTE)).map((remark) => remark.slice(NOTE.length))];
  if (empty) further.push(words.empty);
  further.push(...notes.filter(beyond).map(({ column }) => reasons[column]));
  return [...found.slice(0, 1), ...[...new Set(further)].filter((one) => one !== found[0]).map((one) => NOTE + one)];
};
const severityOf = (flags) => (flags.some((flag) => !flag.startsWith(NOTE)) ? "refer" : flags.length ? "note" : "");
