// Live parts of pages: server-sent events with HTML that the server rendered, and the output of a job as text.
"use strict";

function follow(element) {
  const source = new EventSource(element.dataset.live);
  source.addEventListener("html", (event) => {
    const typing = element.contains(document.activeElement);
    if (!typing) element.innerHTML = event.data;
  });
  const state = document.querySelector("[data-live-state]");
  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("error", () => say("The connection is lost; it is tried again."));
  source.addEventListener("problem", (event) => { source.close(); say(event.data); });
  source.addEventListener("end", () => source.close());
}

function output(element) {
  const source = new EventSource(element.dataset.output);
  let first = true;
  function add(name, event) {
    if (first) element.textContent = "";
    first = false;
    const atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 4;
    const part = document.createElement("span");
    part.className = name;
    part.textContent = JSON.parse(event.data).text;
    element.append(part);
    if (atEnd) element.scrollTop = element.scrollHeight;
  }
  source.addEventListener("stdout", (event) => add("stdout", event));
  source.addEventListener("stderr", (event) => add("stderr", event));
  for (const last of ["end", "problem"]) {
    source.addEventListener(last, (event) => {
      source.close();
      if (first && !element.textContent) element.textContent = event.data || "The job wrote nothing.";
    });
  }
  // A connection that is made again would send everything from the beginning.
  source.addEventListener("error", () => source.close());
}

// A search that takes longer than a moment: rows as they are found, and how far was looked. Only its begin and its end
// are told to screen readers.
function search(element) {
  const source = new EventSource(element.dataset.search);
  const state = element.querySelector("[data-search-state]");
  const rows = element.querySelector("tbody");
  let none = !rows.querySelector("a");
  const ended = (text) => { source.close(); state.textContent = text; };
  state.textContent = "Looking further.";
  source.addEventListener("rows", (event) => {
    if (none) rows.textContent = "";
    none = false;
    rows.insertAdjacentHTML("beforeend", event.data);
  });
  source.addEventListener("looked", (event) => { element.querySelector("nav").innerHTML = event.data; });
  source.addEventListener("problem", (event) => ended(event.data));
  source.addEventListener("end", () => {
    if (none) rows.querySelector("td").textContent = "No jobs.";
    ended(none ? "Nothing was found." : "Found.");
  });
  // A connection that is made again would bring what is there already: the link goes on.
  source.addEventListener("error", () => ended("The connection is lost: go on with the link."));
}

document.querySelectorAll("[data-search]").forEach(search);
document.querySelectorAll("[data-live]").forEach(follow);
document.querySelectorAll("[data-output]").forEach(output);
