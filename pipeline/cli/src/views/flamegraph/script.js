
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
      name: said[0], said: said.join(", ")
    };
  });
  return {
    group: group, cells: cells, name: group.dataset.name, amount: group.dataset.amount, whole: group.dataset.whole,
    zoomed: cells[0]
  };
});
var shown = views[0], character = 7.25, sought = "", buttons = [];

// How wide a character of the font is that the browser has.
function measure() {
  var text = document.createElementNS(NS, "text");
  text.textContent = "nnnnnnnnnnnnnnnnnnnn";
  svg.appendChild(text);
  character = text.getComputedTextLength() / 20 || character;
  svg.removeChild(text);
}

// The start of a name that has room.
function cut(name, width) {
  var room = Math.floor((width - 2 * PADDING) / character);
  var letters = Array.from(name);
  var used = 0, most = 0;
  for (var i = 0; i < letters.length; i++) {
    used += letters[i] < "\u1100" ? 1 : 2;
    if (used <= room - 1) most = i + 1;
  }
  if (used <= room) return letters.join("");
  return most < 2 ? "" : letters.slice(0, most).join("") + "\u2026";
}

function width() {
  return Math.max(400, svg.clientWidth || svg.getBoundingClientRect().width || WIDTH);
}

// Puts the cells of the view that is shown where the zoom has them.
function place() {
  // Places are rounded to a hundredth of 1180 pixels, left edges and widths each by itself, so that edges that are one
  // may be 1.7e-5 of the whole apart. No cell is narrower than 1e-4.
  var room = width() - 2 * MARGIN, zoomed = shown.zoomed, tiny = 2e-5;
  var outermost = shown.cells[0].y, depth = Math.abs(zoomed.y - outermost);
  shown.cells.forEach(function (one) {
    var inside = one.left >= zoomed.left - tiny && one.left + one.width <= zoomed.left + zoomed.width + tiny;
    var outer = Math.abs(one.y - outermost) < depth &&
      one.left <= zoomed.left + tiny && one.left + one.width >= zoomed.left + zoomed.width - tiny;
    var seen = outer || (inside && Math.abs(one.y - outermost) >= depth);
    one.cell.style.display = seen ? "" : "none";
    if (!seen) return;
    one.cell.setAttribute("class", (outer ? "outer" : "") + (isFound(one) ? " found" : ""));
    var left = outer ? 0 : (one.left - zoomed.left) / zoomed.width;
    var wide = outer ? 1 : Math.min(1, one.width / zoomed.width);
    one.rect.setAttribute("x", MARGIN + left * room);
    one.rect.setAttribute("width", wide * room);
    var label = cut(one.name, wide * room);
    if (!one.text && label) {
      one.text = document.createElementNS(NS, "text");
      one.text.setAttribute("y", one.y + 12);
      one.cell.appendChild(one.text);
    }
    if (one.text) {
      one.text.textContent = label;
      one.text.setAttribute("x", MARGIN + left * room + PADDING);
    }
  });
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
  about.textContent = shown.name + ": " + shown.whole +
    (sought === "" ? "" : "; \u201c" + sought + "\u201d: " + foundPercent());
}

function show(view) {
  shown = view;
  views.forEach(function (one) { one.group.style.display = one === view ? "" : "none"; });
  buttons.forEach(function (one) { one.text.setAttribute("class", "button" + (one.view === view ? " chosen" : "")); });
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
  text.setAttribute("y", baseline + 21);
  text.addEventListener("click", act);
  svg.appendChild(text);
  buttons.push({ text: text, view: view });
}

// Buttons stand on the right, in a row.
function placeButtons() {
  var right = width() - MARGIN;
  buttons.slice().reverse().forEach(function (one) {
    right -= one.text.getComputedTextLength();
    one.text.setAttribute("x", right);
    right -= 20;
  });
}

views.forEach(function (view) {
  view.cells.forEach(function (one) {
    one.cell.addEventListener("mouseenter", function () { about.textContent = one.said; });
    one.cell.addEventListener("mouseleave", tell);
    one.cell.addEventListener("click", function () { view.zoomed = one; place(); });
  });
  if (views.length > 1) {
    button(view.name + " " + view.amount, function () { show(view); }, view);
  }
});
button("search", search);
button("whole", function () { shown.zoomed = shown.cells[0]; place(); });
window.addEventListener("keydown", function (event) {
  if (event.key === "Escape") { shown.zoomed = shown.cells[0]; place(); }
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
