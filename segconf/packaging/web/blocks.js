// What the page carries: blocks of compressed bytes, each with its SHA-256. Nothing runs before all of them are right.
const hexOf = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const digest = async (bytes) => hexOf(await crypto.subtle.digest("SHA-256", bytes));
const fromBase64 = (text) => {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
};
const unpacked = async (bytes) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
class Damaged extends Error {}
// The compressed bytes of a block; its text is taken out of the page, which holds it no longer.
const takeBlock = async (name, expected) => {
  const holder = document.getElementById(`block-${name}`);
  let bytes = new Uint8Array(0);
  try { bytes = fromBase64(holder.textContent.trim()); } catch { /* refused below */ }
  holder?.remove();
  if ((await digest(bytes)) !== expected) throw new Damaged(name);
  return bytes;
};
// SHA-256 over the hashes of the scripts and of all blocks: shown in the footer, and by `segconf package`.
const fingerprintOf = async (blocks) => {
  const scripts = [...document.querySelectorAll("script:not([type])")].map((script) => script.textContent);
  const hashes = await Promise.all(scripts.map((text) => digest(new TextEncoder().encode(text))));
  return digest(new TextEncoder().encode([...hashes, ...Object.values(blocks)].join("\n")));
};
// A worker as a function: it answers each task with a promise.
const openWorker = (code) => {
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" })), worker = new Worker(address), waiting = new Map();
  let number = 0;
  worker.onmessage = ({ data: { id, result, error, reason } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) resolve(result); else reject(Object.assign(new Error(error), { reason }));
  };
  worker.onerror = (event) => { event.preventDefault(); for (const { reject } of waiting.values()) reject(new Error(event.message || "worker")); waiting.clear(); };
  return {
    ask: (kind, task = {}, given = []) => new Promise((resolve, reject) => {
      number += 1;
      waiting.set(number, { resolve, reject });
      worker.postMessage({ id: number, kind, ...task }, given);
    }),
    end() { worker.terminate(); URL.revokeObjectURL(address); for (const { reject } of waiting.values()) reject(new Error("ended")); },
  };
};
