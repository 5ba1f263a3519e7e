// Where cases come from: here, files beside the page. Whatever else predicts offers the same: `run`, what to say while there
// are no cases, the rows of those that there are, the addresses of the pictures of a case, and its map: { width, height, levels, mask, contours }.
//   width, height, levels: grid of the confidence map and its 256 levels, a Uint8Array
//   mask: { size: [height, width], runs } at native size; contours: [{ kind, class, alpha, runs }]
const openSource = (data) => {
  const waiting = new Map();
  const address = (folder, name, suffix) => `review/${folder}/${name.split("/").map(encodeURIComponent).join("/")}${suffix}`;
  // A page opened from a file may not read files, but it may run scripts: maps are scripts that call this.
  window.segconfMap = (name, content) => {
    const picture = new Image();
    picture.onload = () => {
      const { width, height } = picture;
      const canvas = document.createElement("canvas");
      canvas.width = width;
      canvas.height = height;
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.drawImage(picture, 0, 0);
      const pixels = context.getImageData(0, 0, width, height).data;
      const levels = new Uint8Array(width * height);
      for (let i = 0; i < levels.length; i += 1) levels[i] = pixels[4 * i];
      waiting.get(name)?.resolve({ width, height, levels, mask: content.mask, contours: content.contours });
      waiting.delete(name);
    };
    picture.src = `data:image/png;base64,${content.confidence}`;
  };
  const map = (row) => {
    if (waiting.has(row.case)) return waiting.get(row.case).promise;
    const request = {};
    request.promise = new Promise((resolve, reject) => { request.resolve = resolve; request.reject = reject; });
    waiting.set(row.case, request);
    const script = document.createElement("script");
    script.src = address("maps", row.case, ".js");
    script.onload = () => script.remove();
    script.onerror = () => { script.remove(); waiting.delete(row.case); request.reject(new Error("missing")); };
    document.head.append(script);
    return request.promise;
  };
  return {
    run: data.run,
    empty: "none",
    load: async () => data.cases,
    // A small image with a label is kept as it is, and is its own thumbnail.
    image: (row) => address("images", row.case, row.small ? ".png" : ".jpg"),
    thumbnail: (row) => (row.small ? address("images", row.case, ".png") : address("thumbnails", row.case, ".jpg")),
    map,
  };
};
