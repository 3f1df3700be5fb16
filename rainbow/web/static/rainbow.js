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

document.querySelectorAll("[data-live]").forEach(follow);
document.querySelectorAll("[data-output]").forEach(output);
