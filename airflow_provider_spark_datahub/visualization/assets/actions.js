"use strict";
(() => {
  const outcome = document.getElementById("outcome");
  const buttons = [...document.querySelectorAll("button[data-action]")];
  if (!outcome) return;
  const say = (text) => { outcome.textContent = text; };
  const remembered = `spark-datahub ${location.pathname}${location.search}`;
  say(sessionStorage.getItem(remembered) || "");
  sessionStorage.removeItem(remembered);
  const press = async (button) => {
    buttons.forEach((other) => { other.disabled = true; });
    say(button.dataset.doing);
    try {
      const answer = await fetch(button.dataset.action, {
        method: "POST",
        credentials: "same-origin",
        redirect: "error",
        headers: { "Content-Type": "application/json", "X-Page-Token": outcome.dataset.token },
        body: "{}",
      });
      const said = await answer.json().catch(() => ({}));
      const text = said.message || (typeof said.detail === "string" && said.detail) || `HTTP ${answer.status}`;
      say(text);
      if (answer.ok) {
        sessionStorage.setItem(remembered, text);
        location.reload();
        return;
      }
    } catch (error) {
      say(`Airflow's server cannot be reached: ${error.message}`);
    }
    buttons.forEach((other) => { other.disabled = false; });
  };
  buttons.forEach((button) => button.addEventListener("click", () => press(button)));
})();
