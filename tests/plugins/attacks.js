// What a page of another origin of the same site does, to which the browser therefore gives the cookies.
const [address, done] = arguments;
const json = { "Content-Type": "application/json", "X-Page-Token": "guessed" };
const send = (more) => fetch(address, { method: "POST", body: "{}", credentials: "include", ...more })
  .then((answer) => `${answer.type} ${answer.status}`, (error) => error.name);
const form = Object.assign(document.createElement("form"), { method: "post", action: address, enctype: "text/plain" });
form.append(Object.assign(document.createElement("input"), { name: '{"a":"', value: '"}' }));
const src = address.replace("deliver", "run");
const frame = Object.assign(document.createElement("iframe"), { name: "frame", src });
document.body.append(form, frame);
const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
(async () => {
  await loaded;
  let framed = "";
  try { framed = frame.contentDocument.body.textContent; } catch (error) { framed = error.name; }
  form.target = "frame";
  const posted = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  form.submit();
  await posted;
  const simple = await send({ mode: "no-cors" });
  const asked = [await send({ headers: json }), await send({ mode: "no-cors", headers: json })];
  const page = fetch(src, { credentials: "include" });
  const read = await page.then((answer) => answer.text(), (error) => error.name);
  navigator.sendBeacon(address, new Blob(["{}"], { type: "text/plain" }));
  done([framed, simple, ...asked, read]);
})();
