// Words of the page in the reader's language; texts.json has one block per language.
const TEXTS = window.segconfData.texts;
const LANGUAGE_KEY = "segconf-language";
const remembered = () => { try { return localStorage.getItem(LANGUAGE_KEY); } catch { return null; } };
const wished = [remembered(), ...(navigator.languages || [navigator.language])].map((code) => (code || "").split("-")[0]);
let language = wished.find((code) => Object.hasOwn(TEXTS, code)) || "en";
const t = (key, values = {}) => TEXTS[language][key].replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
const number = (value, digits, most = digits) => (value === null || value === undefined ? "\u2013" : value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: most }));
const inPercent = (text) => `${text}${language === "de" ? "\u00a0" : ""}%`;
const percent = (fraction) => (fraction === null || fraction === undefined ? "\u2013" : inPercent(number(100 * fraction, fraction >= 0.0995 || fraction === 0 ? 0 : 1)));
const signed = (value, digits = 0) => `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${number(Math.abs(value), digits)}`;
// Flags are written in English by the prediction; those that are known have a translation.
const flagWords = (flag) => (Object.hasOwn(TEXTS[language].flags, flag) ? TEXTS[language].flags[flag] : flag);
const translate = () => {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of document.querySelectorAll("[data-hint]")) element.title = t(element.dataset.hint);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t(element.dataset.label));
  for (const element of document.querySelectorAll("[data-placeholder]")) element.placeholder = t(element.dataset.placeholder);
};
const chooseLanguage = (code) => {
  language = code;
  try { localStorage.setItem(LANGUAGE_KEY, code); } catch { /* only this visit */ }
};
