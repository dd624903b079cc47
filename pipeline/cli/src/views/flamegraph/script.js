
(function () {
"use strict";
var NS = "http://www.w3.org/2000/svg", MARGIN = 10, PADDING = 3, WIDTH = 1200;
var script = document.currentScript;
var svg = script ? script.closest("svg") : document.documentElement;
var about = svg.querySelector(".about"), title = svg.querySelector(".title");
var baseline = Number(title.getAttribute("y"));
var views = Array.prototype.map.call(svg.querySelectorAll(".view"), function (group) {
  var cells = Array.prototype.map.call(group.children, function (cell) {
    var rect = cell.querySelector("rect"), said = cell.querySelector("title").textContent.split("\n");
    var left = Number(rect.getAttribute("x")) - MARGIN;
    return {
      cell: cell, rect: rect, text: cell.querySelector("text"), y: Number(rect.getAttribute("y")),
      left: left / (WIDTH - 2 * MARGIN), width: Number(rect.getAttribute("width")) / (WIDTH - 2 * MARGIN),
      name: said[0], line: rect.dataset.line || "", said: said.join(", ")
    };
  });
  return {
    group: group, cells: cells, name: group.dataset.name, amount: group.dataset.amount, whole: group.dataset.whole,
    zoomed: cells[0]
  };
});
var shown = views[0], character = 7.25, sought = "", buttons = [], selected = null;

// How wide a character of the font is that the browser has.
function measure() {
  var text = document.createElementNS(NS, "text");
  text.textContent = "nnnnnnnnnnnnnnnnnnnn";
  svg.appendChild(text);
  character = text.getComputedTextLength() / 20 || character;
  svg.removeChild(text);
}

// A name that has room, with its line if there is more, or with its middle cut out if it is too long: both ends
// distinguish functions.
function cut(name, line, width) {
  var room = Math.floor((width - 2 * PADDING) / character);
  var whole = line && cut(name + " " + line, "", width);
  if (whole === name + " " + line) return whole;
  var letters = Array.from(name);
  function columns(letter) { return letter < "\u1100" ? 1 : 2; }
  // How many letters fit, from a start in a direction.
  function fitting(from, step, most) {
    var count = 0, used = 0;
    while (count < letters.length && used + columns(letters[from + step * count]) <= most) {
      used += columns(letters[from + step * count]);
      count += 1;
    }
    return count;
  }
  if (fitting(0, 1, room) === letters.length) return name;
  if (room < 3) return "";
  var end = Math.floor((room - 1) / 2), tail = fitting(letters.length - 1, -1, end);
  return letters.slice(0, fitting(0, 1, room - 1 - end)).join("") + "\u2026" + letters.slice(letters.length - tail).join("");
}

function width() {
  return Math.max(320, svg.clientWidth || svg.getBoundingClientRect().width || WIDTH);
}

// Puts the cells of the view that is shown where the zoom has them: the zoomed one first, without its callers.
function place() {
  // Places are rounded to a hundredth of 1180 pixels, left edges and widths each by itself, so that edges that are one
  // may be 1.7e-5 of the whole apart. No cell is narrower than 1e-4.
  var room = width() - 2 * MARGIN, zoomed = shown.zoomed, tiny = 2e-5;
  var outermost = shown.cells[0].y, shift = zoomed.y - outermost, depth = Math.abs(shift), deepest = 0;
  shown.cells.forEach(function (one) {
    var inside = one.left >= zoomed.left - tiny && one.left + one.width <= zoomed.left + zoomed.width + tiny;
    var seen = inside && Math.abs(one.y - outermost) >= depth;
    one.cell.style.display = seen ? "" : "none";
    if (!seen) return;
    var y = one.y - shift, wide = Math.min(1, one.width / zoomed.width);
    var left = Math.max(0, (one.left - zoomed.left) / zoomed.width);
    deepest = Math.max(deepest, Math.abs(y - outermost));
    one.cell.setAttribute("class", (isFound(one) ? "found" : "") + (one === selected ? " selected" : ""));
    one.rect.setAttribute("x", MARGIN + left * room);
    one.rect.setAttribute("y", y);
    one.rect.setAttribute("width", wide * room);
    var label = cut(one.name, one.line, wide * room);
    if (!one.text && label) {
      one.text = document.createElementNS(NS, "text");
      one.cell.appendChild(one.text);
    }
    if (one.text) {
      one.text.textContent = label;
      one.text.setAttribute("x", MARGIN + left * room + PADDING);
      one.text.setAttribute("y", y + 12);
    }
  });
  // An icicle is as high as what is shown; a flame graph stands on its bottom.
  if (svg.getAttribute("class") === "icicle") svg.setAttribute("height", outermost + deepest + 30);
}

// The cells that the cell is in, from the outermost on.
function callers(of) {
  var tiny = 2e-5, outermost = shown.cells[0].y;
  return shown.cells.filter(function (one) {
    return Math.abs(one.y - outermost) < Math.abs(of.y - outermost) &&
      one.left <= of.left + tiny && one.left + one.width >= of.left + of.width - tiny;
  }).sort(function (a, b) { return Math.abs(a.y - outermost) - Math.abs(b.y - outermost); });
}

function isFound(one) {
  return sought !== "" && one.name.toLowerCase().indexOf(sought) >= 0;
}

// How much of the view is in functions that are found, each stretch once.
function foundPercent() {
  var covered = 0, end = 0;
  var found = shown.cells.filter(isFound).sort(function (a, b) { return a.left - b.left || b.width - a.width; });
  found.forEach(function (one) {
    var until = one.left + one.width;
    covered += Math.max(0, until - Math.max(one.left, end));
    end = Math.max(end, until);
  });
  return (covered * 100).toFixed(2) + " %";
}

function tell() {
  var path = callers(shown.zoomed).slice(1).map(function (one) { return one.name; });
  about.textContent = (path.length ? path.join(" > ") + " > " + shown.zoomed.said : shown.name + ": " + shown.whole) +
    (sought === "" ? "" : "; \u201c" + sought + "\u201d: " + foundPercent());
}

function zoom(to) {
  shown.zoomed = to;
  selected = to;
  place();
  tell();
}

// Moves the selection to a callee, a caller or a neighbour that is shown.
function move(key) {
  var at = selected && selected.cell.style.display !== "none" ? selected : shown.zoomed;
  var icicle = svg.getAttribute("class") === "icicle";
  var row = { ArrowDown: icicle ? 17 : -17, ArrowUp: icicle ? -17 : 17 }[key];
  var near = shown.cells.filter(function (one) {
    if (one.cell.style.display === "none") return false;
    if (row) return one.y === at.y + row && one.left < at.left + at.width && one.left + one.width > at.left;
    return one.y === at.y && (key === "ArrowLeft" ? one.left < at.left : one.left > at.left);
  }).sort(function (a, b) { return row ? b.width - a.width : (key === "ArrowLeft" ? b.left - a.left : a.left - b.left); });
  selected = near[0] || at;
  place();
  about.textContent = selected.said;
}

function show(view) {
  shown = view;
  views.forEach(function (one) { one.group.style.display = one === view ? "" : "none"; });
  buttons.forEach(function (one) { one.text.setAttribute("class", "button" + (one.view === view ? " chosen" : "")); });
  selected = null;
  place();
  tell();
}

function search() {
  var answer = window.prompt("Functions whose names have this in them:", sought);
  if (answer === null) return;
  sought = answer.trim().toLowerCase();
  place();
  tell();
}

function button(label, act, view) {
  var text = document.createElementNS(NS, "text");
  text.textContent = label;
  text.setAttribute("class", "button");
  text.setAttribute("role", "button");
  text.setAttribute("tabindex", "0");
  text.addEventListener("keydown", function (event) {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); act(); }
  });
  text.setAttribute("y", baseline + 21);
  text.addEventListener("click", act);
  svg.appendChild(text);
  buttons.push({ text: text, view: view, label: label });
}

// Buttons stand on the right, in a row, without amounts if there is too little room. The legend stands where they are not.
function placeButtons() {
  var right = 0;
  [false, true].some(function (isShort) {
    right = width() - MARGIN;
    buttons.slice().reverse().forEach(function (one) {
      one.text.textContent = isShort && one.view ? one.view.name : one.label;
      right -= one.text.getComputedTextLength();
      one.text.setAttribute("x", right);
      right -= 20;
    });
    return right + 20 >= MARGIN;
  });
  svg.querySelectorAll(".legend").forEach(function (text) {
    var isHidden = Number(text.getAttribute("x")) + text.getComputedTextLength() > right;
    text.style.display = text.previousElementSibling.style.display = isHidden ? "none" : "";
  });
}

views.forEach(function (view) {
  view.cells.forEach(function (one) {
    one.cell.addEventListener("mouseenter", function () { about.textContent = one.said; });
    one.cell.addEventListener("mouseleave", tell);
    one.cell.addEventListener("click", function () { zoom(one); });
  });
  if (views.length > 1) {
    button(view.name + " " + view.amount, function () { show(view); }, view);
  }
});
button("search", search);
button("show all", function () { zoom(shown.cells[0]); });
// Arrows select a cell, Enter zooms to it, Backspace goes to its caller and Escape to the whole.
window.addEventListener("keydown", function (event) {
  if (event.key === "Escape") zoom(shown.cells[0]);
  if (/^Arrow/.test(event.key)) { event.preventDefault(); move(event.key); }
  if (event.key === "Enter" && selected) zoom(selected);
  if (event.key === "Backspace") zoom(callers(shown.zoomed).pop() || shown.cells[0]);
  if (event.key === "f" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); search(); }
});
svg.removeAttribute("viewBox");
svg.setAttribute("width", "100%");
measure();
show(shown);
placeButtons();
window.addEventListener("resize", function () { place(); placeButtons(); });
// A flame graph stands on its outermost functions: that is where one begins to read.
function stand() { window.scrollTo(0, 1e7); }
if (svg.getAttribute("class") === "flame" && svg === document.documentElement) {
  stand();
  window.addEventListener("load", stand);
}
})();
