// The page works without this script: it only moves the numbers with the slider.
for (const form of document.querySelectorAll("form[data-curve]")) {
  const curve = JSON.parse(form.dataset.curve);
  const slider = form.elements.threshold;
  const output = form.querySelector("output");
  const line = document.getElementById("curve-at");
  form.querySelector("button").hidden = true;
  form.addEventListener("submit", event => event.preventDefault());
  slider.addEventListener("input", () => {
    const at = Math.round(100 * slider.value);
    const [coverage, accuracy] = curve[at];
    const effect = accuracy === null
      ? "no question is answered."
      : `about ${Math.round(100 * coverage)}% of the questions are answered, and about ${Math.round(100 * accuracy)}% of these answers are correct.`;
    output.textContent = `${(at / 100).toFixed(2)} or more: ${effect}`;
    slider.setAttribute("aria-valuetext", output.textContent);
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
  });
}
