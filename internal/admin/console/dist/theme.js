// Sets the chosen theme before the first paint. The policy of the page allows no inline script.
try {
  const { theme } = JSON.parse(localStorage.getItem("holdfast.settings") ?? "{}");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {}

// A file may be missing while the server is being upgraded. The page is loaded again when the server answers.
addEventListener(
  "error",
  ({ target }) => {
    const begin = document.getElementById("begin");
    if (!begin || !(target instanceof HTMLScriptElement || target instanceof HTMLLinkElement)) return;
    begin.textContent = "A file of the page is missing. Trying again…";
    const again = () => {
      fetch(location.href, { cache: "no-store" }).then(
        (answer) => (answer.ok ? location.reload() : setTimeout(again, 3000)),
        () => setTimeout(again, 3000),
      );
    };
    setTimeout(again, 3000);
  },
  true,
);
