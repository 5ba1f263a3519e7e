// Runs in any browser: an old one is told so in a sentence.
(function () {
  var words = document.getElementById("guard"), missing = [];
  var needs = { WebAssembly: "WebAssembly", Worker: "Worker", OffscreenCanvas: "OffscreenCanvas", createImageBitmap: "createImageBitmap", indexedDB: "IndexedDB", DecompressionStream: "DecompressionStream", CompressionStream: "CompressionStream" };
  for (var name in needs) if (!(name in window)) missing.push(needs[name]);
  if (!window.crypto || !window.crypto.subtle) missing.push("crypto.subtle");
  if (![].findLastIndex) missing.push("findLastIndex");
  window.segconfOld = missing.length > 0;
  if (window.segconfOld) words.textContent = "This browser is too old for this page (it lacks " + missing.join(", ") + "). Use Chrome or Edge 111, Firefox 115, Safari 17, or a newer one.";
})();
