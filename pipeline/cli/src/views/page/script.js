
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const { nodes, functions, rows, views, difference } = data;
const ROW = 20, NARROWEST = 1, LISTED = 200, CALLS = 15, STRIPS = 200, OWN = 0;
const count = nodes.parent.length;
const shown = {
  view: 0, thread: "", span: "", from: 0, to: data.slices, raw: data.native, zoom: 0, sought: "", selected: 0, chosen: -1
};
const find = id => document.getElementById(id);

function make(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, act, name) {
  const made = make("button", name, text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

// Numbers for people.
function amount(value) {
  const unit = views[shown.view].unit, size = Math.abs(value);
  if (size === 0) return "0";
  if (unit === "share") return (value / 1e7).toFixed(2) + " %";
  const per = difference && difference.per_second ? " per s" : "";
  if (unit === "ns") {
    if (size >= 1e9 && !per) return (value / 1e9).toFixed(2) + " s";
    return size >= 1e5 ? (value / 1e6).toFixed(1) + " ms" + per : (value / 1e3).toPrecision(2) + " µs" + per;
  }
  if (unit === "bytes") {
    const step = Math.min(4, Math.floor(Math.log2(Math.max(1, size)) / 10));
    return (value / 2 ** (10 * step)).toFixed(step ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][step] + per;
  }
  return Math.round(value).toLocaleString("en") + " " + (size === 1 ? unit.replace(/s$/, "") : unit) + per;
}
const signed = value => (value > 0 ? "+" : "") + amount(value);
const percent = value => (total.wide[0] ? value / total.wide[0] * 100 : 0).toFixed(1) + " %";
const isOwn = of => functions.origin[of] === OWN;
const label = node => node === 0 ? views[shown.view].name : functions.name[nodes.function[node]];

// The weight of each stack by itself, and with what it calls: after, before (of a difference), and as wide as it is drawn.
const empty = () => ({ wide: new Float64Array(count), before: new Float64Array(count), after: new Float64Array(count) });
const self = empty(), total = empty();

function isThread(thread) {
  const number = Number(shown.thread.slice(1));
  return shown.thread === "" || (shown.thread[0] === "t" ? thread : data.threads[thread][0]) === number;
}

// Whether a span is chosen: `s` and its number, or `r` and the number of any span of a request of that name.
function isSpan(span) {
  const number = Number(shown.span.slice(1));
  return shown.span === "" || (shown.span[0] === "s" ? span === number : data.spans[span][1] === data.spans[number][1]);
}

function sum() {
  for (const part of ["wide", "before", "after"]) self[part].fill(0);
  const stacks = shown.raw ? rows.raw : rows.own, spans = data.spans.map((_, span) => isSpan(span));
  const threads = data.threads.map((_, thread) => isThread(thread));
  for (let row = 0; row < stacks.length; row++) {
    if (rows.view[row] !== shown.view || !threads[rows.thread[row]] || spans[rows.span[row]] === false) continue;
    if (rows.slice[row] < shown.from || rows.slice[row] >= shown.to) continue;
    self.after[stacks[row]] += rows.weight[row];
    if (difference) self.before[stacks[row]] += rows.before[row];
  }
  for (let node = 0; node < count; node++) self.wide[node] = Math.max(self.after[node], self.before[node]);
  for (const part of ["wide", "before", "after"]) {
    const sums = total[part];
    sums.set(self[part]);
    for (let node = count - 1; node > 0; node--) sums[nodes.parent[node]] += sums[node];
  }
}

// The callees of each stack, one list after the other.
const first = new Uint32Array(count + 2), callees = new Uint32Array(count);
for (let node = 1; node < count; node++) first[nodes.parent[node] + 2]++;
for (let node = 1; node < first.length; node++) first[node] += first[node - 1];
for (let node = 1; node < count; node++) callees[first[nodes.parent[node] + 1]++] = node;
const called = node => callees.subarray(first[node], first[node + 1]);

// Visits the stacks that have a weight, callers first.
function visit(enter, leave) {
  const open = [0];
  while (open.length) {
    const node = open.pop();
    if (node < 0) {
      leave(~node);
      continue;
    }
    enter(node);
    open.push(~node);
    for (const child of called(node)) if (total.wide[child] > 0) open.push(child);
  }
}

// What each function has: its own time, if it `holds` that of the libraries it calls with these, and all under it.
function costs(holds) {
  const found = new Map(), active = new Map(), inside = [];
  const cost = of => {
    if (!found.has(of)) found.set(of, { of: of, here: 0, before: 0, total: 0 });
    return found.get(of);
  };
  visit(node => {
    const of = nodes.function[node];
    if (node > 0) {
      active.set(of, (active.get(of) || 0) + 1);
      if (active.get(of) === 1) cost(of).total += total.after[node];
      inside.push(isOwn(of) ? of : inside.length ? inside[inside.length - 1] : -1);
    }
    if (node === 0 || self.wide[node] === 0) return;
    const owner = holds && inside[inside.length - 1] >= 0 ? inside[inside.length - 1] : of;
    for (const one of new Set([owner, of])) {
      cost(one).here += self.after[node];
      cost(one).before += self.before[node];
    }
  }, node => {
    if (node === 0) return;
    active.set(nodes.function[node], active.get(nodes.function[node]) - 1);
    inside.pop();
  });
  const size = one => difference ? Math.abs(one.here - one.before) : one.here;
  return Array.from(found.values()).sort((a, b) =>
    isOwn(b.of) - isOwn(a.of) || size(b) - size(a) || b.total - a.total || a.of - b.of);
}

// Who calls a function directly, and what it calls, each stack counted once.
function calls(of) {
  const callers = new Map(), callees = new Map(), active = new Map();
  const edges = node => {
    const own = nodes.function[node], parent = nodes.parent[node], caller = parent > 0 ? nodes.function[parent] : -1;
    return node === 0 ? [] : [[callers, caller, own === of && caller !== of], [callees, own, caller === of && own !== of]];
  };
  visit(node => edges(node).forEach(([list, other, holds]) => {
    if (!holds) return;
    const key = other + (list === callers ? "<" : ">");
    active.set(key, (active.get(key) || 0) + 1);
    if (active.get(key) === 1) list.set(other, (list.get(other) || 0) + total.after[node]);
  }), node => edges(node).forEach(([list, other, holds]) => {
    const key = other + (list === callers ? "<" : ">");
    if (holds) active.set(key, active.get(key) - 1);
  }));
  return [callers, callees].map(list => Array.from(list).sort((a, b) => b[1] - a[1]));
}

// The first thing that a reader wants to know.
function answer(list) {
  const what = views[shown.view].name, hot = list.find(one => isOwn(one.of)) || list[0];
  const line = find("answer"), path = find("path");
  line.replaceChildren();
  path.textContent = "";
  if (!hot) {
    line.textContent = "Nothing of what is chosen was sampled.";
    return;
  }
  const name = make("b", "", functions.name[hot.of]), place = functions.place[hot.of];
  const where = place ? " (" + place + ")" : "";
  if (difference) {
    const grew = hot.here - hot.before;
    line.append("Changed most: ", name, where + " " + signed(grew));
    path.textContent = "Whole: " + amount(total.before[0]) + " before, " + amount(total.after[0]) + " after" +
      ", compared by " + difference.by + ": " + difference.why;
    return;
  }
  const of = views[shown.view].is_thread_time ? "the time " + what : what;
  const most = what === "waiting" ? "Waited most: " : views[shown.view].is_thread_time ? "Hottest: " : "Most: ";
  line.append(isOwn(hot.of) ? most : "No own code. Most: ", name, where + ": " + percent(hot.here) + " of " + of + ", " +
    amount(hot.here));
  let best = -1;
  for (let node = 1; node < count; node++) {
    if (nodes.function[node] === hot.of && (best < 0 || total.wide[node] > total.wide[best])) best = node;
  }
  path.textContent = best < 0 ? "" : "called as " + pathTo(best).map(label).join(" › ");
}

function pathTo(node) {
  const path = [];
  for (; node > 0; node = nodes.parent[node]) path.push(node);
  return path.reverse();
}

function classOf(node) {
  if (node === 0) return "other";
  const of = nodes.function[node];
  if (difference) {
    const grew = total.after[node] - total.before[node], part = Math.abs(grew) / total.wide[node];
    return part < 0.02 ? "other" : (grew > 0 ? "slower" : "faster") + Math.min(2, Math.floor(part * 10));
  }
  return colourOf(of);
}

function colourOf(of) {
  const origin = data.origins[functions.origin[of]];
  if (!origin) return "other";
  let hash = 7;
  for (const letter of functions.name[of]) hash = (hash * 31 + letter.codePointAt(0)) % 65521;
  return origin.split(" ")[0] + hash % 3;
}

// The flame graph: a list of cells for each depth. Only rows that are seen are in the document.
let levels = [], narrow = 0;
function layout() {
  levels = [];
  narrow = 0;
  const whole = total.wide[shown.zoom], room = find("graph").clientWidth || 1000, open = [[shown.zoom, 0, 0]];
  while (whole > 0 && open.length) {
    const [node, left, depth] = open.pop();
    (levels[depth] = levels[depth] || []).push({ node: node, left: left, width: total.wide[node] / whole });
    let from = left;
    for (const child of Array.from(called(node)).sort((a, b) => total.wide[b] - total.wide[a])) {
      const width = total.wide[child] / whole;
      if (width * room < NARROWEST) narrow += width;
      else open.push([child, from, depth + 1]);
      from += width;
    }
  }
}

function isFound(of) {
  return shown.sought !== "" && (functions.name[of] + "\n" + functions.place[of]).toLowerCase().includes(shown.sought);
}

const rowOf = depth => data.is_flame ? levels.length - 1 - depth : depth;
function draw() {
  const graph = find("graph"), cells = [], start = Math.floor(graph.scrollTop / ROW);
  find("cells").style.height = levels.length * ROW + "px";
  const end = start + Math.ceil(graph.clientHeight / ROW) + 1, isSeen = row => row >= start && row < end;
  levels.forEach((level, depth) => isSeen(rowOf(depth)) && level.forEach(one => {
    const of = nodes.function[one.node], wide = one.width * graph.clientWidth;
    const cell = make("div", "cell" + (wide < 10 ? " thin" : "") + (one.node > 0 && isFound(of) ? " found" : "") +
      (one.node === shown.selected ? " chosen" : ""), wide < 20 ? "" : label(one.node));
    if (one.node > 0 && isOwn(of) && wide > 160 && functions.place[of]) cell.append(make("i", "", functions.place[of]));
    cell.style.background = "var(--" + classOf(one.node) + ")";
    cell.style.left = one.left * 100 + "%";
    cell.style.width = one.width * 100 + "%";
    cell.style.top = rowOf(depth) * ROW + "px";
    cell.dataset.node = one.node;
    cells.push(cell);
  }));
  find("cells").replaceChildren(...cells);
}

// Says everything about a stack in words.
function tell(node) {
  const of = nodes.function[node], parts = [];
  if (node > 0) parts.push(functions.place[of], functions.whole[of], functions.file[of]);
  if (difference) parts.push(amount(total.before[node]) + " before, " + amount(total.after[node]) + " after, " +
    signed(total.after[node] - total.before[node]));
  else parts.push(amount(total.after[node]) + ", " + percent(total.after[node]), "itself " + amount(self.after[node]));
  if (node === shown.zoom && narrow >= 0.001) parts.push((narrow * 100).toFixed(1) + " % is in functions too narrow to be drawn here");
  find("about").textContent = label(node) + ": " + parts.filter(part => part).join("; ") + sought();
}

// How much time is in stacks with a function that was searched for.
function sought() {
  if (shown.sought === "") return "";
  let found = 0, inside = 0;
  visit(node => {
    if (node > 0 && isFound(nodes.function[node]) && inside++ === 0) found += total.wide[node];
  }, node => {
    if (node > 0 && isFound(nodes.function[node])) inside--;
  });
  return " — “" + find("search").value.trim() + "” is in " + percent(found);
}

function zoom(node) {
  shown.zoom = shown.selected = node;
  layout();
  draw();
  find("graph").scrollTop = data.is_flame ? levels.length * ROW : 0;
  draw();
  tell(node);
  const crumbs = find("crumbs");
  crumbs.replaceChildren();
  for (const one of node > 0 ? [0, ...pathTo(node)] : []) {
    if (one > 0) crumbs.append(" › ");
    crumbs.append(one === node ? label(one) : button(label(one), () => zoom(one), "link"));
  }
}

// Selects a caller, a callee or a neighbour of the selected cell.
function move(key) {
  if (data.is_flame) key = { ArrowUp: "ArrowDown", ArrowDown: "ArrowUp" }[key] || key;
  const depth = levels.findIndex(level => level.some(one => one.node === shown.selected));
  if (depth < 0) return;
  const at = levels[depth].find(one => one.node === shown.selected);
  const level = (levels[depth + { ArrowUp: -1, ArrowDown: 1 }[key]] || (/Up|Down/.test(key) ? [] : levels[depth]));
  const near = level.filter(one => key === "ArrowUp" ? one.node === nodes.parent[at.node] : key === "ArrowDown" ?
    nodes.parent[one.node] === at.node : key === "ArrowLeft" ? one.left < at.left : one.left > at.left);
  near.sort((a, b) => key === "ArrowLeft" ? b.left - a.left : a.left - b.left);
  if (!near.length) return;
  shown.selected = near[0].node;
  const top = rowOf(levels.indexOf(level)) * ROW, graph = find("graph");
  if (top < graph.scrollTop || top + ROW > graph.scrollTop + graph.clientHeight) graph.scrollTop = top - ROW;
  draw();
  tell(shown.selected);
}

function table() {
  const list = costs(!shown.raw);
  const matching = shown.sought === "" ? list : list.filter(one => isFound(one.of));
  const titles = difference ? ["change", "before", "after"] : ["self", "", "total", ""];
  const head = make("tr");
  titles.forEach(title => head.append(make("th", "", title)));
  head.append(make("th", "name", "function"), make("th", "place", "line"));
  find("head").replaceChildren(head);
  find("body").replaceChildren(...matching.slice(0, LISTED).map(one => {
    const row = make("tr", (isOwn(one.of) ? "own" : "") + (one.of === shown.chosen ? " chosen" : ""));
    const grew = one.here - one.before;
    const cells = difference ? [signed(grew), amount(one.before), amount(one.here)] :
      [amount(one.here), percent(one.here), amount(one.total), percent(one.total)];
    cells.forEach((text, at) => row.append(make("td", difference && at === 0 && grew ? grew > 0 ? "up" : "down" : "", text)));
    const name = make("td", "name");
    name.append(button(functions.name[one.of], () => choose(one.of), "link"), make("span", "line", " " + functions.place[one.of]));
    name.title = [functions.whole[one.of], functions.file[one.of]].filter(text => text).join("\n");
    row.append(name, make("td", "place", functions.place[one.of]));
    return row;
  }));
  find("more").textContent = matching.length > LISTED ? "and " + (matching.length - LISTED) + " more: search for them" :
    matching.length ? "Own code first, in bold" + (shown.raw ? "" : "; its self time has the libraries that it calls") : "No function has this in its name.";
}

// Callers and callees of a function, to walk along.
function choose(of) {
  shown.chosen = of;
  const panel = find("calls"), [callers, callees] = calls(of), parts = [];
  const list = (title, all) => {
    const body = make("table");
    for (const [other, weight] of all.slice(0, CALLS)) {
      const row = make("tr", other >= 0 && isOwn(other) ? "own" : ""), name = make("td", "name");
      name.append(other < 0 ? "(nothing: outermost)" : button(functions.name[other], () => choose(other), "link"));
      row.append(make("td", "", amount(weight)), make("td", "", percent(weight)), name);
      body.append(row);
    }
    parts.push(make("h2", "", title + (all.length > CALLS ? " (" + CALLS + " of " + all.length + ")" : "")),
      all.length ? body : make("p", "", "none"));
  };
  list("Called by", callers);
  const name = make("p", "name");
  name.append(make("b", "", functions.name[of]), " " + functions.place[of] + " ", button("close", () => {
    shown.chosen = -1;
    panel.replaceChildren();
    table();
  }));
  parts.push(name);
  list("Calls", callees);
  panel.replaceChildren(...parts);
  table();
}

// The time line: what each thread did in each slice, in the order of time. Of other values how much there was.
let segments = [];
function strips() {
  const times = views.map(one => one.unit === "ns" && one.is_thread_time), held = new Map();
  const isTime = times[shown.view], spans = data.spans.map((_, span) => isSpan(span));
  for (let row = 0; row < rows.view.length; row++) {
    const view = rows.view[row], slice = rows.slice[row];
    if ((isTime ? !times[view] : view !== shown.view) || spans[rows.span[row]] === false) continue;
    const thread = rows.thread[row];
    if (!held.has(thread)) held.set(thread, { sum: 0, rows: [], slices: new Float64Array(data.slices) });
    const of = held.get(thread);
    of.rows.push(row);
    of.slices[slice] += rows.weight[row];
    of.sum += view === shown.view ? rows.weight[row] : 0;
  }
  const all = Array.from(held).sort((a, b) => b[1].sum - a[1].sum || a[0] - b[0]).slice(0, STRIPS);
  const most = Math.max(1, ...all.map(([, of]) => of.slices.reduce((a, b) => Math.max(a, b), 0)));
  const count = shown.to - shown.from;
  segments = [];
  find("when").hidden = data.slices < 2;
  find("strips").replaceChildren(...all.map(([thread, of]) => {
    const strip = make("div", "strip"), track = make("div", "track"), own = [], paths = new Map();
    const name = button(threadName(thread), () => filter({ thread: shown.thread === "t" + thread ? "" : "t" + thread }));
    name.title = name.textContent;
    name.setAttribute("aria-pressed", shown.thread === "t" + thread);
    of.rows.sort((a, b) => rows.slice[a] - rows.slice[b] || rows.at[a] - rows.at[b]);
    let end = 0;
    for (const row of of.rows) {
      const slice = rows.slice[row], whole = isTime ? Math.max(of.slices[slice], data.slice_ns) : of.slices[slice];
      const width = rows.weight[row] / whole, isWait = isTime && views[rows.view[row]].name === "waiting";
      // Where a processor served several threads that are one here, their times stand behind each other.
      const start = Math.max(end, slice, Math.min(slice + rows.at[row] / 1000, slice + 1 - width));
      end = start + width;
      if (slice < shown.from || slice >= shown.to) continue;
      const inner = isWait ? -1 : innermost(shown.raw ? rows.raw[row] : rows.own[row]);
      const colour = isWait ? "waits" : inner < 0 ? "other" : colourOf(inner), high = isTime ? 1 : of.slices[slice] / most;
      own.push({ start: start, end: end, row: row, of: inner });
      const least = Math.max(width, count / 4000);
      paths.set(colour, (paths.get(colour) || "") + "M" + (start - shown.from).toFixed(3) + " 1v" + -Math.max(high, 0.04).toFixed(3) +
        "h" + least.toFixed(3) + "V1z");
    }
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 " + count + " 1");
    svg.setAttribute("preserveAspectRatio", "none");
    for (const [colour, text] of paths) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", text);
      path.style.fill = "var(--" + colour + ")";
      svg.append(path);
    }
    track.append(svg);
    track.dataset.at = segments.length;
    segments.push(own);
    strip.append(name, track, make("span", "", amount(of.sum)));
    return strip;
  }));
  find("from").value = seconds(shown.from);
  find("to").value = seconds(shown.to);
  resolution();
}

const seconds = slice => Number((slice * data.slice_ns / 1e9).toPrecision(4));

// What the time line shows, or what a thread did at a moment of it.
function resolution(track, moment) {
  const start = data.start_ms ? "0 is " + new Date(data.start_ms).toISOString().replace("T", " ") : "";
  const isTime = views[shown.view].unit === "ns" && views[shown.view].is_thread_time;
  let text = [start, "in steps of " + seconds(1) + " s", isTime ? "coloured by the function that ran, grey waited" : ""];
  const at = track && segments[track.dataset.at].find(one => moment >= one.start && moment < one.end);
  if (at) {
    const node = shown.raw ? rows.raw[at.row] : rows.own[at.row], leaf = nodes.function[node];
    text = [seconds(moment) + " s", at.of < 0 || at.of === leaf ? "" : functions.name[at.of] + " " + functions.place[at.of],
      functions.name[leaf] + " " + functions.place[leaf], data.spans.length > 1 ? data.spans[rows.span[at.row]][0] : ""];
  }
  find("resolution").textContent = "– " + text.filter(part => part.trim()).join("; ");
}

// The innermost own function of a stack, or else its innermost function.
const owner = new Int32Array(count).fill(-1);
for (let node = 1; node < count; node++) owner[node] = isOwn(nodes.function[node]) ? nodes.function[node] : owner[nodes.parent[node]];
const innermost = node => owner[node] >= 0 || node === 0 ? owner[node] : nodes.function[node];

function threadName(thread) {
  const [process, name] = data.threads[thread], of = data.processes.length > 1 ? data.processes[process] : "";
  return [name, of].filter(part => part).join(", ") || data.processes[process] || "all threads";
}

// A drag chooses a time, a click without one all of it.
let dragged = null;
function slice(event, track) {
  const place = track.getBoundingClientRect();
  const moment = shown.from + (event.clientX - place.left) / place.width * (shown.to - shown.from);
  return Math.max(shown.from, Math.min(shown.to, moment));
}
find("strips").addEventListener("pointerdown", event => {
  const track = event.target.closest(".track");
  if (!track) return;
  dragged = { track: track, from: slice(event, track), x: event.clientX };
});
find("strips").addEventListener("pointermove", event => {
  const track = event.target.closest(".track");
  resolution(track, track ? slice(event, track) : 0);
});
window.addEventListener("pointerup", event => {
  if (!dragged) return;
  const [from, to] = [dragged.from, slice(event, dragged.track)].sort((a, b) => a - b);
  const isClick = Math.abs(event.clientX - dragged.x) < 4;
  dragged = null;
  filter(isClick ? { from: 0, to: data.slices } : { from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 1) });
});
window.addEventListener("pointercancel", () => { dragged = null; });

// Changes what is shown, and shows it.
function filter(change) {
  Object.assign(shown, change);
  sum();
  answer(costs(true));
  Array.from(find("views").children).forEach((one, at) => one.setAttribute("aria-pressed", at === shown.view));
  find("thread").value = shown.thread;
  find("span").value = shown.span;
  find("raw").checked = shown.raw;
  find("graph").className = shown.raw ? "raw" : "";
  strips();
  zoom(total.wide[shown.zoom] > 0 ? shown.zoom : 0);
  if (shown.chosen >= 0) choose(shown.chosen);
  else table();
}

function option(value, text) {
  const made = make("option", "", text);
  made.value = value;
  return made;
}

const title = data.title || "profbridge";
document.title = title + " - profbridge";
find("title").textContent = title;
find("raw-label").hidden = !data.has_raw;
find("hint").textContent = difference ? "each as wide as the larger of both, red became slower, blue faster; click to zoom" :
  "functions as wide as their time, below each what it calls; click to zoom";
for (const [name, colour] of difference ? [["slower", "slower2"], ["faster", "faster2"], ["unchanged", "other"]] :
  data.origins.map((name, at) => [name, name.split(" ")[0] + 1, at]).filter(([,, at]) => functions.origin.includes(at))) {
  const part = make("span", "", name);
  part.style.setProperty("--of", "var(--" + colour + ")");
  find("legend").append(part);
}
views.forEach((one, at) => {
  shown.view = at;
  const whole = rows.weight.reduce((sum, weight, row) => sum + (rows.view[row] === at ? weight : 0), 0);
  const text = amount(whole), named = text.endsWith(" " + one.name) ? text : one.name + " " + text;
  find("views").append(button(named, () => filter({ view: at, zoom: 0 })));
});
shown.view = 0;
find("views").hidden = views.length < 2;
find("thread").append(option("", "all threads"));
data.processes.forEach((process, at) => {
  const threads = data.threads.map((_, thread) => thread).filter(thread => data.threads[thread][0] === at);
  const group = make("optgroup");
  group.label = process || "process";
  if (data.processes.length > 1) group.append(option("p" + at, "all of " + (process || "it")));
  threads.forEach(thread => group.append(option("t" + thread, data.threads[thread][1] || "all threads")));
  find("thread").append(group);
});
find("threads").hidden = data.threads.length < 2;
find("span").append(option("", "all"));
const requests = new Map();
data.spans.forEach(([, request], at) => requests.set(request, [...requests.get(request) || [], at]));
for (const [request, spans] of requests) {
  const group = request ? make("optgroup") : find("span");
  if (request) {
    group.label = request;
    find("span").append(group);
    if (spans.length > 1) group.append(option("r" + spans[0], "all of " + request + " (" + spans.length + ")"));
  }
  group.append(...spans.map(at => option("s" + at, data.spans[at][0])));
}
find("spans").hidden = data.spans.length < 2;
find("notes").replaceChildren(...data.notes.map(note => make("p", "", note)));
find("thread").addEventListener("change", event => filter({ thread: event.target.value }));
find("span").addEventListener("change", event => filter({ span: event.target.value }));
find("raw").addEventListener("change", event => filter({ raw: event.target.checked, zoom: 0 }));
find("search").addEventListener("input", event => {
  shown.sought = event.target.value.trim().toLowerCase();
  draw();
  tell(shown.selected);
  table();
});
find("reset").addEventListener("click", () => {
  find("search").value = shown.sought = "";
  find("calls").replaceChildren();
  filter({ chosen: -1, thread: "", span: "", from: 0, to: data.slices, zoom: 0 });
});
for (const id of ["from", "to"]) find(id).addEventListener("change", () => {
  const [from, to] = ["from", "to"].map(one => Math.round(Number(find(one).value) * 1e9 / data.slice_ns));
  const start = Math.max(0, Math.min(data.slices - 1, from || 0));
  filter({ from: start, to: Math.max(start + 1, Math.min(data.slices, to || data.slices)) });
});
const nodeOf = event => event.target.closest(".cell") ? Number(event.target.closest(".cell").dataset.node) : null;
find("graph").addEventListener("mouseover", event => tell(nodeOf(event) ?? shown.selected));
find("graph").addEventListener("mouseleave", () => tell(shown.selected));
find("graph").addEventListener("click", event => {
  const node = nodeOf(event);
  if (node === null) return;
  zoom(node);
  if (node > 0) choose(nodes.function[node]);
});
find("graph").addEventListener("keydown", event => {
  if (/^Arrow/.test(event.key)) move(event.key);
  else if (event.key === "Enter") zoom(shown.selected);
  else if (event.key === "Backspace") zoom(nodes.parent[shown.zoom]);
  else if (event.key === "Escape") zoom(0);
  else return;
  event.preventDefault();
});
find("graph").addEventListener("scroll", draw);
window.addEventListener("resize", () => zoom(shown.zoom));
filter({});
})();
