// What a picture shows now: a JSON object. Evaluated in the page by test_browser.py.
(() => {
  const shown = (element) => element.getClientRects().length > 0;
  const all = (name) => [...document.querySelectorAll(name)].filter(shown);
  const rect = (element) => {
    const { left, top, right, bottom } = element.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const inside = (a, b) => a[0] >= b[0] - 1 && a[1] >= b[1] - 2 && a[2] <= b[2] + 1 && a[3] <= b[3] + 2;
  const apart = (a, b) => a[2] <= b[0] + 0.5 || b[2] <= a[0] + 0.5 || a[3] <= b[1] + 0.5 || b[3] <= a[1] + 0.5;
  const boxes = all(".box > rect, .port > rect").map(rect);
  const texts = all(".box > text:not(.type), .port > text");
  const bars = all(".bar > text").map((text) => [text, text.parentNode.querySelector("rect")]);
  const types = all(".type").map(rect);
  const pairs = (items, others) => items.flatMap((a, i) => others.filter((b, j) => (items !== others || j > i) && !apart(a, b)));
  const lines = all(".line").map((path) => {
    const length = path.getTotalLength(), tip = path.parentNode.querySelector(".tip");
    const [a, b] = [path.getPointAtLength(length - 2), path.getPointAtLength(length)];
    const head = tip ? tip.transform.baseVal.consolidate().matrix : null;
    return { sideways: tip ? Math.abs(b.x - a.x) : 0, down: b.y - a.y, off: head ? Math.hypot(head.e - b.x, head.f - b.y) : 0 };
  });
  return {
    boxes: boxes.length,
    overlapping: pairs(boxes, boxes).length,
    texts: texts.length,
    outside: [...texts.map((text) => [text, text.parentNode.querySelector("rect")]), ...bars]
      .filter(([text, box]) => !inside(rect(text), rect(box))).map(([text]) => text.textContent),
    hidden: pairs(types, boxes).length,
    lines: lines.length,
    crooked: lines.filter((line) => line.sideways > 0.5 || line.down <= 0 || line.off > 0.2).length,
    cards: all(".card").length,
    found: all(".found").length,
    paper: getComputedStyle(document.querySelector(".page")).fill,
    ink: getComputedStyle(document.querySelector(".head")).fill,
    tools: all(".tools").length,
    world: document.querySelector(".world").getAttribute("transform") || "",
  };
})()
