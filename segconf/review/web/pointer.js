// Mouse, pen and touch on the image: one finger or the left button uses the tool, two fingers, the middle or the right
// button move the image, the wheel zooms, and with Shift it changes the size of the brush.
const fingers = new Map();
let penSeen = false; // with a pen at hand, fingers only move the image
const PEN_ERASER = 32;
const onMask = (event) => {
  const box = find("stage").getBoundingClientRect(), scale = view.base * view.zoom;
  return [(event.clientX - box.left - view.x) / scale, (event.clientY - box.top - view.y) / (scale * view.tall)];
};
const usesTool = (event) => {
  if (edit.tool === "pan" || !session || fingers.size > 1) return false;
  if (event.pointerType === "touch") return !penSeen;
  return event.button === 0 || (event.buttons & PEN_ERASER) !== 0;
};
const pointerDown = (event) => {
  const stage = find("stage");
  if (event.pointerType === "pen") penSeen = true;
  stage.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.clientX, event.clientY]);
  if (fingers.size > 1) { cancelStroke(); return; }
  if (!usesTool(event)) { stage.classList.add("dragging"); return; }
  const [x, y] = onMask(event);
  edit.cursor = [x, y];
  if (edit.tool === "flip") flipAt(x, y);
  else beginStroke(x, y, event.buttons & PEN_ERASER ? 0 : paintValue());
  placeCursor();
};
const pointerMove = (event) => {
  if (edit.tool !== "pan" && event.isPrimary) { edit.cursor = onMask(event); placeCursor(); }
  const before = fingers.get(event.pointerId);
  if (!before) return;
  if (edit.stroke && fingers.size === 1) {
    const passed = event.getCoalescedEvents?.() || [];
    for (const one of passed.length ? passed : [event]) extendStroke(...onMask(one));
    return;
  }
  if (edit.tool === "flip" && usesTool(event) && !find("stage").classList.contains("dragging")) return;
  const now = [event.clientX, event.clientY], [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
  if (other) {
    const box = find("stage").getBoundingClientRect(), [ox, oy] = other;
    const grown = Math.hypot(now[0] - ox, now[1] - oy) / Math.max(1, Math.hypot(before[0] - ox, before[1] - oy));
    pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
    zoom(grown, (now[0] + ox) / 2 - box.left, (now[1] + oy) / 2 - box.top);
  } else pan(now[0] - before[0], now[1] - before[1]);
  fingers.set(event.pointerId, now);
};
const pointerUp = (event) => {
  fingers.delete(event.pointerId);
  find("stage").classList.remove("dragging");
  if (event.type === "pointercancel") cancelStroke();
  else if (edit.stroke) endStroke();
};
const listenToStage = () => {
  const stage = find("stage");
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const turned = event.deltaY || event.deltaX; // with Shift, browsers turn the wheel sideways
    if (event.shiftKey && edit.tool !== "pan") { resize(turned < 0 ? 1.15 : 1 / 1.15); return; }
    const box = stage.getBoundingClientRect();
    zoom(Math.exp(-turned / 400), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  stage.addEventListener("pointerdown", pointerDown);
  stage.addEventListener("pointermove", pointerMove);
  stage.addEventListener("pointerup", pointerUp);
  stage.addEventListener("pointercancel", pointerUp);
  stage.addEventListener("pointerleave", () => { if (!edit.stroke) { edit.cursor = null; placeCursor(); } });
  stage.addEventListener("contextmenu", (event) => event.preventDefault());
  stage.addEventListener("dblclick", () => { if (edit.tool === "pan") fit(); });
  new ResizeObserver(stageResized).observe(stage);
};
