// Opens and folds groups, searches, zooms and pans. Positions are computed as in _items.py.
(() => {
  const svg = document.currentScript && document.currentScript.closest("svg");
  if (!svg) return;
  const scene = JSON.parse(svg.querySelector(".scene").textContent);
  const alone = document.documentElement === svg;
  const world = svg.querySelector(".world"), rootAt = svg.querySelector(".root");
  const text = (n) => String(Math.round(n * 10) / 10);
  const move = (element, x, y) => element.setAttribute("transform", `translate(${text(x)},${text(y)})`);
  const set = (element, values) => Object.entries(values).forEach(([k, v]) => element.setAttribute(k, v));

  const sum = (a, b) => a + b;
  const height = (item) => !item.level ? item.high
    : item.folded ? scene.head + (item.summary ? scene.line : 0) : scene.head + item.level.high;

  // What an item covers beside its middle: itself, and with its labels.
  function hull(item) {
    if (!item.level) return item.reach;
    const need = item.need[item.folded ? 1 : 0] / 2;
    if (item.folded) return [-need, need];
    let [low, high] = span(item.level);
    [low, high] = [low - item.center - scene.pad, high - item.center + scene.pad];
    if (Math.abs(low + high) < scene.skew) [low, high] = [Math.min(low, -high), Math.max(high, -low)];
    return [Math.min(-need, low), Math.max(need, high)];
  }

  function reach(item) {
    const [low, high] = hull(item);
    if (!item.level) return [low, high];
    const labels = item.labels.filter(([, , crowded]) => !(item.folded && crowded));
    return [low, Math.max(high, ...labels.map(([door, wide]) => port(item, door) + wide))];
  }

  // The distance of a port from the middle of its item.
  const port = (item, end) => !item.level ? end
    : item.folded ? item.doors[end][1] : item.level.items[item.doors[end][0]].at - item.center;

  function positions(level, [from, to, start, end, ...bends]) {
    const source = level.items[from], target = level.items[to];
    return [source.at + port(source, start), ...bends.map(level.map), target.at + port(target, end)];
  }

  function span(level) {
    let low = Infinity, high = -Infinity;
    const add = (a, b) => { low = Math.min(low, a); high = Math.max(high, b); };
    level.items.forEach((item) => { const [a, b] = reach(item); add(item.at + a, item.at + b); });
    level.lines.forEach((line) => { const xs = positions(level, line); add(Math.min(...xs) - 4, Math.max(...xs) + 4); });
    return low > high ? [0, 0] : [low, high];
  }

  // Move items aside where a card is wider than the layout expects. Everything keeps its order.
  function arrange(level) {
    const cards = level.items.filter((item) => item.level);
    cards.forEach((card) => { arrange(card.level); card.center = card.level.map(card.middle); });
    const wider = cards.map((card) => [card, reach(card)])
      .filter(([card, [low, high]]) => card.reach[0] - low > 0.5 || high - card.reach[1] > 0.5);
    level.map = wider.length ? stretched(level, new Map(wider)) : (x) => x;
    level.items.forEach((item) => { item.at = level.map(item.x); });
  }

  // A rising function of positions: between the ends and the middle of a wider card, there is room for it.
  function stretched(level, wider) {
    const ends = (item) => [item.x + item.reach[0], item.x, item.x + item.reach[1]];
    const from = [...new Set(level.items.flatMap(ends))].sort((a, b) => a - b);
    const index = new Map(from.map((x, i) => [x, i])), needs = from.map(() => []);
    wider.forEach(([low, high], card) => {
      const [left, middle, right] = ends(card).map((x) => index.get(x));
      needs[middle].push([left, -low]);
      needs[right].push([middle, high]);
    });
    const to = [];
    from.forEach((x, i) => {
      const moved = i ? to[i - 1] + x - from[i - 1] : x;
      to.push(Math.max(moved, ...needs[i].map(([before, room]) => to[before] + room)));
    });
    return (x) => {
      const i = from.findIndex((one) => one >= x);
      if (i === 0) return x + to[0] - from[0];
      if (i === -1) return x + to[to.length - 1] - from[from.length - 1];
      return to[i - 1] + (to[i] - to[i - 1]) * (x - from[i - 1]) / (from[i] - from[i - 1]);
    };
  }

  function place(level) {
    level.heights = level.gaps.map(() => 0);
    for (const item of level.items) {
      if (item.level) place(item.level);
      level.heights[item.row] = Math.max(level.heights[item.row], height(item));
    }
    let y = 0;
    level.tops = level.gaps.map((gap, row) => { const top = y; y += level.heights[row] + gap; return top; });
    level.high = y;
    for (const item of level.items) item.y = level.tops[item.row] + (level.heights[item.row] - height(item)) / 2;
  }

  function route(level, line) {
    const source = level.items[line[0]], target = level.items[line[1]], xs = positions(level, line);
    const bottom = (row) => level.tops[row] + level.heights[row];
    let x = xs[0], row = source.row;
    let path = `M${text(x)},${text(source.y + height(source))}V${text(bottom(row))}`;
    for (const next of xs.slice(1)) {
      row += 1;
      const last = row === target.row, end = level.tops[row] - (last && !target.port ? scene.arrow : 0);
      const start = bottom(row - 1) + level.drops[row - 1], middle = text((start + end) / 2);
      if (Math.abs(next - x) < 0.5) path += `L${text(next)},${text(end)}`;
      else path += `V${text(start)}C${text(x)},${middle} ${text(next)},${middle} ${text(next)},${text(end)}`;
      path += `V${text(last ? target.y : bottom(row))}`;
      x = next;
    }
    return path;
  }

  function draw(level) {
    level.lines.forEach((line, index) => {
      const [path, tip] = level.paths[index], target = level.items[line[1]];
      path.setAttribute("d", route(level, line));
      if (tip) move(tip, target.at + port(target, line[3]), target.y);
    });
    level.items.forEach((item) => {
      if (item.element) move(item.element, item.at, item.y);
      if (item.level) drawCard(item);
    });
  }

  function drawCard(item) {
    const [low, high] = hull(item), size = { x: text(low), width: text(high - low), height: text(height(item)) };
    item.rects.forEach((rect) => set(rect, size));
    item.bar.firstElementChild.setAttribute("width", text(high - low));
    item.bar.lastElementChild.setAttribute("d", item.folded ? "M0,-4L6,0L0,4z" : "M-1,-3L7,-3L3,3z");
    move(item.bar.lastElementChild, high - low - 18, scene.head / 2);
    item.bar.setAttribute("aria-expanded", String(!item.folded));
    move(item.bar, low, 0);
    move(item.below, 0, height(item));
    item.text.setAttribute("x", text(low + 12));
    item.text.style.display = item.folded ? "inline" : "none";
    [...item.below.children].forEach((label, i) => {
      const [door, , crowded] = item.labels[i];
      label.setAttribute("x", text(port(item, door) + 5));
      label.style.display = item.folded && crowded ? "none" : "inline";
    });
    move(item.inside, -item.center, scene.head);
    item.inside.style.display = item.folded ? "none" : "inline";
    if (!item.folded) draw(item.level);
  }

  // Connect the numbers with their elements.
  const cards = [];
  function connect(level, element, parent) {
    const [lines, items] = [".lines", ".items"].map((name) => element.querySelector(`:scope > ${name}`));
    level.paths = [...lines.children].map((group) => [...group.children]);
    const elements = [...items.children];
    level.items.filter((item) => !item.port).forEach((item, index) => {
      Object.assign(item, { element: elements[index], parent });
      if (item.level) connectCard(item);
    });
  }

  function connectCard(item) {
    const part = (name) => item.element.querySelector(`:scope > ${name}`);
    Object.assign(item, { rects: [part(".back"), part(".frame")], bar: part(".bar"), below: part(".below"),
      text: part(".summary"), inside: part(".level") });
    [...item.below.children].forEach((label) => label.removeAttribute("display"));
    item.text.removeAttribute("display");
    item.inside.removeAttribute("display");
    item.bar.append(document.createElementNS(svg.namespaceURI, "path"));
    set(item.bar, { tabindex: 0, role: "button" });
    const toggle = () => { item.folded = !item.folded; update(item); };
    item.bar.addEventListener("click", () => moved || toggle());
    item.bar.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
    cards.push(item);
    connect(item.level, item.inside, item);
  }

  // The view: what of the world is visible.
  const view = { x: 0, y: 0, scale: 1 };
  let size = [0, 0], moved = false;
  const look = () => world.setAttribute("transform", `translate(${text(view.x)},${text(view.y)}) scale(${view.scale})`);
  const where = (item) => { let y = 0; for (; item; item = item.parent) y += item.y + (item.parent ? scene.head : 0); return y; };

  function layOut() {
    arrange(scene.root);
    place(scene.root);
    const [low, high] = span(scene.root), wide = Math.max(high - low, scene.legend) + 2 * scene.margin;
    move(rootAt, (wide - high - low) / 2, scene.top);
    size = [wide, scene.top + scene.root.high + scene.margin];
    draw(scene.root);
    if (!alone) set(svg, { width: Math.round(size[0]), height: Math.round(size[1]),
      viewBox: `0 0 ${Math.round(size[0])} ${Math.round(size[1])}` });
    const page = svg.querySelector(".page");
    set(page, alone ? { width: "100%", height: "100%", rx: 0 } : { width: size[0], height: size[1] });
  }

  function update(kept) {
    const before = kept ? where(kept) : 0, left = kept ? across(kept) : 0;
    layOut();
    if (alone && kept) {
      view.y += (before - where(kept)) * view.scale;
      view.x += (left - across(kept)) * view.scale;
    }
    look();
  }

  function across(item) {
    const [low, high] = span(scene.root);
    let x = (Math.max(high - low, scene.legend) + 2 * scene.margin - high - low) / 2;
    for (; item; item = item.parent) x += item.at - (item.parent ? item.parent.center : 0);
    return x;
  }

  function fit() {
    const room = alone ? innerWidth : size[0];
    view.scale = Math.min(1, room / size[0]);
    view.x = Math.max(0, (room - size[0] * view.scale) / 2);
    view.y = alone ? 30 : 0;
    look();
  }

  function point(event) {
    const matrix = svg.getScreenCTM().inverse();
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
  }

  function zoom(factor, at) {
    const scale = Math.min(8, Math.max(0.02, view.scale * factor)), by = scale / view.scale;
    view.x = at.x - (at.x - view.x) * by;
    view.y = at.y - (at.y - view.y) * by;
    view.scale = scale;
    look();
  }

  const middle = () => ({ x: (alone ? innerWidth : size[0]) / 2, y: (alone ? innerHeight : size[1]) / 2 });

  svg.addEventListener("wheel", (event) => {
    if (!alone && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) return zoom(Math.exp(-event.deltaY / 300), point(event));
    view.x -= event.deltaX;
    view.y -= event.deltaY;
    look();
  }, { passive: false });

  let grip = null;
  svg.addEventListener("pointerdown", (event) => {
    moved = false;
    grip = event.button || event.target.closest("foreignObject") ? null : point(event);
  });
  svg.addEventListener("pointermove", (event) => {
    if (!grip || !event.buttons) return;
    const now = point(event);
    if (!moved && Math.hypot(now.x - grip.x, now.y - grip.y) > 3) moved = true;
    if (!moved) return;
    view.x += now.x - grip.x;
    view.y += now.y - grip.y;
    grip = now;
    look();
  });
  svg.addEventListener("pointerup", () => { grip = null; });

  // Search.
  let hits = [], hit = -1;
  const lastIndex = () => {
    const all = [];
    const visit = (level) => level.items.forEach((item) => {
      if (item.element) all.push(item);
      if (item.level) visit(item.level);
    });
    visit(scene.root);
    return all;
  };

  function words(item) {
    const own = item.level ? [item.element.querySelector(":scope > title"), item.bar]
      : [...item.element.children];
    return own.map((element) => element.textContent).join(" ").toLowerCase();
  }

  function search(query) {
    hits.forEach((item) => item.element.classList.remove("found"));
    hits = query ? lastIndex().filter((item) => words(item).includes(query.toLowerCase())) : [];
    hits.forEach((item) => item.element.classList.add("found"));
    hit = -1;
    return hits.length;
  }

  function show(item) {
    for (let card = item.parent; card; card = card.parent) card.folded = false;
    update();
    const at = { x: across(item), y: scene.top + where(item) };
    if (alone) {
      view.scale = Math.max(view.scale, 0.7);
      view.x = innerWidth / 2 - at.x * view.scale;
      view.y = innerHeight / 2 - at.y * view.scale;
      look();
    } else item.element.scrollIntoView({ block: "center", inline: "center" });
  }

  function next() {
    if (!hits.length) return;
    hit = (hit + 1) % hits.length;
    show(hits[hit]);
  }

  // The tools.
  const html = (name, values) => {
    const element = document.createElementNS("http://www.w3.org/1999/xhtml", name);
    return Object.assign(element, values);
  };

  function tools() {
    const found = html("span", { className: "count" });
    const input = html("input", { type: "search", placeholder: "search", title: "Find nodes, values, regions (/)" });
    input.addEventListener("input", () => { const n = search(input.value); found.textContent = input.value ? String(n) : ""; });
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") next(); event.stopPropagation(); });
    const all = (folded) => { cards.forEach((card) => { card.folded = folded; }); update(); fit(); };
    const buttons = [["\u2212", "Smaller (-)", () => zoom(0.8, middle())], ["+", "Larger (+)", () => zoom(1.25, middle())],
      ["fit", "The whole width (0)", fit], ["open", "Open all groups", () => all(false)], ["fold", "Fold all groups", () => all(true)]]
      .map(([textContent, title, onclick]) => html("button", { textContent, title, onclick, type: "button" }));
    const bar = html("div", { className: "tools" });
    bar.append(found, input, ...buttons);
    const holder = document.createElementNS(svg.namespaceURI, "foreignObject");
    set(holder, { width: 350, height: 40 });
    holder.append(bar);
    svg.append(holder);
    document.addEventListener("keydown", (event) => keys(event, input));
    return holder;
  }

  function keys(event, input) {
    if (!alone || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0],
      PageDown: [0, -innerHeight * 0.9], PageUp: [0, innerHeight * 0.9] }[event.key];
    const action = { "+": () => zoom(1.25, middle()), "-": () => zoom(0.8, middle()), 0: fit, "/": () => input.focus() }[event.key];
    if (!step && !action) return;
    event.preventDefault();
    if (action) return action();
    view.x += step[0];
    view.y += step[1];
    look();
  }

  connect(scene.root, rootAt, null);
  svg.setAttribute("role", "group");
  svg.classList.add("live");
  layOut();
  const holder = tools();
  function resize() {
    if (alone) set(svg, { width: innerWidth, height: innerHeight, viewBox: `0 0 ${innerWidth} ${innerHeight}`, style: "" });
    set(holder, { x: (alone ? innerWidth : size[0]) - 358, y: 6 });
    fit();
  }
  addEventListener("resize", () => alone && resize());
  resize();
})();
